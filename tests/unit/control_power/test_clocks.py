"""What two looks at three clocks say: sleep, a standstill, a clock that was set, or nothing at all."""

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.power.clocks import CLOCKS_APART_S, PAUSE_S, Clocks, Gap, elapsed_s, gaps_between, read_clocks

START = Clocks(awake_s=1000.0, elapsed_s=5000.0, wall_s=1.8e9)
DAY_S = 86_400.0


def later(clocks: Clocks, *, ran_s: float = 0.0, slept_s: float = 0.0, set_by_s: float = 0.0) -> Clocks:
    return Clocks(
        awake_s=clocks.awake_s + ran_s,
        elapsed_s=clocks.elapsed_s + ran_s + slept_s,
        wall_s=clocks.wall_s + ran_s + slept_s + set_by_s,
    )


def test_a_machine_that_slept_two_hours_is_seen_with_its_duration():
    (gap,) = gaps_between(START, later(START, ran_s=0.1, slept_s=7200))

    assert (gap.kind, gap.seconds) == ("sleep", pytest.approx(7200))


@pytest.mark.parametrize("set_by_s", [7200.0, -7200.0, 10 * DAY_S])
def test_a_wall_clock_that_is_set_is_no_sleep(set_by_s):
    (gap,) = gaps_between(START, later(START, ran_s=0.1, set_by_s=set_by_s))

    assert (gap.kind, gap.seconds) == ("clock_set", pytest.approx(set_by_s))


def test_a_mac_that_wakes_up_and_has_its_clock_set_did_both():
    gaps = gaps_between(START, later(START, slept_s=3600, set_by_s=-40))

    assert gaps == (Gap("sleep", pytest.approx(3600)), Gap("clock_set", pytest.approx(-40)))


def test_a_process_that_was_stopped_for_a_minute_stood_still_and_nobody_slept():
    assert gaps_between(START, later(START, ran_s=60)) == (Gap("pause", 60.0),)


@given(ran_s=st.floats(0, PAUSE_S - 1), adjusted_s=st.floats(-CLOCKS_APART_S + 1, CLOCKS_APART_S - 1))
def test_clocks_that_only_run_and_are_adjusted_a_little_say_nothing(ran_s, adjusted_s):
    assert gaps_between(START, later(START, ran_s=ran_s, set_by_s=adjusted_s)) == ()


STEPS = st.tuples(
    st.floats(0.01, 1.0),  # runs
    st.one_of(st.just(0.0), st.floats(CLOCKS_APART_S + 1, 3 * DAY_S)),  # sleeps
    st.one_of(st.just(0.0), st.floats(CLOCKS_APART_S + 1, DAY_S), st.floats(-DAY_S, -CLOCKS_APART_S - 1)),  # is set
)


@given(st.lists(STEPS, max_size=30))
def test_whatever_happens_every_sleep_is_found_once_with_its_length_and_no_set_clock_is_one(steps):
    clocks, found = START, []
    for ran_s, slept_s, set_by_s in steps:
        before, clocks = clocks, later(clocks, ran_s=ran_s, slept_s=slept_s, set_by_s=set_by_s)
        found += gaps_between(before, clocks)

    sleeps = [gap.seconds for gap in found if gap.kind == "sleep"]
    settings = [gap.seconds for gap in found if gap.kind == "clock_set"]
    assert sleeps == [pytest.approx(slept_s, abs=0.01) for _, slept_s, _ in steps if slept_s]
    assert settings == [pytest.approx(set_by_s, abs=0.01) for *_, set_by_s in steps if set_by_s]
    assert not any(gap.kind == "pause" for gap in found)


def test_the_clocks_of_this_machine_run_together():
    before = read_clocks()
    time.sleep(0.05)
    after = read_clocks()

    assert gaps_between(before, after) == ()
    assert after.elapsed_s > before.elapsed_s


@pytest.mark.skipif(sys.platform != "linux", reason="the clock's name is Linux's")
def test_time_since_boot_goes_on_in_suspend_and_can_not_be_set():
    assert abs(elapsed_s() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1.0
