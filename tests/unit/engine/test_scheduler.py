"""What the device does next, by plain calls: who runs, how long slices are, what streams get in between."""

import pytest

from engine.pace import FIRST_SLICE_TOKENS, LARGEST_SLICE_TOKENS
from engine.promises import SLICE_ALONE_MS, Promises
from engine.scheduler import Decode, Idle, Join, Prefill, Scheduler, Start
from tests.unit.engine.conversations import a_request
from tests.unit.engine.scheduling import DOCUMENT, decoding, next_but_decode, prompt, started


def test_an_empty_engine_is_idle():
    assert Scheduler(max_streams=4).next_action(0.0) == Idle()


def test_a_prompt_starts_is_prefilled_but_for_its_last_token_joins_and_decodes():
    scheduler = Scheduler(max_streams=4)
    request = a_request(prompt=prompt(11))
    scheduler.enter(request)

    first = scheduler.next_action(5.0)
    second = scheduler.next_action(5.1)
    scheduler.observe_prefill(request, 10, 20.0)
    third = scheduler.next_action(5.2)
    fourth = scheduler.next_action(5.3)

    assert (first, second, third, fourth) == (Start(request), Prefill(request, 10), Join(request), Decode())
    assert (request.phase, request.prefilled_len, request.prefill_began_at) == ("decode", 11, 5.0)


def test_what_was_restored_is_not_prefilled():
    scheduler = Scheduler(max_streams=4)
    request = a_request(prompt=prompt(100))
    started(scheduler, request)

    request.prefilled_len = request.cached_len = 96

    assert scheduler.next_action(0.0) == Prefill(request, 3)


@pytest.mark.parametrize(("prompt_len", "restored_len"), [(1, 0), (33, 32)])
def test_with_nothing_to_prefill_it_joins_at_once(prompt_len, restored_len):
    scheduler = Scheduler(max_streams=4)
    request = started(scheduler, a_request(prompt=prompt(prompt_len)))

    request.prefilled_len = restored_len

    assert scheduler.next_action(0.0) == Join(request)


def test_no_more_than_max_streams_run():
    scheduler = Scheduler(max_streams=2)
    decoding(scheduler, a_request("1", prompt=(1,)), a_request("2", prompt=(1,)))
    scheduler.enter(a_request("3", prompt=(1,)))

    assert scheduler.next_action(0.0) == Decode()


def test_who_waits_starts_when_a_stream_ends():
    scheduler = Scheduler(max_streams=1)
    running, waiting = a_request("1", prompt=(1,)), a_request("2", prompt=(1,))
    decoding(scheduler, running)
    scheduler.enter(waiting)

    scheduler.remove(running)

    assert scheduler.next_action(0.0) == Start(waiting)


def test_among_short_prompts_the_first_to_come_is_done_first():
    scheduler = Scheduler(max_streams=4)
    first, second = a_request("1", prompt=prompt(4000, 1)), a_request("2", prompt=prompt(10, 2))
    scheduler.enter(first)
    scheduler.enter(second)

    assert scheduler.next_action(0.0) == Start(first)
    while isinstance(action := scheduler.next_action(0.0), Prefill):
        assert action.request is first
        scheduler.observe_prefill(first, action.num_tokens, 100.0)

    assert action == Join(first)
    assert scheduler.waiting == [second]


def test_a_cancelled_request_is_forgotten_wherever_it_is():
    scheduler = Scheduler(max_streams=2)
    decodes, prefills, waits = (a_request(str(i), prompt=prompt(length, i)) for i, length in enumerate((1, 99, 1)))
    decoding(scheduler, decodes)
    started(scheduler, prefills)
    scheduler.enter(waits)

    for request in (waits, prefills, decodes):
        scheduler.remove(request)

    assert scheduler.requests == []
    assert scheduler.next_action(0.0) == Idle()


# --- slices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "max_gap_ms", "target_ms"), [(0, 500, SLICE_ALONE_MS), (1, 500, 400), (1, 200, 160)]
)
@pytest.mark.parametrize("ms_per_token", [0.3, 1.0, 2.0])
def test_slices_settle_at_the_time_that_they_may_take(others, max_gap_ms, target_ms, ms_per_token):
    scheduler = Scheduler(max_streams=4, promises=Promises(max_gap_ms=max_gap_ms))
    decoding(scheduler, *(a_request(f"d{i}", prompt=(1,)) for i in range(others)))
    request = started(scheduler, a_request(prompt=prompt(500_000)))

    taken_ms = []
    while len(taken_ms) < 40:
        num_tokens = next_but_decode(scheduler).num_tokens
        taken_ms.append(num_tokens * ms_per_token)
        scheduler.observe_prefill(request, num_tokens, taken_ms[-1])

    full = min(target_ms, LARGEST_SLICE_TOKENS * ms_per_token)
    assert 0.7 * full <= taken_ms[-1] <= target_ms
    assert all(ms <= max(target_ms, FIRST_SLICE_TOKENS * ms_per_token) for ms in taken_ms)


def test_a_slice_ends_on_a_boundary_and_never_behind_it():
    scheduler = Scheduler(max_streams=4)
    request = started(scheduler, a_request(prompt=prompt(1001)))
    request.boundaries = {96: "shared_end", 800: "message_start", 992: "prompt_end"}

    ends = []
    while isinstance(action := scheduler.next_action(0.0), Prefill):
        scheduler.observe_prefill(request, action.num_tokens, action.num_tokens * 0.5)
        ends.append(request.prefilled_len)

    assert ends[-1] == 1000
    assert {96, 800, 992} <= set(ends)


