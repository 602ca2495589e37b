"""Verdicts on memory: start, wait, take turns, or end with the numbers."""

import pytest

from engine.admission import MemoryPool
from engine.scheduler import Decode, Idle, Prefill, Refuse, Scheduler, Start, Suspend
from tests.unit.engine.conversations import a_request
from tests.unit.engine.scheduling import DOCUMENT, POOL, decoding, next_but_decode, prompt, slices, started


def test_a_request_that_can_never_fit_is_refused_with_numbers():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    request = a_request(prompt=prompt(1500), max_tokens=1)
    scheduler.enter(request)

    action = scheduler.next_action(0.0)

    assert isinstance(action, Refuse) and action.request is request
    assert (action.error.needed_bytes, action.error.pool_bytes, action.error.retryable) == (15_010, 10_000, False)


def test_who_can_never_fit_is_told_at_once_also_from_the_end_of_the_line():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    started(scheduler, a_request("1", prompt=prompt(900)))
    scheduler.enter(a_request("2", prompt=prompt(800, 2)))
    hopeless = a_request("3", prompt=prompt(1500, 3))
    scheduler.enter(hopeless)

    action = scheduler.next_action(0.0)
    scheduler.remove(hopeless)

    assert isinstance(action, Refuse) and action.request is hopeless
    assert isinstance(scheduler.next_action(0.0), Prefill)


def test_a_prompt_that_fits_is_started_though_its_longest_answer_would_not():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    request = started(scheduler, a_request(prompt=prompt(999), max_tokens=30_000))

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
    assert action.error.message == "Out of memory: the request would need 10,010 bytes of a pool of 10,000."


def test_a_request_that_does_not_fit_now_waits_and_all_behind_it_wait_too():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    decoding(scheduler, a_request("1", prompt=(1,), max_tokens=200))
    second, third = (a_request(str(i), prompt=prompt(length, i), max_tokens=1) for i, length in ((2, 900), (3, 1)))
    scheduler.enter(second)
    scheduler.enter(third)

    blocked = scheduler.next_action(0.0)
    is_blocked = scheduler.is_blocked_by_memory
    scheduler.remove(scheduler.decoding[0])
    freed = scheduler.next_action(0.0)

    assert (blocked, is_blocked) == (Decode(), True)
    assert freed == Start(second)
    assert not scheduler.is_blocked_by_memory


def test_who_was_blocked_by_memory_blocks_nobody_once_gone():
    scheduler = Scheduler(max_streams=2, pool=POOL)
    decoding(scheduler, a_request("1", prompt=(1,), max_tokens=200))
    blocked = a_request("2", prompt=prompt(900, 2), max_tokens=1)
    scheduler.enter(blocked)
    scheduler.next_action(0.0)
    was_blocked = scheduler.is_blocked_by_memory

    scheduler.remove(blocked)

    assert was_blocked
    assert not scheduler.is_blocked_by_memory


def test_what_running_requests_leave_is_the_caches():
    scheduler = Scheduler(max_streams=4, pool=MemoryPool(10_000, kv_bytes_per_token=10, state_bytes_per_sequence=100))
    request = started(scheduler, a_request(prompt=prompt(100), max_tokens=50))

    running = scheduler.free_for_cache_bytes
    scheduler.set_pool_bytes(1000)
    pressed = scheduler.free_for_cache_bytes
    scheduler.remove(request)

    assert (running, pressed, scheduler.free_for_cache_bytes) == (10_000 - 200 - 1500, 0, 1000)


# --- growing -------------------------------------------------------------------------------------------------------


def test_beside_others_a_row_grows_by_what_is_left():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    old, young = a_request("1", prompt=(1,), max_tokens=5000), a_request("2", prompt=(2,), max_tokens=600)
    decoding(scheduler, old, young)
    young.tokens.extend([1] * 256)
    scheduler.next_action(0.0)
    old.tokens.extend([1] * 256)

    action = scheduler.next_action(0.0)

    assert action == Decode()
    assert (old.room_len, young.room_len) == (487, 513)


