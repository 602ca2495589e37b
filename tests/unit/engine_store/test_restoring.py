"""What is restored from the store continues exactly like what was never interrupted, for every kind of layer."""

import mlx.core as mx
import pytest

from engine.blocks import BLOCK_TOKENS
from engine.layout import arrays_of
from engine.prefix.index import Piece
from engine.prefix.store import RestoreMismatch, Snapshot
from engine.step import prefill_slice
from tests.unit.engine_store.conftest import (
    ROOM,
    greedy,
    next_logits,
    prefilled,
    prompt_of,
    put_blocks,
    relative_error,
)

TOLERANCE = 1e-5
PROMPT = prompt_of(170)
NUM_TOKENS = 34  # past the sliding window, from any length


def published(subject, *, length, slice_len=BLOCK_TOKENS):
    """A store that holds the first `length` tokens of the prompt as pieces and snapshot 0."""
    store = subject.store()
    caches = prefilled(subject, PROMPT[:length], slice_len=slice_len)
    pieces = put_blocks(store, caches, 0, length)
    if store.needs_snapshots:
        snapshot = store.capture(caches, length)
        mx.eval(snapshot.arrays())
        store.put_snapshot(0, snapshot)
    return store, pieces


def restored(subject, store, pieces, *, length):
    caches = subject.caches()
    held = store.hold(pieces, 0 if store.needs_snapshots else None)
    store.restore(held, length=length, caches=caches, room_len=ROOM)
    return caches


@pytest.mark.parametrize("length", [32, 64, 160])
def test_a_restored_prompt_continues_like_a_recomputed_one(subject, length):
    store, pieces = published(subject, length=length)
    recomputed = prefilled(subject, PROMPT[:length])
    prefill_slice(subject.model, recomputed, PROMPT[length:-1])
    tokens, logits = greedy(subject.model, recomputed, PROMPT[-1], NUM_TOKENS)

    caches = restored(subject, store, pieces, length=length)
    prefill_slice(subject.model, caches, PROMPT[length:-1])
    restored_tokens, restored_logits = greedy(subject.model, caches, PROMPT[-1], NUM_TOKENS)

    assert restored_tokens == tokens
    assert relative_error(restored_logits, logits) <= TOLERANCE


def test_a_prompt_that_was_prefilled_in_one_slice_is_restored_into_its_middle(subject):
    length = 96
    store = subject.store()
    caches = prefilled(subject, PROMPT[:length], slice_len=length)  # leaves more in a sliding window than it needs
    pieces = put_blocks(store, caches, 0, length)
    snapshot = store.capture(caches, length)
    mx.eval(snapshot.arrays())
    store.put_snapshot(0, snapshot)
    logits = next_logits(subject.model, caches, PROMPT[length:150])

    again = restored(subject, store, pieces, length=length)

    assert relative_error(next_logits(subject.model, again, PROMPT[length:150]), logits) <= TOLERANCE


def test_pieces_of_the_middle_of_extents_are_restored_in_their_order(subject):
    store, _ = published(subject, length=96)
    pieces = [Piece(0, 0, 1), Piece(0, 1, 1), Piece(0, 2, 1)]
    plain = next_logits(subject.model, prefilled(subject, PROMPT[:96]), PROMPT[96:110])

    caches = restored(subject, store, pieces, length=96)

    assert relative_error(next_logits(subject.model, caches, PROMPT[96:110]), plain) <= TOLERANCE


def test_a_restored_sequence_that_goes_on_changes_nothing_in_the_store(subject):
    store, pieces = published(subject, length=64)
    first = restored(subject, store, pieces, length=64)
    logits = next_logits(subject.model, first, PROMPT[64:120])

    second = restored(subject, store, pieces, length=64)

    assert relative_error(next_logits(subject.model, second, PROMPT[64:120]), logits) <= TOLERANCE


