"""What the index finds of a prompt, and what it stores of one: without snapshots, and with them."""

import pytest

from engine.blocks import TokenBlocks
from engine.prefix.index import Piece, Run
from tests.unit.engine_prefix.publishing import (
    BLOCK_BYTES,
    SNAPSHOT_BYTES,
    an_index,
    look_up,
    publish,
    restorable,
    some_tokens,
)

HEAD = some_tokens(330)


def test_an_empty_index_restores_nothing_and_misses_all():
    index = an_index()

    match = look_up(index, HEAD)

    assert (match.restore_len, match.matched_len, match.pieces, match.snapshot_id) == (0, 0, (), None)
    assert index.missing(TokenBlocks(HEAD), upto_len=330) == (Run(0, 8), Run(8, 2))


def test_what_was_published_is_restored_up_to_the_last_token():
    index = an_index()
    publish(index, HEAD[:320])

    longer, same = look_up(index, HEAD), look_up(index, HEAD[:320])

    assert (longer.restore_len, longer.pieces) == (320, (Piece(1, 0, 8), Piece(2, 0, 2)))
    assert (same.restore_len, same.pieces) == (288, (Piece(1, 0, 8), Piece(2, 0, 1)))


def test_a_sequence_that_diverges_inside_an_extent_shares_its_first_blocks():
    index = an_index()
    publish(index, HEAD)
    fork = HEAD[:110] + some_tokens(220, of=2)

    missing = index.missing(TokenBlocks(fork), upto_len=330)
    publish(index, fork)

    assert missing == (Run(3, 5), Run(8, 2))
    assert look_up(index, fork).pieces == (Piece(1, 0, 3), Piece(3, 0, 5), Piece(4, 0, 2))


def test_a_sequence_that_grows_gets_further_extents_on_the_same_grid():
    index = an_index()
    publish(index, HEAD[:160])

    assert index.missing(TokenBlocks(HEAD), upto_len=330) == (Run(5, 3), Run(8, 2))


def test_only_full_blocks_below_the_given_length_are_missing():
    index = an_index()

    assert index.missing(TokenBlocks(HEAD), upto_len=95) == (Run(0, 2),)
    assert index.missing(TokenBlocks(HEAD), upto_len=31) == ()


def test_an_extent_needs_the_block_before_it_and_a_free_place():
    index = an_index()
    blocks = TokenBlocks(HEAD)

    orphan = index.add_extent(blocks, Run(8, 2), nbytes=10)
    first = index.add_extent(blocks, Run(0, 8), nbytes=10)
    again = index.add_extent(blocks, Run(0, 8), nbytes=10)

    assert (orphan, first, again) == (None, 1, None)
    assert index.used_bytes == 10


def test_a_key_hit_with_other_tokens_is_no_match_and_stores_nothing_behind_it(caplog):
    index = an_index()
    ours = publish(index, HEAD)
    theirs = TokenBlocks(HEAD[:64] + some_tokens(32, of=2) + HEAD[96:])
    theirs.keys[:3] = ours.keys[:3]

    first = index.match(theirs, limit_len=329, request_id="collides")
    index.match(theirs, limit_len=329, request_id="collides again")

    assert (first.restore_len, first.matched_len) == (64, 64)
    assert index.missing(theirs, upto_len=330) == ()
    assert index.add_extent(theirs, Run(3, 5), nbytes=10) is None
    assert index.num_collisions == 3
    assert [record.message for record in caplog.records] == [
        "prefix key collision block=2; treated as no match, logged once"
    ]


def test_with_snapshots_the_deepest_one_below_match_and_limit_is_restored():
    index = an_index(needs_snapshots=True)
    blocks = publish(index, HEAD, snapshots=(64, 160, 320))

    found = {
        limit: index.match(blocks, limit_len=limit, request_id="r").restore_len for limit in (329, 319, 160, 159, 63)
    }

    assert found == {329: 320, 319: 160, 160: 160, 159: 64, 63: 0}


def test_pieces_of_a_hybrid_end_at_its_snapshot():
    index = an_index(needs_snapshots=True)
    publish(index, HEAD, snapshots=(160,))

    match = look_up(index, HEAD)

    assert (match.restore_len, match.matched_len) == (160, 320)
    assert match.pieces == (Piece(1, 0, 5),)
    assert match.snapshot_id is not None