def outgrown():
    """Two streams, and the older one needs what the younger one has."""
    scheduler = Scheduler(max_streams=4, pool=POOL)
    old, young = a_request("1", prompt=(1,), max_tokens=5000), a_request("2", prompt=(2,), max_tokens=5000)
    decoding(scheduler, old, young)
    young.tokens.extend([1] * 10)
    old.tokens.extend([1] * 742)
    return scheduler, old, young


def test_when_nothing_is_left_the_youngest_stream_gives_its_memory_back():
    scheduler, old, young = outgrown()

    action = scheduler.next_action(0.0)

    assert action == Suspend(young)
    assert (young.phase, young.is_suspended, young.prefilled_len, young.room_len) == ("queued", True, 0, 0)
    assert scheduler.next_action(0.0) == Decode()
    assert (scheduler.decoding, scheduler.waiting, scheduler.suspensions) == ([old], [young], 1)


def test_the_suspended_goes_on_where_it_was_when_there_is_room():
    scheduler, old, young = outgrown()
    scheduler.next_action(0.0)
    scheduler.remove(old)

    action = scheduler.next_action(7.0)
    first_slice = scheduler.next_action(7.0)

    assert action == Start(young)
    assert (young.is_suspended, young.was_suspended, scheduler.resumptions) == (False, True, 1)
    assert young.room_len == 11 + 256
    assert young.prefill_began_at == 0.0
    assert first_slice == Prefill(young, 10)  # the prompt and what it said, but for the last


def test_nobody_new_starts_before_the_suspended():
    scheduler, old, young = outgrown()
    new = a_request("3", prompt=(3,), max_tokens=1)
    scheduler.enter(new)
    scheduler.next_action(0.0)

    while_short = [next_but_decode(scheduler), scheduler.is_blocked_by_memory]
    scheduler.remove(old)

    assert while_short == [Decode(), True]
    assert scheduler.waiting == [young, new]
    assert next_but_decode(scheduler) == Start(young)


@pytest.mark.parametrize(("others_room", "starts"), [(477, True), (478, False)])
def test_the_suspended_starts_only_with_room_for_one_growth_more(others_room, starts):
    scheduler, old, young = outgrown()
    scheduler.next_action(0.0)
    old.tokens.clear()
    old.room_len = others_room  # of 1000: the suspended needs 11 + 256, and 256 more

    assert (next_but_decode(scheduler) == Start(young)) is starts


def test_a_prefill_gives_way_before_a_stream_and_batch_before_interactive():
    scheduler = Scheduler(max_streams=5, pool=POOL)
    stream = a_request("stream", prompt=(1,), max_tokens=5000)
    batch_stream = a_request("batch stream", prompt=(2,), max_tokens=200, request_class="batch")
    late_stream = a_request("late stream", prompt=(5,), max_tokens=200)
    decoding(scheduler, stream, batch_stream, late_stream)
    batch = started(scheduler, a_request("batch", prompt=prompt(150, 3), max_tokens=1, request_class="batch"))
    interactive = started(scheduler, a_request("interactive", prompt=prompt(150, 4), max_tokens=1))

    suspended = []
    while len(suspended) < 4:
        action = scheduler.next_action(0.0)
        if isinstance(action, Suspend):
            suspended.append(action.request)
        else:
            stream.tokens.append(1)

    assert suspended == [batch, interactive, batch_stream, late_stream]


def test_who_needs_more_gives_way_itself_when_it_is_the_youngest():
    scheduler, old, young = outgrown()
    old.tokens.clear()
    old.room_len = 257
    young.tokens.extend([1] * 742)

    assert scheduler.next_action(0.0) == Suspend(young)


