"""The pool follows what the machine still has: down soon, up slowly, and never stuck."""

from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.governor import GROWTH_S, QUIET_S, Governor
from engine.memory_text import GIB, MIB
from engine.wire import MemoryPlan

PLAN = MemoryPlan(
    weights_bytes=10 * GIB,
    fixed_bytes=GIB,
    kv_bytes_per_token=16 * 1024,
    state_bytes_per_sequence=10 * MIB,
    pool_bytes=8 * GIB,
    limit_bytes=19 * GIB,
    maximum_context_tokens=100_000,
    fits=True,
    verdict="",
    reserve_bytes=2 * GIB,
)
SHORT_BYTES = 4096 * 16 * 1024 + 20 * MIB
SLACK_BYTES = 8 * GIB // 50


@dataclass
class Machine:
    """As large as the plan needs, to the byte. Others take of it what they like; the pool holds `used_bytes`."""

    governor: Governor
    now_s: float = 0.0
    used_bytes: int = 4 * GIB
    excess_bytes: int = 0

    def second(self, others_bytes: int = 0, *, free_scratch_bytes: int = 0) -> int:
        ours_bytes = PLAN.weights_bytes + PLAN.fixed_bytes + self.used_bytes - free_scratch_bytes + self.excess_bytes
        allowed_bytes = self.governor.observe(
            now_s=self.now_s,
            available_bytes=max(PLAN.limit_bytes + PLAN.reserve_bytes - ours_bytes - others_bytes, 0),
            active_bytes=ours_bytes - 300 * MIB,
            pool_used_bytes=self.used_bytes,
            process_bytes=ours_bytes,
        )
        self.now_s += 1.0
        self.used_bytes = min(self.used_bytes, allowed_bytes)
        return allowed_bytes

    def seconds(self, count: float, others_bytes: int = 0) -> list[int]:
        return [self.second(others_bytes) for _ in range(int(count))]


@pytest.fixture
def machine() -> Machine:
    return Machine(Governor(PLAN))


def test_a_machine_that_is_as_planned_leaves_the_pool_as_planned(machine):
    assert set(machine.seconds(60)) == {PLAN.pool_bytes}
    assert not machine.governor.status().is_pressed


def test_the_whole_pool_may_be_used_as_planned(machine):
    machine.used_bytes = PLAN.pool_bytes

    assert set(machine.seconds(60)) == {PLAN.pool_bytes}


def test_scratch_that_is_not_in_use_now_is_not_given_away(machine):
    allowed = [machine.second(GIB // 2, free_scratch_bytes=GIB // 2) for _ in range(5)]

    assert allowed[-1] == PLAN.pool_bytes - GIB // 2


def test_what_other_programs_take_is_taken_from_the_pool_and_the_reserve_stays(machine):
    machine.used_bytes = PLAN.pool_bytes

    allowed = machine.seconds(5, others_bytes=3 * GIB)

    assert allowed[-1] == PLAN.pool_bytes - 3 * GIB
    assert machine.governor.status().available_bytes >= PLAN.reserve_bytes
    assert machine.governor.status().is_pressed


def test_a_dip_of_one_sample_evicts_nothing(machine):
    allowed = [machine.second(others_bytes=others) for others in (0, GIB, 0, GIB, 0)]

    assert set(allowed) == {PLAN.pool_bytes}


def test_when_half_of_the_reserve_is_gone_the_pool_shrinks_at_once(machine):
    machine.used_bytes = PLAN.pool_bytes

    assert machine.second(others_bytes=3 * GIB // 2) == PLAN.pool_bytes - 3 * GIB // 2


def test_the_pool_comes_back_slowly_and_wholly(machine):
    machine.seconds(5, others_bytes=4 * GIB)
    low = machine.governor.status().pool_bytes

    quiet = machine.seconds(QUIET_S - 2)
    growing = machine.seconds(GROWTH_S)

    assert set(quiet) == {low}
    steps = [later - earlier for earlier, later in pairwise(growing)]
    assert min(steps) >= 0
    assert max(steps) <= PLAN.pool_bytes / GROWTH_S + 1
    assert growing[-1] == PLAN.pool_bytes
    assert not machine.governor.status().is_pressed


def test_even_when_nothing_is_left_a_short_sequence_can_run(machine):
    allowed = machine.seconds(30, others_bytes=100 * GIB)

    assert allowed[-1] == SHORT_BYTES


def test_memory_that_the_plan_did_not_foresee_is_taken_from_the_pool(machine):
    machine.excess_bytes = GIB
    machine.used_bytes = PLAN.pool_bytes

    machine.seconds(5)

    status = machine.governor.status()
    assert status.pool_bytes == PLAN.pool_bytes - GIB
    assert status.observed_bytes - status.planned_bytes == GIB


def test_the_status_compares_what_is_used_with_what_was_planned_for_it(machine):
    machine.second(others_bytes=100 * MIB)

    status = machine.governor.status()
    assert status.planned_bytes == 15 * GIB
    assert status.observed_bytes == 15 * GIB
    assert status.planned_pool_bytes == 8 * GIB
    assert status.available_bytes == 6 * GIB - 100 * MIB
    assert status.shrinks == 0


def test_shrinks_are_counted(machine):
    for others_bytes in (GIB, 2 * GIB, 3 * GIB):
        machine.seconds(3, others_bytes)

    assert machine.governor.status().shrinks == 3


@settings(deadline=None, max_examples=60)
@given(noise=st.lists(st.integers(0, SLACK_BYTES // 2), min_size=50, max_size=200), level=st.integers(0, 5 * GIB))
def test_small_noise_moves_the_pool_once_at_most(noise, level):
    machine = Machine(Governor(PLAN))

    for others in noise:
        machine.second(level + others)

    assert machine.governor.status().shrinks <= 1


@settings(deadline=None, max_examples=60)
@given(others=st.lists(st.integers(0, 30 * GIB), min_size=1, max_size=120))
def test_whatever_others_do_the_pool_stays_in_bounds_waits_before_it_grows_and_comes_back(others):
    machine = Machine(Governor(PLAN))
    allowed = [PLAN.pool_bytes]

    for others_bytes in others:
        allowed.append(machine.second(others_bytes))

    assert all(SHORT_BYTES <= bytes_allowed <= PLAN.pool_bytes for bytes_allowed in allowed)
    lowered_at = [i for i in range(1, len(allowed)) if allowed[i] < allowed[i - 1]]
    raised_at = [i for i in range(1, len(allowed)) if allowed[i] > allowed[i - 1]]
    assert all(raised - lowered >= QUIET_S for raised in raised_at for lowered in lowered_at if lowered < raised)
    assert machine.seconds(2 * QUIET_S + GROWTH_S)[-1] == PLAN.pool_bytes


@settings(deadline=None, max_examples=60)
@given(
    available=st.integers(0, 2**50),
    active=st.integers(0, 2**50),
    used=st.integers(0, 2**50),
    process=st.integers(0, 2**50),
    pool=st.integers(0, 2**40),
)
def test_no_observation_leads_outside_the_plan(available, active, used, process, pool):
    governor = Governor(msgspec.structs.replace(PLAN, pool_bytes=pool))

    for now_s in (0.0, 1.0, 2.0, 100.0, 50.0):
        allowed = governor.observe(
            now_s=now_s,
            available_bytes=available,
            active_bytes=active,
            pool_used_bytes=used,
            process_bytes=process,
        )
        assert 0 <= allowed <= pool
