"""When a live engine counts as stuck: plain calls with statuses and times, as the supervisor makes them."""

import pytest

from control.wedge import WedgeWatch
from engine import wire
from tests.unit.control_lifecycle.scene import status

RUNNING = wire.RequestStatus(
    id="a",
    phase="decode",
    request_class="interactive",
    prompt_tokens=10,
    cached_tokens=0,
    prefilled_tokens=10,
    output_tokens=3,
    tokens_per_second=1.0,
    age_ms=1.0,
)
QUEUED = wire.RequestStatus(
    id="b",
    phase="queued",
    request_class="interactive",
    prompt_tokens=10,
    cached_tokens=0,
    prefilled_tokens=0,
    output_tokens=0,
    tokens_per_second=0.0,
    age_ms=1.0,
)


def at(now: float, *requests, completed: int = 1, **more) -> wire.Status:
    """As a worker publishes that is alive."""
    counts = wire.RequestCounts(submitted=completed + len(requests), completed=completed)
    return status(**{"sampled_monotonic_s": now, "requests": requests, "request_counts": counts} | more)


def answers(watch: WedgeWatch, seconds: int, make, *, num_sent: int = 0, every_s: int = 1) -> tuple[int, str] | None:
    """Attempts until the first verdict: when it came, and what it says."""
    for now in range(0, seconds + 1, every_s):
        verdict = watch.answered(make(now), num_sent=num_sent, now=now)
        if verdict is not None:
            return now, verdict
    return None


def silence(watch: WedgeWatch, moments, *, is_loading: bool = False) -> tuple[int, str] | None:
    for now in moments:
        verdict = watch.unanswered(is_loading=is_loading, now=now)
        if verdict is not None:
            return now, verdict
    return None


def test_an_engine_that_answers_nothing_for_thirty_seconds_is_stuck():
    watch = WedgeWatch()
    watch.answered(at(0), num_sent=0, now=0)

    when, verdict = silence(watch, range(6, 100, 6))

    assert when == 30
    assert verdict == "The engine did not answer for 30 s, though it lived, and was killed."


def test_while_it_loads_silence_is_borne_for_five_minutes():
    watch = WedgeWatch()

    verdict = silence(watch, range(0, 1000, 6), is_loading=True)

    assert verdict is not None and verdict[0] == 300


def test_one_answer_ends_a_silence():
    watch = WedgeWatch()

    before = silence(watch, range(0, 30, 6))
    watch.answered(at(30), num_sent=0, now=30)
    after = silence(watch, range(36, 60, 6))

    assert (before, after) == (None, None)


@pytest.mark.parametrize("nap_s", [16, 3600, 8 * 3600])
def test_a_machine_that_slept_proves_nothing_by_its_silence(nap_s):
    watch = WedgeWatch()
    watch.answered(at(0), num_sent=0, now=0)

    verdict = silence(watch, range(nap_s, 10 * nap_s, nap_s))

    assert verdict is None


def test_after_a_nap_silence_counts_from_the_awakening():
    watch = WedgeWatch()
    watch.answered(at(0), num_sent=0, now=0)

    when, _ = silence(watch, range(3600, 3700, 6))

    assert when == 3600 + 30


def test_a_request_that_gets_no_step_for_a_minute_is_a_stall():
    when, verdict = answers(WedgeWatch(), 100, lambda now: at(now, RUNNING, steps=7))

    assert when == 60
    assert verdict == "The engine made no step for 60 s, though it had 1 request to work on, and was killed."


def test_a_machine_that_slept_while_a_request_ran_is_not_stalled():
    verdict = answers(WedgeWatch(), 36_000, lambda now: at(now, RUNNING, steps=7), every_s=600)

    assert verdict is None


def test_before_its_first_request_is_done_a_model_may_compile_for_five_minutes():
    verdict = answers(WedgeWatch(), 1000, lambda now: at(now, RUNNING, steps=1, completed=0))

    assert verdict is not None and verdict[0] == 300


@pytest.mark.parametrize(
    "moved",
    [
        lambda now: at(now, RUNNING, steps=now // 50),
        lambda now: at(now, RUNNING, completed=1 + now // 50),
        lambda now: at(now, RUNNING, request_counts=wire.RequestCounts(completed=1, failed=now // 50)),
    ],
)
def test_a_step_or_an_end_every_fifty_seconds_is_progress(moved):
    assert answers(WedgeWatch(), 1000, moved) is None


@pytest.mark.parametrize(
    "unmoved",
    [
        lambda now: at(now, RUNNING, request_counts=wire.RequestCounts(completed=1, submitted=now)),
        lambda now: at(now, RUNNING, request_counts=wire.RequestCounts(completed=1, cancelled=now)),
        lambda now: at(now, QUEUED),
        lambda now: at(now, RUNNING, QUEUED, admission=wire.Admission(waiting=1, waiting_memory=1)),
    ],
)
def test_requests_that_come_go_or_wait_are_no_progress(unmoved):
    assert answers(WedgeWatch(), 100, unmoved) is not None


def test_an_engine_without_work_is_never_stalled():
    assert answers(WedgeWatch(), 1000, lambda now: at(now)) is None


def test_a_client_that_reads_slowly_is_no_work_for_the_engine():
    assert answers(WedgeWatch(), 1000, lambda now: at(now), num_sent=1) is None


def test_waiting_for_memory_is_no_stall_as_long_as_the_worker_publishes():
    waits = wire.Admission(waiting=1, waiting_memory=1)

    alive = answers(WedgeWatch(), 1000, lambda now: at(now, QUEUED, admission=waits))
    mute = answers(WedgeWatch(), 1000, lambda now: at(0, QUEUED, admission=waits))

    assert alive is None
    assert mute is not None


def test_a_worker_that_does_not_even_take_what_control_sent_is_stalled():
    when, verdict = answers(WedgeWatch(), 100, lambda now: at(0), num_sent=2)

    assert when == 60
    assert "2 requests" in verdict


def test_a_mute_worker_without_any_work_is_left_alone():
    assert answers(WedgeWatch(), 1000, lambda now: at(0)) is None


def test_a_loading_engine_is_not_asked_for_steps():
    assert answers(WedgeWatch(), 1000, lambda now: at(0, RUNNING, ready=False, state="loading")) is None


def test_what_was_seen_of_one_process_does_not_count_against_the_next():
    watch = WedgeWatch()
    answers(watch, 59, lambda now: at(now, RUNNING))

    watch.forget()

    assert answers(watch, 59, lambda now: at(now, RUNNING)) is None


def test_a_text_side_that_is_at_one_thing_for_a_minute_is_stuck():
    watch = WedgeWatch()

    found = answers(watch, 300, lambda now: at(now, text_busy_s=float(now)))

    assert found == (60, "The engine prepared one request for 60 s, and was killed.")


def test_a_text_side_that_does_one_thing_after_another_is_not_stuck():
    watch = WedgeWatch()

    assert answers(watch, 300, lambda now: at(now, text_busy_s=float(now % 50))) is None


def test_a_text_side_is_not_stuck_for_the_time_in_which_nobody_looked():
    watch = WedgeWatch()
    watch.answered(at(0, text_busy_s=1.0), num_sent=0, now=0)

    assert watch.answered(at(1000, text_busy_s=1001.0), num_sent=0, now=1000) is None


def test_what_a_loading_engine_prepares_counts_as_loading():
    watch = WedgeWatch()

    assert answers(watch, 200, lambda now: at(now, state="loading", ready=False, text_busy_s=float(now))) is None