def test_an_interactive_prompt_takes_the_memory_of_batch_that_it_goes_before():
    pool = MemoryPool(30_000, kv_bytes_per_token=1, state_bytes_per_sequence=0)
    scheduler = Scheduler(max_streams=4, pool=pool)
    batch = started(scheduler, a_request("batch", prompt=prompt(DOCUMENT), request_class="batch"))
    interactive = a_request("interactive", prompt=prompt(DOCUMENT, 2))
    scheduler.enter(interactive)

    first, second = scheduler.next_action(0.0), scheduler.next_action(0.0)
    scheduler.remove(interactive)

    assert (first, second) == (Suspend(batch), Start(interactive))
    assert batch.num_overtaken == 1
    assert scheduler.next_action(0.0) == Start(batch)


def test_batch_is_not_suspended_when_that_would_not_be_enough():
    pool = MemoryPool(30_000, kv_bytes_per_token=1, state_bytes_per_sequence=0)
    scheduler = Scheduler(max_streams=4, pool=pool)
    decoding(scheduler, a_request("stream", prompt=(9,), max_tokens=100))
    batch = started(scheduler, a_request("batch", prompt=prompt(DOCUMENT), request_class="batch"))
    scheduler.enter(a_request("interactive", prompt=prompt(29_950, 2)))

    assert slices(scheduler, 2) == [batch] * 2
    assert scheduler.is_blocked_by_memory


# --- the pool changes ----------------------------------------------------------------------------------------------


def test_when_the_pool_shrinks_the_youngest_give_way_until_the_rest_fits():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    streams = [a_request(str(i), prompt=(i,), max_tokens=200) for i in range(3)]
    decoding(scheduler, *streams)

    scheduler.set_pool_bytes(2100)

    assert [scheduler.next_action(0.0) for _ in range(3)] == [Suspend(streams[2]), Suspend(streams[1]), Decode()]


def test_alone_a_request_keeps_what_it_has_and_fails_as_retryable_when_it_needs_more():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    request = a_request(prompt=(1,), max_tokens=5000)
    decoding(scheduler, request)
    scheduler.set_pool_bytes(100)

    goes_on = scheduler.next_action(0.0)
    request.tokens.extend([1] * 256)
    action = scheduler.next_action(0.0)

    assert goes_on == Decode()
    assert isinstance(action, Refuse) and action.error.retryable


def test_who_fits_the_plan_but_not_what_is_left_of_it_waits_for_others_and_not_for_ever():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    stream, large = a_request("1", prompt=(1,), max_tokens=10), a_request("2", prompt=prompt(900, 2))
    decoding(scheduler, stream)
    scheduler.set_pool_bytes(5000)
    scheduler.enter(large)

    waits = next_but_decode(scheduler)
    scheduler.remove(stream)
    action = scheduler.next_action(0.0)
    scheduler.set_pool_bytes(10_000)

    assert waits == Decode()
    assert isinstance(action, Refuse) and action.error.retryable
    assert scheduler.next_action(0.0) == Start(large)


def test_padded_each_request_costs_as_much_as_the_longest():
    scheduler = Scheduler(max_streams=4, pool=POOL)
    scheduler.set_model(needs_snapshots=False, is_padded=True, is_cache_on=True)
    decoding(scheduler, a_request("1", prompt=(1,), max_tokens=200))
    scheduler.enter(a_request("2", prompt=prompt(499, 2), max_tokens=2))

    too_long = next_but_decode(scheduler)
    scheduler.remove(scheduler.waiting[0])
    scheduler.enter(a_request("3", prompt=prompt(499, 3), max_tokens=1))

    assert too_long == Decode()
    assert isinstance(next_but_decode(scheduler), Start)
    assert scheduler.free_for_cache_bytes == 0


def test_the_engine_is_idle_once_the_suspended_left_too():
    scheduler, old, young = outgrown()
    scheduler.next_action(0.0)

    scheduler.remove(young)
    scheduler.remove(old)

    assert scheduler.next_action(0.0) == Idle()
