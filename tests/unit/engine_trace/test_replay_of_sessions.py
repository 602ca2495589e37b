"""An agent's day lived through by a cache without tensors, traced, and replayed: the same at each lookup."""

import pytest

from engine.replay.replay import replay
from tests.unit.engine_prefix.sessions import BIG_SNAPSHOTS, NO_SNAPSHOTS, SMALL_SNAPSHOTS, an_agents_day
from tests.unit.engine_trace.living import Living


@pytest.mark.parametrize("sizes", [BIG_SNAPSHOTS, SMALL_SNAPSHOTS, NO_SNAPSHOTS], ids=["big", "small", "none"])
@pytest.mark.parametrize("num_bytes", [200_000_000, 700_000_000, 5_000_000_000])
def test_a_replay_with_the_same_budget_restores_the_same_everywhere(sizes, num_bytes):
    living = Living(sizes, budget_bytes=num_bytes)
    living.begin_trace()
    for turn in an_agents_day():
        living.serve(turn)

    replayed = replay(living.trace())

    assert [each.restored_len for each in replayed.lookups] == living.restored
    assert [each.live_len for each in replayed.lookups] == living.restored
    assert sum(living.restored) > 0


@pytest.mark.parametrize("sizes", [BIG_SNAPSHOTS, NO_SNAPSHOTS], ids=["big", "none"])
def test_a_trace_that_begins_in_the_middle_goes_on_from_what_the_cache_held(sizes):
    living = Living(sizes, budget_bytes=700_000_000)
    turns = list(an_agents_day())
    for turn in turns[:20]:
        living.serve(turn)
    before = len(living.restored)
    living.begin_trace()
    for turn in turns[20:]:
        living.serve(turn)

    replayed = replay(living.trace())

    assert [each.restored_len for each in replayed.lookups] == living.restored[before:]


def test_a_larger_budget_restores_more_and_none_restores_nothing():
    living = Living(BIG_SNAPSHOTS, budget_bytes=700_000_000)
    living.begin_trace()
    for turn in an_agents_day():
        living.serve(turn)
    trace = living.trace()

    live = sum(each.restored_len for each in replay(trace).lookups)
    more = sum(each.restored_len for each in replay(trace, more_bytes=5_000_000_000).lookups)
    none = sum(each.restored_len for each in replay(trace, more_bytes=-700_000_000).lookups)

    assert none == 0 < live < more
