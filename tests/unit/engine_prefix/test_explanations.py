"""Why a prompt was not restored further: the cause, the first differing token, and where a snapshot would help."""

import random

import pytest

from engine.blocks import BLOCK_TOKENS, TokenBlocks
from engine.prefix.tree import BlockTree
from tests.unit.engine_prefix.publishing import BLOCK_BYTES, SNAPSHOT_BYTES, an_index, look_up, publish, some_tokens

EARLIER = some_tokens(500)
OTHER = some_tokens(500, of=2)


def test_a_prompt_that_begins_like_no_other_is_cold_and_differs_nowhere():
    index = an_index()
    publish(index, EARLIER)

    match = look_up(index, OTHER, request_id="r-1")

    assert match.explanation is not None
    assert (match.explanation.id, match.explanation.sampled_at_s) == ("r-1", 1234.5)
    assert (match.explanation.cause, match.explanation.first_difference) == ("cold", None)
    assert match.explanation.prompt_tokens == 500


def test_a_prompt_that_differs_inside_the_first_block_is_cold_and_says_where():
    index = an_index()
    publish(index, EARLIER)

    match = look_up(index, EARLIER[:5] + OTHER)

    assert match.explanation is not None
    assert (match.explanation.cause, match.explanation.first_difference) == ("cold", 5)


def test_the_first_difference_is_to_the_token_against_the_closest_of_several():
    index = an_index()
    for agrees in (300, 312, 305):
        publish(index, EARLIER[:agrees] + some_tokens(100, of=agrees))

    match = look_up(index, EARLIER)

    assert match.explanation is not None
    assert match.restore_len == 288
    assert match.explanation.first_difference == 312
    assert (match.explanation.cause, match.explanation.distance_tokens) == ("differs", 0)


@pytest.mark.parametrize("needs_snapshots", [False, True])
def test_a_turn_that_changes_what_the_last_one_said_differs_and_lost_nothing_that_could_be_had(needs_snapshots):
    """A client that drops the thoughts of its last answer: all that is equal is restored, to a whole block."""
    index = an_index(needs_snapshots=needs_snapshots)
    publish(index, EARLIER[:480], snapshots=(416, 480))

    match = look_up(index, EARLIER[:425] + OTHER)

    assert match.explanation is not None
    assert (match.restore_len, match.matched_len) == (416, 416)
    assert (match.explanation.cause, match.explanation.first_difference) == ("differs", 425)
    assert match.explanation.distance_tokens == 0


@pytest.mark.parametrize("needs_snapshots", [False, True])
def test_each_cause_agrees_with_the_numbers_beside_it(needs_snapshots):
    """Only what was evicted or never taken was computed although it was equal; else nothing more could be had."""
    chance, causes = random.Random(5), set()
    for _ in range(300):
        index = an_index(needs_snapshots=needs_snapshots)
        for number in range(chance.randrange(4)):
            fork = chance.randrange(500)
            lengths = [BLOCK_TOKENS * chance.randint(1, 12) for _ in range(chance.randrange(3))]
            publish(index, EARLIER[:fork] + some_tokens(500 - fork, of=10 + number), snapshots=lengths)
        if chance.random() < 0.5:
            index.set_budget(chance.randrange(index.used_bytes + 1))
        told = look_up(index, EARLIER).explanation
        if told is None:
            continue
        causes.add(told.cause)
        assert (told.distance_tokens > 0) is (told.cause in ("evicted", "never_taken"))
        assert told.cause != "cold" or told.restored_tokens == told.matched_tokens == 0
        equal = told.first_difference or 0
        assert 0 <= equal - told.restored_tokens - told.distance_tokens < BLOCK_TOKENS or told.cause == "cold"

    assert causes == {"cold", "differs", "evicted", *(("never_taken",) if needs_snapshots else ())}


def test_a_conversation_that_just_goes_on_needs_no_explanation():
    index = an_index()
    publish(index, EARLIER[:330])

    match = look_up(index, EARLIER)

    assert (match.restore_len, match.explanation) == (320, None)


def test_a_resumed_request_is_no_lookup():
    index = an_index()
    publish(index, EARLIER)

    match = index.match(TokenBlocks(EARLIER), limit_len=len(EARLIER), request_id="r", is_resumed=True)

    assert match.restore_len == 480
    assert (index.status().lookups, index.status().hits) == (0, 0)


def test_a_prompt_seen_whole_before_differs_at_its_end():
    index = an_index(needs_snapshots=True)
    publish(index, EARLIER)

    match = look_up(index, EARLIER[:400])

    assert match.explanation is not None
    assert (match.explanation.cause, match.explanation.first_difference) == ("never_taken", 400)