def test_a_slice_ends_on_a_block_unless_it_is_short_or_the_last():
    scheduler = Scheduler(max_streams=4)
    request = started(scheduler, a_request(prompt=prompt(5000)))
    request.prefilled_len = 5  # as after a slice that was too short

    ends = []
    while isinstance(action := scheduler.next_action(0.0), Prefill):
        scheduler.observe_prefill(request, action.num_tokens, action.num_tokens * 1.7)
        ends.append(request.prefilled_len)

    assert len(ends) > 10
    assert all(end % 32 == 0 for end in ends[:-1])
    assert ends[-1] == 4999


def test_below_two_blocks_a_slice_ends_where_its_time_does():
    scheduler = Scheduler(max_streams=4)
    request = started(scheduler, a_request(prompt=prompt(5000)))
    scheduler.observe_prefill(request, 64, 64 * 20.0)

    assert scheduler.next_action(0.0) == Prefill(request, 35)


def test_a_fast_short_prompt_does_not_stretch_the_slices_of_a_deep_one():
    scheduler = Scheduler(max_streams=4)
    decoding(scheduler, a_request("d", prompt=(1,)))
    deep = started(scheduler, a_request("deep", prompt=prompt(200_000)))
    deep.prefilled_len = 100_000
    for _ in range(6):
        scheduler.observe_prefill(deep, next_but_decode(scheduler).num_tokens, 350.0)
    before = next_but_decode(scheduler).num_tokens
    short = started(scheduler, a_request("short", prompt=prompt(4000, 2)))

    while (action := next_but_decode(scheduler)).request is short and isinstance(action, Prefill):
        scheduler.observe_prefill(short, action.num_tokens, action.num_tokens * 0.1)
    after = next_but_decode(scheduler)

    assert (action, after) == (Join(short), Prefill(deep, before))


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "window_ms"), [(0.5, 300.0), (0.75, 900.0), (0.25, 100.0)])
def test_streams_decode_after_a_slice_for_their_share_of_the_time(share, window_ms):
    scheduler = Scheduler(max_streams=4, promises=Promises(decode_share=share))
    decoding(scheduler, a_request("1", prompt=(1,)))
    long = started(scheduler, a_request("2", prompt=prompt(DOCUMENT, 2)))
    scheduler.observe_prefill(long, scheduler.next_action(0.0).num_tokens, 300.0)

    decoded_ms = 0.0
    while scheduler.next_action(0.0) == Decode():
        scheduler.observe_decode(10.0)
        decoded_ms += 10.0

    assert decoded_ms == window_ms
    assert isinstance(scheduler.next_action(0.0), Prefill)


def test_whatever_else_streams_waited_for_is_paid_back_too():
    scheduler = Scheduler(max_streams=4)
    decoding(scheduler, a_request("1", prompt=(1,)))
    long = started(scheduler, a_request("2", prompt=prompt(DOCUMENT, 2)))
    scheduler.observe_pause(40.0)
    paid_ms = 0.0
    while scheduler.next_action(0.0) == Decode():
        scheduler.observe_decode(10.0)
        paid_ms += 10.0
    scheduler.observe_prefill(long, scheduler.next_action(0.0).num_tokens, 100.0)
    scheduler.observe_pause(30.0)
    scheduler.observe_decode(10.0)
    scheduler.observe_pause(20.0)

    after_ms = 0.0
    while scheduler.next_action(0.0) == Decode():
        scheduler.observe_decode(10.0)
        after_ms += 10.0

    assert (paid_ms, after_ms) == (40.0, 140.0)


def test_without_a_share_streams_still_have_a_step_between_slices():
    scheduler = Scheduler(max_streams=4, promises=Promises(decode_share=0.0))
    decoding(scheduler, a_request("1", prompt=(1,)))
    long = started(scheduler, a_request("2", prompt=prompt(DOCUMENT, 2)))
    scheduler.observe_prefill(long, 64, 300.0)

    first = scheduler.next_action(0.0)
    scheduler.observe_decode(10.0)

    assert first == Decode()
    assert isinstance(scheduler.next_action(0.0), Prefill)


def test_who_joined_has_its_first_token_before_the_next_slice():
    scheduler = Scheduler(max_streams=4)
    long = started(scheduler, a_request("1", prompt=prompt(DOCUMENT)))
    scheduler.observe_prefill(long, 64, 100.0)
    short = started(scheduler, a_request("2", prompt=(2,)))

    assert scheduler.next_action(0.0) == Join(short)
    assert scheduler.next_action(0.0) == Decode()


def test_streams_that_waited_as_long_as_a_slice_may_take_have_a_step_before_anyone_joins():
    scheduler = Scheduler(max_streams=4)
    decoding(scheduler, a_request("1", prompt=(1,)))
    short = started(scheduler, a_request("2", prompt=prompt(65, 2)))
    scheduler.observe_prefill(short, 64, 420.0)

    first = scheduler.next_action(0.0)
    scheduler.observe_decode(10.0)

    assert (first, scheduler.next_action(0.0)) == (Decode(), Join(short))


def test_alone_a_prompt_is_prefilled_without_pauses():
    scheduler = Scheduler(max_streams=4)
    request = started(scheduler, a_request(prompt=prompt(100_000)))

    for _ in range(10):
        action = scheduler.next_action(0.0)
        assert isinstance(action, Prefill)
        scheduler.observe_prefill(request, action.num_tokens, 300.0)


def test_nothing_is_owed_to_streams_that_ended():
    scheduler = Scheduler(max_streams=4)
    stream = a_request("1", prompt=(1,))
    decoding(scheduler, stream)
    long = started(scheduler, a_request("2", prompt=prompt(DOCUMENT, 2)))
    scheduler.observe_prefill(long, 64, 300.0)

    scheduler.remove(stream)

    assert isinstance(scheduler.next_action(0.0), Prefill)