def test_what_is_held_can_be_restored_after_it_was_dropped(subject):
    store, pieces = published(subject, length=64)
    plain = next_logits(subject.model, prefilled(subject, PROMPT[:64]), PROMPT[64:80])
    held = store.hold(pieces, 0 if store.needs_snapshots else None)

    store.drop([piece.extent_id for piece in pieces], [0] if store.needs_snapshots else [])
    caches = subject.caches()
    store.restore(held, length=64, caches=caches, room_len=ROOM)

    assert store.nbytes == 0
    assert relative_error(next_logits(subject.model, caches, PROMPT[64:80]), plain) <= TOLERANCE


def test_growing_layers_are_restored_with_the_room_that_was_asked_for(subject):
    store, pieces = published(subject, length=64)

    caches = restored(subject, store, pieces, length=64)
    rooms = {array.shape[2] for cache in caches for array in arrays_of(cache.state) if array.ndim == 4}
    next_logits(subject.model, caches, PROMPT[64:100])
    later = {array.shape[2] for cache in caches for array in arrays_of(cache.state) if array.ndim == 4}

    assert ROOM in rooms
    assert max(later) == ROOM


def test_a_wrong_block_is_seen_in_the_logits(subject):
    store, pieces = published(subject, length=160)
    wrong = subject.store()
    other = prefilled(subject, prompt_of(160, seed=1))
    wrong_pieces = put_blocks(wrong, other, 0, 160)
    if wrong.needs_snapshots:
        wrong.put_snapshot(0, store.hold(pieces, 0).snapshot)
    plain = next_logits(subject.model, prefilled(subject, PROMPT[:160]), PROMPT[160:165])

    caches = restored(subject, wrong, wrong_pieces, length=160)

    assert relative_error(next_logits(subject.model, caches, PROMPT[160:165]), plain) > 100 * TOLERANCE


def test_a_stale_snapshot_is_refused_or_seen_in_the_logits(subject):
    store, pieces = published(subject, length=64)
    if not store.needs_snapshots:
        pytest.skip("the model has no fixed layers")  # so there is no snapshot that could be stale
    stale = store.capture(prefilled(subject, PROMPT[:32]), 32)
    plain = next_logits(subject.model, prefilled(subject, PROMPT[:64]), PROMPT[64:70])
    store.drop([], [0])
    store.put_snapshot(0, Snapshot(64, stale.states))

    try:
        caches = restored(subject, store, pieces, length=64)
    except RestoreMismatch as mismatch:
        assert "stands at 32 tokens, 64 were to be restored" in str(mismatch)
    else:
        assert relative_error(next_logits(subject.model, caches, PROMPT[64:70]), plain) > 100 * TOLERANCE


def test_a_snapshot_of_another_length_is_refused(sliding):
    store, pieces = published(sliding, length=64)

    with pytest.raises(RestoreMismatch, match="snapshot covers 64 tokens, not 32"):
        restored(sliding, store, [Piece(pieces[0].extent_id, 0, 1)], length=32)


def test_a_model_with_fixed_layers_is_not_restored_without_a_snapshot(sliding):
    store, pieces = published(sliding, length=64)

    with pytest.raises(RestoreMismatch, match="there is no snapshot"):
        store.restore(store.hold(pieces, None), length=64, caches=sliding.caches(), room_len=ROOM)


def test_blocks_that_cover_another_length_are_refused(dense):
    store, pieces = published(dense, length=64)

    with pytest.raises(RestoreMismatch, match="blocks cover 64 tokens, 96 were to be restored"):
        store.restore(store.hold(pieces, None), length=96, caches=dense.caches(), room_len=ROOM)


def test_blocks_that_an_extent_does_not_have_are_refused(dense):
    store, _ = published(dense, length=64)

    with pytest.raises(RestoreMismatch, match=r"tokens \[32, 96\) of an extent of 64"):
        store.hold([Piece(0, 1, 2)], None)