def test_what_is_restored_as_far_as_can_be_needs_no_explanation():
    index = an_index()
    publish(index, EARLIER)

    match = look_up(index, EARLIER[:320])

    assert (match.restore_len, match.explanation) == (288, None)
    assert index.status().misses == ()


def test_a_hybrid_without_a_snapshot_at_the_fork_says_so_and_arms_a_junction_there():
    index = an_index(needs_snapshots=True)
    publish(index, EARLIER, snapshots=(128, 480))

    match = look_up(index, EARLIER[:413] + OTHER)

    assert (match.restore_len, match.matched_len, match.junction_len) == (128, 384, 384)
    assert match.explanation is not None
    assert match.explanation.cause == "never_taken"
    assert match.explanation.first_difference == 413
    assert match.explanation.distance_tokens == 384 - 128


def test_after_the_junction_is_taken_the_fork_is_restored_and_no_junction_is_armed():
    index = an_index(needs_snapshots=True)
    publish(index, EARLIER, snapshots=(128, 480))
    publish(index, EARLIER[:413] + OTHER, snapshots=(384,), kind="junction")

    match = look_up(index, EARLIER[:413] + some_tokens(90, of=3))

    assert (match.restore_len, match.junction_len) == (384, None)
    assert index.status().junctions == 1


def test_a_junction_is_never_beyond_the_limit():
    index = an_index(needs_snapshots=True)
    publish(index, EARLIER)

    assert look_up(index, EARLIER[:320]).junction_len == 288


def test_models_without_snapshots_have_no_junctions():
    index = an_index()
    publish(index, EARLIER)
    index.set_budget(8 * BLOCK_BYTES)

    assert look_up(index, EARLIER).junction_len is None


def test_evicted_blocks_are_remembered_so_that_a_miss_says_evicted_and_where_it_differs():
    index = an_index()
    publish(index, EARLIER)
    index.set_budget(0)

    match = look_up(index, EARLIER[:413] + OTHER)

    assert (match.restore_len, match.matched_len) == (0, 0)
    assert match.explanation is not None
    assert (match.explanation.cause, match.explanation.first_difference) == ("evicted", 413)
    assert match.explanation.distance_tokens == 384


def test_an_evicted_snapshot_is_remembered_and_a_junction_armed_where_the_ghosts_agree():
    index = an_index(needs_snapshots=True)
    publish(index, EARLIER, snapshots=(384,))
    index.set_budget(0)

    match = look_up(index, EARLIER[:413] + OTHER)

    assert match.explanation is not None and match.explanation.cause == "evicted"
    assert (match.restore_len, match.matched_len, match.junction_len) == (0, 0, 384)


def test_a_snapshot_that_is_deeper_than_the_fork_was_not_what_was_missing():
    index = an_index(needs_snapshots=True)
    publish(index, EARLIER, snapshots=(480,))
    index.set_budget(15 * BLOCK_BYTES)

    match = look_up(index, EARLIER[:413] + OTHER)

    assert match.explanation is not None and match.explanation.cause == "never_taken"


def test_a_ghost_that_is_published_again_is_live_again():
    index = an_index()
    publish(index, EARLIER)
    index.set_budget(0)
    index.set_budget(1_000_000)
    publish(index, EARLIER)

    match = look_up(index, EARLIER)

    index.check()
    assert match.restore_len == 480


def test_the_newest_hundred_explanations_are_kept():
    index = an_index()

    for number in range(105):
        look_up(index, OTHER, request_id=str(number))

    misses = index.status().misses
    assert [miss.id for miss in misses] == [str(number) for number in range(5, 105)]


def test_ghosts_are_bounded_and_the_deepest_oldest_are_forgotten():
    tree = BlockTree(max_ghosts=10)
    blocks = TokenBlocks(EARLIER)
    extents = [tree.add_extent(blocks, first, 5, extent_id=first + 1, nbytes=1) for first in (0, 5, 10)]

    for extent in reversed(extents):
        tree.remove_extent(extent)

    tree.check()
    assert [block.key for block in tree.known] == blocks.keys[:10]
    assert tree.num_live == 0


def test_retired_snapshots_were_not_evicted():
    index = an_index(needs_snapshots=True)
    blocks = publish(index, EARLIER)
    index.add_snapshot(blocks, 128, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")
    index.add_snapshot(blocks, 480, nbytes=SNAPSHOT_BYTES, kind="rolling", owner="r")

    match = look_up(index, EARLIER[:413] + OTHER)

    assert match.explanation is not None and match.explanation.cause == "never_taken"
