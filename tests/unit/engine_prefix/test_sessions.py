"""Whole sessions of agents on the policy alone: how much comes from the cache, with room for all and with less."""

import pytest

from engine.prefix import pool
from engine.request import PromptMarks
from tests.unit.engine_prefix.sessions import (
    BIG_SNAPSHOTS,
    SMALL_SNAPSHOTS,
    FakeEngine,
    Sizes,
    Turn,
    an_agents_day,
)

ALL = 10**15
SHARED_LEN = 50_412


def moving_tag(number: int, *, marks: PromptMarks) -> Turn:
    """The same 50,412 tokens, then a counter that differs each time, then a question."""
    shared = tuple(range(1_000, 1_000 + SHARED_LEN))
    return Turn("agent", (*shared, 500_000 + number, *range(200)), marks, answer=tuple(range(50)))


def test_of_29_requests_with_a_tag_moving_at_50_412_28_are_restored_to_within_a_block_of_it():
    engine = FakeEngine(BIG_SNAPSHOTS, budget_bytes=ALL)
    marks = PromptMarks(shared_len=12_000, message_starts=(49_000, 50_412), generation_len=4)

    restored = [engine.serve(moving_tag(number, marks=marks), compare=False).restored_len for number in range(29)]

    assert restored == [0] + 28 * [50_400]
    misses = engine.index.status().misses
    assert {miss.first_difference for miss in misses} == {None, SHARED_LEN}
    assert {miss.distance_tokens for miss in misses} == {0}


def test_a_client_whose_messages_are_unknown_pays_for_the_fork_once():
    engine = FakeEngine(BIG_SNAPSHOTS, budget_bytes=ALL)

    restored = [
        engine.serve(moving_tag(number, marks=PromptMarks()), compare=False).restored_len for number in range(29)
    ]

    assert restored == [0, 45_056] + 27 * [50_400]
    assert engine.index.status().junctions == 1


def a_day(sizes: Sizes, *, budget_bytes: int, compare: bool = False) -> FakeEngine:
    engine = FakeEngine(sizes, budget_bytes=budget_bytes)
    for turn in an_agents_day():
        engine.serve(turn, compare=compare)
        assert engine.index.used_bytes <= budget_bytes
    return engine


@pytest.mark.parametrize("sizes", [BIG_SNAPSHOTS, SMALL_SNAPSHOTS], ids=["big snapshots", "small snapshots"])
def test_a_day_of_an_agent_comes_from_the_cache(sizes):
    with_all = a_day(sizes, budget_bytes=ALL, compare=True)
    with_half = a_day(sizes, budget_bytes=with_all.index.used_bytes // 2)

    assert with_all.share_from_cache >= 0.93
    assert with_half.share_from_cache >= 0.90
    assert len(with_all.served) > 45
    assert [one.turn.client for one in with_all.served if one.best_len - one.restored_len > 32] == []


@pytest.mark.parametrize(
    ("sizes", "fraction"), [(BIG_SNAPSHOTS, 2), (BIG_SNAPSHOTS, 6), (SMALL_SNAPSHOTS, 2), (SMALL_SNAPSHOTS, 3)]
)
def test_value_beats_recency_alone_where_memory_is_short(sizes, fraction, monkeypatch):
    budget_bytes = a_day(sizes, budget_bytes=ALL).index.used_bytes // fraction
    by_value = a_day(sizes, budget_bytes=budget_bytes).share_from_cache

    monkeypatch.setattr(pool, "snapshot_value", lambda snapshot: 0.0)
    by_recency = a_day(sizes, budget_bytes=budget_bytes).share_from_cache

    assert by_value > by_recency + 0.01
