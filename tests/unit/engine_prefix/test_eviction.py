"""Who goes when room is needed: never the path being extended, never a pin, the useless and left behind first."""

import pytest

from engine.blocks import TokenBlocks
from engine.prefix.eviction import EvictionQueue, snapshot_value
from engine.prefix.index import Run
from tests.unit.engine_prefix.publishing import (
    BLOCK_BYTES,
    SNAPSHOT_BYTES,
    an_index,
    look_up,
    publish,
    restorable,
    some_tokens,
)

HEAD = some_tokens(320)


def branch(number: int, num_tokens: int = 160) -> tuple[int, ...]:
    return HEAD + some_tokens(num_tokens, of=number)


def test_a_queue_gives_the_least_first_and_knows_only_the_newest_place_of_each():
    queue = EvictionQueue()
    for piece_id, priority in ((1, 5.0), (2, 3.0), (3, 4.0)):
        queue.put(piece_id, priority, 0)
    queue.put(2, 9.0, 1)
    queue.discard(3)

    order = [queue.take(), queue.take(), queue.take()]

    assert order == [1, 2, None]


def test_a_queue_does_not_grow_with_every_change():
    queue = EvictionQueue()

    for number in range(10_000):
        queue.put(number % 7, float(number), number)

    assert len(queue._heap) < 200
    assert [queue.take() for _ in range(8)] == [*(number % 7 for number in range(9_993, 10_000)), None]


def test_room_is_made_before_an_extent_is_added_and_the_budget_is_never_exceeded():
    index = an_index(budget_bytes=10 * BLOCK_BYTES)
    publish(index, some_tokens(256, of=1))

    publish(index, some_tokens(256, of=2))

    index.check()
    assert index.used_bytes == 8 * BLOCK_BYTES
    assert index.take_dropped().extents == (1,)
    assert index.take_dropped().extents == ()


def test_what_is_larger_than_the_budget_is_refused_and_evicts_nothing():
    index = an_index(budget_bytes=10 * BLOCK_BYTES)
    publish(index, some_tokens(256))

    refused = index.add_extent(TokenBlocks(some_tokens(256, of=2)), Run(0, 8), nbytes=11 * BLOCK_BYTES)

    assert refused is None
    assert index.status().extents == 1


def test_a_path_that_outgrows_the_budget_is_kept_as_far_as_it_fits():
    index = an_index(budget_bytes=20 * BLOCK_BYTES)

    publish(index, some_tokens(32 * 32))

    index.check()
    assert restorable(index, some_tokens(32 * 32)) == 16 * 32


def test_a_hybrid_path_that_outgrows_the_budget_does_not_push_out_its_own_snapshot():
    index = an_index(budget_bytes=18 * BLOCK_BYTES, needs_snapshots=True)
    publish(index, some_tokens(256), snapshots=(256,))

    publish(index, some_tokens(1024))

    index.check()
    assert index.budget_bytes < 16 * BLOCK_BYTES + SNAPSHOT_BYTES
    assert restorable(index, some_tokens(1024)) == 256


def test_the_path_that_is_being_extended_is_not_evicted_for_it():
    index = an_index(budget_bytes=12 * BLOCK_BYTES)
    publish(index, HEAD[:128])
    publish(index, some_tokens(256, of=2))

    publish(index, HEAD)

    assert restorable(index, HEAD) == 288
    assert restorable(index, some_tokens(256, of=2)) == 0


def test_pinned_pieces_stay_whatever_the_budget_and_go_when_unpinned_as_often():
    index = an_index(needs_snapshots=True)
    publish(index, HEAD, snapshots=(160, 320))
    match = look_up(index, HEAD[:200])
    index.pin(match)
    index.pin(match)

    index.set_budget(0)
    held = restorable(index, HEAD)
    index.unpin(match)
    index.set_budget(0)
    still_held = restorable(index, HEAD)
    index.unpin(match)
    index.set_budget(0)

    assert (held, still_held, restorable(index, HEAD)) == (160, 160, 0)
    assert index.used_bytes == 0


def test_only_leaves_go_so_that_a_path_shrinks_from_its_end():
    index = an_index()
    publish(index, some_tokens(1024))

    restored = []
    for blocks in (32, 31, 17, 8, 0):
        index.set_budget(blocks * BLOCK_BYTES)
        index.check()
        restored.append(restorable(index, some_tokens(1024)))

    assert restored == [992, 768, 512, 256, 0]