def test_a_snapshot_needs_all_blocks_before_it_and_a_model_that_needs_snapshots():
    dense, hybrid = an_index(), an_index(needs_snapshots=True)
    blocks = publish(dense, HEAD)
    publish(hybrid, HEAD[:64])

    without_need = dense.add_snapshot(blocks, 64, nbytes=1, kind="prompt_end", owner="r")
    without_blocks = hybrid.add_snapshot(blocks, 96, nbytes=1, kind="prompt_end", owner="r")

    assert (without_need, without_blocks) == (None, None)
    assert not hybrid.has_snapshot(blocks, 96)


def test_a_second_snapshot_at_a_place_is_not_stored_but_makes_the_first_more_durable():
    index = an_index(needs_snapshots=True)
    blocks = publish(index, HEAD)
    index.add_snapshot(blocks, 64, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")

    again = index.add_snapshot(blocks, 64, nbytes=SNAPSHOT_BYTES, kind="message_start", owner="r")
    index.add_snapshot(blocks, 128, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")

    assert again is None
    assert index.has_snapshot(blocks, 64)
    assert index.status().snapshots == 2


def test_a_rolling_snapshot_replaces_the_owners_previous_one_only():
    index = an_index(needs_snapshots=True)
    blocks = publish(index, HEAD)
    index.add_snapshot(blocks, 32, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="other")
    index.add_snapshot(blocks, 64, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")

    index.add_snapshot(blocks, 128, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")

    assert [length for length in (32, 64, 128) if index.has_snapshot(blocks, length)] == [32, 128]
    assert (index.status().snapshots_retired, index.status().snapshots_evicted) == (1, 0)
    assert len(index.take_dropped().snapshots) == 1


@pytest.mark.parametrize("event", ["used", "released"])
def test_a_rolling_snapshot_stays_when_it_was(event):
    index = an_index(needs_snapshots=True)
    blocks = publish(index, HEAD)
    index.add_snapshot(blocks, 64, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")
    if event == "used":
        look_up(index, HEAD[:70])
    if event == "released":
        index.release("r")

    index.add_snapshot(blocks, 128, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")

    assert index.has_snapshot(blocks, 64)


def test_a_look_ahead_tells_what_a_match_would_restore_and_counts_nothing():
    index = an_index(needs_snapshots=True)
    publish(index, HEAD, snapshots=(160,))

    ahead = restorable(index, HEAD)

    assert ahead == 160 == look_up(index, HEAD).restore_len
    assert index.status().lookups == 1


def test_the_status_counts_bytes_pieces_tokens_and_hits():
    index = an_index(needs_snapshots=True)
    publish(index, HEAD, snapshots=(160, 320))
    look_up(index, HEAD)
    look_up(index, some_tokens(70, of=9))

    status = index.status()

    assert (status.blocks, status.extents, status.snapshots) == (10, 2, 2)
    assert (status.block_bytes, status.snapshot_bytes) == (10 * BLOCK_BYTES, 2 * SNAPSHOT_BYTES)
    assert status.used_bytes == status.block_bytes + status.snapshot_bytes
    assert (status.lookups, status.hits, status.cold_misses) == (2, 1, 1)
    assert (status.lookup_tokens, status.reused_tokens, status.matched_tokens) == (400, 320, 320)
    assert status.hit_rate == 0.8
    assert (status.blocks_published, status.snapshots_published) == (10, 2)


def test_a_cleared_index_is_empty_but_for_pins_and_a_prompt_is_cold_again():
    index = an_index(needs_snapshots=True)
    publish(index, HEAD, snapshots=(160, 320))
    pinned = look_up(index, HEAD[:200])
    index.pin(pinned)

    index.clear()
    kept = restorable(index, HEAD)
    index.unpin(pinned)
    index.clear()

    assert (kept, index.used_bytes, index.status().clears) == (160, 0, 2)
    explanation = look_up(index, HEAD).explanation
    assert explanation is not None and explanation.cause == "cold"
