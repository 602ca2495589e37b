"""The figures of GET /status."""

import pytest

from engine.admission import MemoryPool
from engine.request import Stage
from engine.scheduler import Decode, Scheduler
from engine.status import Counters, admission_status, request_statuses, scheduler_status
from tests.unit.engine.conversations import a_request


def test_steps_and_tokens_are_counted_by_width():
    counters = Counters()
    counters.decoded(1, 1, 10.0)
    counters.decoded(4, 4, 12.0)
    counters.decoded(4, 3, 12.0)
    counters.prefilled(64, 100.0)

    status = scheduler_status(counters, Scheduler(max_streams=4))

    assert status.decode_batches_by_width == {"b1": 1, "b4": 2}
    assert status.decode_tokens_by_width == {"b1": 1, "b4": 7}
    assert (status.decode_batches, status.decode_wall_ms) == (3, 34.0)
    assert (status.prefill_batches, status.prefill_rows, status.prefill_wall_ms) == (1, 64, 100.0)


def test_a_status_does_not_change_when_counting_goes_on():
    counters = Counters()
    counters.decoded(1, 1, 10.0)
    status = scheduler_status(counters, Scheduler(max_streams=4))

    counters.decoded(1, 1, 10.0)

    assert status.decode_batches_by_width == {"b1": 1}


def test_the_speed_is_of_the_phase_and_leaves_out_the_first_emission():
    prefilled = a_request("p", prompt=(1,) * 500)
    prefilled.phase, prefilled.stage, prefilled.prefilled_len = "prefill", Stage(100, 10.0), 300
    decoded = a_request("d")
    decoded.phase, decoded.stage = "decode", Stage(0, 9.0)
    decoded.first_token_at, decoded.first_emission_tokens = 10.0, 3
    decoded.tokens.extend([1] * 23)

    statuses = request_statuses([prefilled, decoded, a_request("q")], now=12.0)

    assert [status.tokens_per_second for status in statuses] == [100.0, 10.0, 0.0]
    assert [status.age_ms for status in statuses] == [12_000.0] * 3


def test_the_speed_of_who_was_suspended_is_of_the_time_since_it_went_on():
    decoded = a_request("d", max_tokens=100)
    decoded.phase, decoded.stage = "decode", Stage(20, 60.0)
    decoded.first_token_at, decoded.first_emission_tokens = 10.0, 3
    decoded.tokens.extend([1] * 30)
    about_to_yield = a_request("q", prompt=(1,) * 500)
    about_to_yield.phase, about_to_yield.stage, about_to_yield.first_token_at = "queued", Stage(100, 10.0), 11.0

    statuses = request_statuses([decoded, about_to_yield], now=62.0)

    assert [status.tokens_per_second for status in statuses] == [5.0, 0.0]


@pytest.mark.parametrize(("pool_bytes", "waiting_memory"), [(250, 1), (10_000, 0)])
def test_who_waits_for_memory_is_told_from_who_waits_for_a_turn(pool_bytes, waiting_memory):
    pool = MemoryPool(pool_bytes=pool_bytes, kv_bytes_per_token=1, state_bytes_per_sequence=0)
    scheduler = Scheduler(max_streams=1 if waiting_memory == 0 else 4, pool=pool)
    for name in ("a", "b", "c"):
        scheduler.enter(a_request(name, prompt=(1,), max_tokens=200, arrived_at=5.0))
    for _ in range(6):  # the first starts, joins and decodes; then the second is looked at
        if isinstance(scheduler.next_action(5.0), Decode):
            scheduler.observe_decode(1.0)

    admission = admission_status(scheduler, now=7.0, is_draining=False)

    assert (admission.waiting, admission.waiting_memory) == (2, waiting_memory)
    assert admission.waiting_concurrency == 2 - waiting_memory
    assert admission.oldest_wait_ms == 2000.0