def test_extents_that_no_snapshot_needs_go_before_any_snapshot():
    index = an_index(needs_snapshots=True)
    publish(index, some_tokens(160, of=2), snapshots=(160,))
    publish(index, HEAD)  # newer, and useless without a snapshot

    index.set_budget(index.used_bytes - 1)

    assert index.status().snapshots == 1
    assert index.status().blocks_evicted > 0


def test_a_branch_that_its_conversation_left_behind_goes_before_the_live_one_and_the_shared_prompt():
    index = an_index(needs_snapshots=True)
    publish(index, HEAD, snapshots=(64,), owner="a", kind="shared_end")
    left = branch(2)
    publish(index, left, snapshots=(320,), owner="a", kind="message_start")
    publish(index, left, snapshots=(480,), owner="a", kind="prompt_end")
    live = branch(3)
    look_up(index, live)
    publish(index, live, snapshots=(480,), owner="b", kind="prompt_end")

    index.set_budget(index.used_bytes - 1)

    assert restorable(index, (*branch(2), 1)) == 320
    assert restorable(index, (*branch(3), 1)) == 480
    assert index.status().snapshots == 3


def test_a_branch_is_not_left_behind_while_its_own_request_runs():
    index = an_index(needs_snapshots=True)
    blocks = publish(index, branch(2), owner="earlier")
    index.add_snapshot(blocks, 320, nbytes=SNAPSHOT_BYTES, kind="message_start", owner="a")
    index.add_snapshot(blocks, 480, nbytes=SNAPSHOT_BYTES, kind="prompt_end", owner="a")
    publish(index, some_tokens(160, of=7), snapshots=(32,), owner="c")

    look_up(index, branch(3))
    index.set_budget(index.used_bytes - 1)

    assert restorable(index, (*branch(2), 1)) == 480


def test_a_system_prompt_outlives_the_conversations_that_share_it():
    index = an_index(budget_bytes=60 * BLOCK_BYTES, needs_snapshots=True)
    publish(index, HEAD, snapshots=(320,), owner="first", kind="shared_end")

    for number in range(2, 40):
        look_up(index, branch(number))
        publish(index, branch(number), snapshots=(480,), owner=str(number))

    index.check()
    assert look_up(index, branch(99)).restore_len == 320
    assert index.status().snapshots_evicted > 30


@pytest.mark.parametrize("needs_snapshots", [False, True])
def test_a_prompt_that_nobody_comes_back_to_ages_and_goes_however_often_it_was_used(needs_snapshots):
    index = an_index(budget_bytes=40 * BLOCK_BYTES, needs_snapshots=needs_snapshots)
    publish(index, HEAD, snapshots=(320,))
    for _ in range(5):
        look_up(index, (*HEAD, 1))

    for number in range(2, 60):
        publish(index, some_tokens(320, of=number), snapshots=(320,), owner=str(number))
        look_up(index, (*some_tokens(320, of=number), 1))

    assert restorable(index, (*HEAD, 1)) == 0


def test_a_snapshot_at_the_end_of_a_path_is_worth_less_by_byte_because_its_extents_go_too():
    index = an_index(needs_snapshots=True)
    blocks = publish(index, HEAD, snapshots=(160,), owner="a")
    (snapshot,) = index.pool.snapshots.values()
    at_the_end = snapshot_value(snapshot)

    index.add_snapshot(blocks, 320, nbytes=SNAPSHOT_BYTES, kind="prompt_end", owner="a")

    assert at_the_end < snapshot_value(snapshot) == 160 / SNAPSHOT_BYTES


def test_a_snapshot_is_worth_more_when_the_one_before_it_is_gone():
    index = an_index(needs_snapshots=True)
    blocks = publish(index, HEAD)
    index.add_snapshot(blocks, 128, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")
    for length in (256, 288):
        index.add_snapshot(blocks, length, nbytes=SNAPSHOT_BYTES, kind="prompt_end", owner="other")

    index.add_snapshot(blocks, 320, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")

    index.check()
    assert [snapshot.length - snapshot.parent.length for snapshot in index.pool.snapshots.values()] == [256, 32, 32]


@pytest.mark.parametrize("needs_snapshots", [False, True])
def test_pieces_of_no_bytes_do_no_harm(needs_snapshots):
    index = an_index(budget_bytes=SNAPSHOT_BYTES, needs_snapshots=needs_snapshots)
    blocks = TokenBlocks(HEAD)
    for run in index.missing(blocks, upto_len=320):
        index.add_extent(blocks, run, nbytes=0)
    index.add_snapshot(blocks, 160, nbytes=SNAPSHOT_BYTES, kind="prompt_end", owner="r")

    index.check()
    assert restorable(index, HEAD) == (160 if needs_snapshots else 288)
