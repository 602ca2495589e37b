"""When the machine must stay awake: plain calls, and any history of requests, engines and settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.power.awake import BACK_OFF_S, LINGER_S, STEADY_S, AwakePolicy, BackOff, Situation


def situation(num_requests=0, *, keep_awake="busy", has_engine=True) -> Situation:
    return Situation(keep_awake=keep_awake, has_engine=has_engine, num_requests=num_requests)


@pytest.fixture
def policy():
    return AwakePolicy()


def test_requests_keep_it_awake(policy):
    assert policy.reason(situation(1), now=0) == "requests"


def test_without_anything_to_do_it_may_sleep(policy):
    assert policy.reason(situation(), now=0) is None


def test_after_the_last_request_it_stays_awake_half_a_minute_for_the_agents_next_turn(policy):
    policy.reason(situation(1), now=100)

    assert policy.reason(situation(), now=100 + LINGER_S - 1) == "linger"
    assert policy.reason(situation(), now=100 + LINGER_S) is None


def test_requests_that_are_held_without_an_engine_keep_it_awake(policy):
    assert policy.reason(situation(3, has_engine=False), now=0) == "requests"
    assert policy.reason(situation(has_engine=False), now=1) is None


def test_loaded_means_as_long_as_an_engine_lives(policy):
    assert policy.reason(situation(keep_awake="loaded"), now=0) == "loaded"
    assert policy.reason(situation(keep_awake="loaded", has_engine=False), now=0) is None


def test_never_is_never(policy):
    assert policy.reason(situation(4, keep_awake="never"), now=0) is None


MOMENTS = st.tuples(
    st.floats(0.1, 60.0),
    st.integers(0, 2),
    st.sampled_from(["busy", "loaded", "never"]),
    st.booleans(),
)


@given(st.lists(MOMENTS, max_size=40))
def test_in_any_history_it_is_awake_for_a_reason_that_is_true_and_asleep_only_without_one(moments):
    policy, now, busy_at = AwakePolicy(), 0.0, None
    for passed_s, num_requests, keep_awake, has_engine in moments:
        now += passed_s
        busy_at = now if num_requests else busy_at

        reason = policy.reason(situation(num_requests, keep_awake=keep_awake, has_engine=has_engine), now=now)

        was_busy = busy_at is not None and now - busy_at < LINGER_S
        truth = {
            "requests": num_requests > 0,
            "loaded": keep_awake == "loaded" and has_engine,
            "linger": was_busy and has_engine,
        }
        if keep_awake == "never":
            assert reason is None
        elif reason is None:
            assert not any(truth.values())
        else:
            assert truth[reason]


def test_what_fails_at_once_again_and_again_is_tried_less_and_less_often():
    back_off, now, waits = BackOff(), 0.0, []
    for _ in range(10):
        back_off.failed(now=now)
        began = now
        while not back_off.is_over(now=now):
            now += 0.5
        waits.append(now - began)

    assert waits == [*BACK_OFF_S, *[BACK_OFF_S[-1]] * 3]


def test_one_that_lived_for_a_minute_is_replaced_after_a_second():
    back_off = BackOff()
    for _ in range(5):
        back_off.failed(now=0)

    back_off.failed(now=1000, lived_s=STEADY_S)

    assert not back_off.is_over(now=1000.5) and back_off.is_over(now=1001)
