"""What the device does next, by plain calls: nobody lost, nobody starved, slices bounded, memory kept."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.admission import MemoryPool
from engine.scheduler import (
    BATCH_PATIENCE_S,
    FIRST_SLICE_TOKENS,
    LARGEST_SLICE_TOKENS,
    SLICE_ALONE_MS,
    SLICE_WHILE_DECODING_MS,
    SMALLEST_SLICE_TOKENS,
    Decode,
    Idle,
    Join,
    Prefill,
    Refuse,
    Scheduler,
)
from tests.unit.engine.conversations import a_request

POOL = MemoryPool(pool_bytes=10_000, kv_bytes_per_token=10, state_bytes_per_sequence=0)


def long_prompt(num_tokens: int) -> tuple[int, ...]:
    return (1,) * num_tokens


def decoding(scheduler: Scheduler, *requests) -> None:
    """Bring requests with prompts of one token to decoding."""
    for request in requests:
        scheduler.enter(request)
        assert scheduler.next_action(0.0) == Join(request)


def test_an_empty_engine_is_idle():
    assert Scheduler(max_streams=4).next_action(0.0) == Idle()


def test_a_prompt_is_prefilled_but_for_its_last_token_then_joins_then_decodes():
    scheduler = Scheduler(max_streams=4)
    request = a_request(prompt=long_prompt(11))
    scheduler.enter(request)

    first = scheduler.next_action(5.0)
    scheduler.observe_prefill(request, 10, 20.0)
    second = scheduler.next_action(5.1)
    third = scheduler.next_action(5.2)

    assert (first, second, third) == (Prefill(request, 10), Join(request), Decode())
    assert (request.phase, request.prefilled_len, request.prefill_began_at) == ("decode", 11, 5.0)


def test_a_prompt_of_one_token_joins_at_once():
    scheduler = Scheduler(max_streams=4)
    request = a_request(prompt=(7,))
    scheduler.enter(request)

    assert scheduler.next_action(0.0) == Join(request)


def test_one_prompt_is_prefilled_at_a_time():
    scheduler = Scheduler(max_streams=4)
    first, second = a_request("1", prompt=long_prompt(5000)), a_request("2", prompt=long_prompt(10))
    scheduler.enter(first)
    scheduler.enter(second)

    while isinstance(action := scheduler.next_action(0.0), Prefill):
        assert action.request is first
        scheduler.observe_prefill(first, action.num_tokens, 100.0)

    assert action == Join(first)
    assert scheduler.waiting == [second]


def test_no_more_than_max_streams_run():
    scheduler = Scheduler(max_streams=2)
    decoding(scheduler, a_request("1", prompt=(1,)), a_request("2", prompt=(1,)))
    scheduler.enter(a_request("3", prompt=(1,)))

    assert scheduler.next_action(0.0) == Decode()


def test_who_waits_is_admitted_when_a_stream_ends():
    scheduler = Scheduler(max_streams=1)
    running, waiting = a_request("1", prompt=(1,)), a_request("2", prompt=(1,))
    decoding(scheduler, running)
    scheduler.enter(waiting)

    scheduler.remove(running)

    assert scheduler.next_action(0.0) == Join(waiting)


def test_interactive_goes_before_batch_and_in_order_within_a_class():
    scheduler = Scheduler(max_streams=4)
    line = [
        a_request("b1", prompt=(1,), request_class="batch"),
        a_request("i1", prompt=(1,)),
        a_request("b2", prompt=(1,), request_class="batch"),
        a_request("i2", prompt=(1,)),
    ]
    for request in line:
        scheduler.enter(request)

    order = [scheduler.next_action(0.0).request.id for _ in line]

    assert order == ["i1", "i2", "b1", "b2"]


def test_batch_that_waited_long_enough_goes_before_interactive():
    scheduler = Scheduler(max_streams=4)
    patient = a_request("b", prompt=(1,), request_class="batch", arrived_at=0.0)
    scheduler.enter(patient)
    scheduler.enter(a_request("i", prompt=(1,), arrived_at=BATCH_PATIENCE_S))

    assert scheduler.next_action(BATCH_PATIENCE_S) == Join(patient)


@pytest.mark.parametrize(("share", "window_ms"), [(0.5, 300.0), (0.75, 900.0), (0.25, 100.0)])
def test_streams_decode_after_a_slice_for_their_share_of_the_time(share, window_ms):
    scheduler = Scheduler(max_streams=4, share=share)
    decoding(scheduler, a_request("1", prompt=(1,)))
    long = a_request("2", prompt=long_prompt(100_000))
    scheduler.enter(long)
    scheduler.observe_prefill(long, scheduler.next_action(0.0).num_tokens, 300.0)

    decoded_ms = 0.0
    while scheduler.next_action(0.0) == Decode():
        scheduler.observe_decode(10.0)
        decoded_ms += 10.0

    assert decoded_ms == window_ms
    assert isinstance(scheduler.next_action(0.0), Prefill)


def test_alone_a_prompt_is_prefilled_without_pauses():
    scheduler = Scheduler(max_streams=4)
    request = a_request(prompt=long_prompt(100_000))
    scheduler.enter(request)

    for _ in range(10):
        action = scheduler.next_action(0.0)
        assert isinstance(action, Prefill)
        scheduler.observe_prefill(request, action.num_tokens, 300.0)


@pytest.mark.parametrize(("others", "target_ms"), [(0, SLICE_ALONE_MS), (1, SLICE_WHILE_DECODING_MS)])
@pytest.mark.parametrize("ms_per_token", [0.3, 2.0, 7.0])
def test_slices_settle_at_the_time_that_they_may_take(others, target_ms, ms_per_token):
    scheduler = Scheduler(max_streams=4)
    decoding(scheduler, *(a_request(f"d{i}", prompt=(1,)) for i in range(others)))
    request = a_request(prompt=long_prompt(1_000_000))
    scheduler.enter(request)

    taken_ms = []
    while len(taken_ms) < 12:
        match scheduler.next_action(0.0):
            case Prefill(_, num_tokens):
                taken_ms.append(num_tokens * ms_per_token)
                scheduler.observe_prefill(request, num_tokens, taken_ms[-1])
            case Decode():
                scheduler.observe_decode(50.0)

    full = min(target_ms, LARGEST_SLICE_TOKENS * ms_per_token)
    assert 0.85 * full <= taken_ms[-1] <= target_ms
    assert all(ms <= max(target_ms, FIRST_SLICE_TOKENS * ms_per_token) for ms in taken_ms)


def test_a_request_that_can_never_fit_is_refused_with_numbers():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    request = a_request(prompt=long_prompt(1500), max_tokens=1)
    scheduler.enter(request)

    action = scheduler.next_action(0.0)

    assert isinstance(action, Refuse) and action.request is request
    assert (action.error.needed_bytes, action.error.pool_bytes, action.error.retryable) == (15_010, 10_000, False)


def test_a_prompt_that_fits_is_admitted_though_its_longest_answer_would_not():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    request = a_request(prompt=long_prompt(999), max_tokens=30_000)
    scheduler.enter(request)

    assert isinstance(scheduler.next_action(0.0), Prefill)
    assert request.room_len == 1000


def test_alone_a_request_says_as_much_as_the_pool_holds_and_then_fails_with_numbers():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    request = a_request(prompt=(1,), max_tokens=30_000)
    decoding(scheduler, request)

    while (action := scheduler.next_action(0.0)) == Decode():
        request.tokens.append(1)

    assert isinstance(action, Refuse) and action.request is request
    assert len(request.tokens) == 999
    assert (action.error.needed_bytes, action.error.pool_bytes, action.error.retryable) == (10_010, 10_000, False)
    assert action.error.message == "out of memory: the request would need 10,010 bytes of a pool of 10,000"


def test_a_request_that_does_not_fit_now_waits_and_all_behind_it_wait_too():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    large = a_request("1", prompt=(1,), max_tokens=200)
    decoding(scheduler, replace(large))
    second, third = a_request("2", prompt=long_prompt(900), max_tokens=1), a_request("3", prompt=(1,), max_tokens=1)
    scheduler.enter(second)
    scheduler.enter(third)

    blocked = scheduler.next_action(0.0)
    is_blocked = scheduler.is_blocked_by_memory
    scheduler.remove(scheduler.decoding[0])
    freed = scheduler.next_action(0.0)

    assert (blocked, is_blocked) == (Decode(), True)
    assert isinstance(freed, Prefill) and freed.request is second
    assert not scheduler.is_blocked_by_memory


def test_who_was_blocked_by_memory_blocks_nobody_once_gone():
    scheduler = Scheduler(max_streams=2, pool=POOL)
    decoding(scheduler, a_request("1", prompt=(1,), max_tokens=200))
    blocked = a_request("2", prompt=long_prompt(900), max_tokens=1)
    scheduler.enter(blocked)
    scheduler.next_action(0.0)
    was_blocked = scheduler.is_blocked_by_memory

    scheduler.remove(blocked)

    assert was_blocked
    assert not scheduler.is_blocked_by_memory


def test_beside_others_a_row_grows_by_what_is_left():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    old, young = a_request("1", prompt=(1,), max_tokens=5000), a_request("2", prompt=(1,), max_tokens=600)
    decoding(scheduler, old, young)
    young.tokens.extend([1] * 256)
    scheduler.next_action(0.0)
    old.tokens.extend([1] * 256)

    action = scheduler.next_action(0.0)

    assert action == Decode()
    assert (old.room_len, young.room_len) == (487, 513)


def test_when_running_requests_outgrow_the_pool_the_youngest_fails_and_may_be_tried_again():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    old, young = a_request("1", prompt=(1,), max_tokens=5000), a_request("2", prompt=(1,), max_tokens=5000)
    decoding(scheduler, old, young)
    old.tokens.extend([1] * 750)

    action = scheduler.next_action(0.0)

    assert isinstance(action, Refuse) and action.request is young
    assert action.error.retryable
    assert "all running requests" in action.error.message


def test_a_cancelled_request_is_forgotten_wherever_it_is():
    scheduler = Scheduler(max_streams=1)
    decodes = a_request("1", prompt=(1,))
    decoding(scheduler, decodes)
    waits = a_request("2", prompt=(1,))
    scheduler.enter(waits)

    scheduler.remove(waits)
    scheduler.remove(decodes)

    assert scheduler.requests == []
    assert scheduler.next_action(0.0) == Idle()


REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 3000),  # prompt
        st.integers(1, 40),  # max_tokens
        st.sampled_from(["interactive", "batch"]),
        st.floats(0, 20),  # arrives at this second
        st.one_of(st.none(), st.floats(0, 30)),  # cancelled at this second
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(
    described=REQUESTS,
    max_streams=st.integers(1, 4),
    ms_per_token=st.floats(0.05, 20),
    step_ms=st.floats(1, 100),
    pool_bytes=st.integers(100, 60_000),
)
def test_every_request_ends_once_and_no_slice_is_longer_than_it_may_be(
    described, max_streams, ms_per_token, step_ms, pool_bytes
):
    pool = MemoryPool(pool_bytes=pool_bytes, kv_bytes_per_token=10, state_bytes_per_sequence=50)
    scheduler = Scheduler(max_streams=max_streams, pool=pool)
    to_come = [
        (at, a_request(str(i), prompt=(1,) * length, max_tokens=most, request_class=kind, arrived_at=at), cancelled_at)
        for i, (length, most, kind, at, cancelled_at) in enumerate(described)
    ]
    everyone = [request for _, request, _ in to_come]
    ended: list[str] = []
    now, has_measured = 0.0, False

    def end(request):
        scheduler.remove(request)
        ended.append(request.id)

    for _ in range(200_000):
        for entry in [e for e in to_come if e[0] <= now]:
            to_come.remove(entry)
            scheduler.enter(entry[1])
        for (*_, cancelled_at), request in zip(described, everyone, strict=True):
            if cancelled_at is not None and cancelled_at <= now and request in scheduler.requests:
                end(request)
        assert len(scheduler.running) <= max_streams
        assert pool.used_bytes(scheduler.running) <= pool.pool_bytes
        match scheduler.next_action(now):
            case Prefill(request, num_tokens):
                target_ms = SLICE_WHILE_DECODING_MS if scheduler.decoding else SLICE_ALONE_MS
                assert 1 <= num_tokens <= request.prompt_len - 1 - request.prefilled_len
                smallest = SMALLEST_SLICE_TOKENS if has_measured else FIRST_SLICE_TOKENS
                assert num_tokens <= smallest or num_tokens * ms_per_token <= target_ms * 1.001
                has_measured = True
                now += num_tokens * ms_per_token / 1000
                scheduler.observe_prefill(request, num_tokens, num_tokens * ms_per_token)
            case Join(request):
                assert request.prefilled_len == request.prompt_len
            case Decode():
                now += step_ms / 1000
                scheduler.observe_decode(step_ms)
                for request in list(scheduler.decoding):
                    request.tokens.append(1)
                    assert request.prompt_len + len(request.tokens) <= request.room_len
                    if len(request.tokens) == request.max_tokens:
                        end(request)
            case Refuse(request, error):
                assert error.needed_bytes > error.pool_bytes
                end(request)
            case Idle():
                assert not scheduler.requests
                if not to_come:
                    break
                now = min(at for at, *_ in to_come)
    else:
        raise AssertionError("not everyone ended")

    assert sorted(ended) == sorted(request.id for request in everyone)
