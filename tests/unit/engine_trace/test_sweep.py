"""Many budgets over one trace: identity first, then what each pool would have served, and the smallest that will do."""

import pytest

from engine.replay.replay import Lookup, Replayed, Reuse
from engine.replay.sweep import Identity, Outcome, identity_of, outcome_of, pools_of, recommended, sweep
from engine.replay.trace import Trace
from engine.request import NO_MARKS
from tests.unit.engine_prefix.sessions import SMALL_SNAPSHOTS, Sizes, Turn, an_agents_day
from tests.unit.engine_trace.living import Living

NOTHING = Reuse(0, 0, 0, 0)


def outcome(pool_bytes, restored):
    return Outcome(pool_bytes, 1_000, restored, 0.0, 0, NOTHING, NOTHING)


def traced(turns, *, sizes=SMALL_SNAPSHOTS, budget_bytes=40_000_000):
    living = Living(sizes, budget_bytes=budget_bytes)
    living.begin_trace()
    for turn in turns:
        living.serve(turn)
    return living


def test_a_trace_is_identical_to_its_own_replay():
    identity = identity_of(traced(an_agents_day()).trace())

    assert identity.is_whole and identity.num_lookups > 30


def test_the_first_lookup_that_differs_is_named():
    same, other = Lookup(1, 100, False, 64, 64), Lookup(2, 100, False, 64, 32)

    identity = Identity.of(Replayed((same, other, other), NOTHING, NOTHING, 0, 0))

    assert (identity.num_lookups, identity.num_equal, identity.first) == (3, 1, other)


def test_two_conversations_in_turn_need_a_pool_for_two():
    """Known optimum: a pool holds its bytes and no more; with room for both, each turn finds its last one whole."""
    sizes = Sizes(kv_bytes_per_token=1_000, snapshot_bytes=0)
    names = [tuple(range(start, start + 3_200)) for start in (1_000, 9_000)]
    turns = [Turn("a", names[number % 2] + (7, 8), NO_MARKS, (5,)) for number in range(10)]
    trace = traced(turns, sizes=sizes, budget_bytes=10_000_000).trace()

    one, two = (outcome_of(trace, pool) for pool in (4_000_000, 7_000_000))

    assert one.restored_tokens <= 8 * 800  # what is left beside the other conversation
    assert two.restored_tokens == 8 * 3_200


def test_the_hit_rate_never_falls_with_a_larger_pool_and_a_pool_of_nothing_serves_nothing():
    trace = traced(an_agents_day()).trace()
    pools = pools_of(trace)

    outcomes = [outcome_of(trace, pool) for pool in pools[::4]]

    rates = [each.hit_rate for each in outcomes]
    assert rates[0] == 0 and rates == sorted(rates) and rates[-1] > 0.8
    assert [each.prefill_s for each in outcomes] == sorted((each.prefill_s for each in outcomes), reverse=True)


def test_processes_beside_each_other_find_what_one_finds(tmp_path):
    living = traced(list(an_agents_day())[:12])
    file = tmp_path / "day.trace"
    file.write_bytes(living.written)
    shown = []

    outcomes = sweep(file, (10_000_000, 40_000_000), show=lambda done, total: shown.append((done, total)))

    assert outcomes == tuple(outcome_of(Trace.read(file), pool) for pool in (10_000_000, 40_000_000))
    assert shown == [(1, 2), (2, 2)]


def test_the_smallest_pool_within_the_loss_is_recommended():
    outcomes = [outcome(1, 500), outcome(2, 900), outcome(3, 920), outcome(4, 921)]

    assert recommended(outcomes, loss=0.02).pool_bytes == 3
    assert recommended(outcomes, loss=0.03).pool_bytes == 2
    assert recommended(outcomes, loss=0.0).pool_bytes == 4


@pytest.mark.parametrize(("step", "count"), [(None, 26), (10_000_000, 10)])
def test_pools_go_from_the_smallest_useful_to_twice_the_live_one(step, count):
    pools = pools_of(traced(list(an_agents_day())[:3]).trace(), step_bytes=step)

    assert pools[0] == 0 and 40_000_000 in pools and pools[-1] <= 80_000_000
    assert abs(len(pools) - count) <= 2
