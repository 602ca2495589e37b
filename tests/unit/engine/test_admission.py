"""What a request takes of the memory pool, and how it grows into what is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admission import BOUNDLESS, MemoryPool, first_room, growth_tokens
from engine.memory import RUNNING_STREAMS
from engine.scheduler import Decode, Join, Prefill, Scheduler, Start
from tests.unit.engine.conversations import a_request

POOL = MemoryPool(pool_bytes=10_000, kv_bytes_per_token=10, state_bytes_per_sequence=250)  # two states each


def running(room_len, *, prompt_len=100, max_tokens=100_000):
    request = a_request(prompt=(1,) * prompt_len, max_tokens=max_tokens)
    request.room_len = room_len
    return request


@pytest.mark.parametrize(
    ("length", "growth"), [(0, 256), (2048, 256), (2049, 512), (8192, 1024), (30_000, 4096), (262_144, 4096)]
)
def test_a_row_grows_by_about_an_eighth_of_its_length(length, growth):
    assert growth_tokens(length) == growth


def test_room_is_made_for_the_prompt_and_what_may_come_first():
    assert first_room(100, 50) == 150
    assert first_room(100, 100_000) == 356


def test_the_turns_of_an_agent_mostly_use_buffers_of_the_same_size():
    rooms = {first_room(input_len, 4000) for input_len in range(50_000, 60_000, 500)}

    assert rooms == set(range(53_248, 63_489, 2048))


@given(input_len=st.integers(1, 300_000), max_tokens=st.integers(1, 300_000))
def test_a_row_starts_with_room_for_its_prompt_and_a_token_and_with_no_more_than_one_growth_over(input_len, max_tokens):
    assert input_len < first_room(input_len, max_tokens) <= input_len + growth_tokens(input_len)


def test_the_largest_room_is_what_two_states_leave_of_the_pool():
    assert POOL.largest_room == 950


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "room_len"),
    [(100, 50, 150), (100, 100_000, 356), (800, 100_000, 950), (949, 100_000, 950), (950, 1, 950), (2000, 1, 950)],
)
def test_a_request_starts_with_its_room_or_with_all_that_the_pool_can_hold(prompt_len, max_tokens, room_len):
    assert POOL.room_of(a_request(prompt=(1,) * prompt_len, max_tokens=max_tokens)) == room_len


def test_running_requests_take_their_state_and_their_room():
    assert POOL.used_bytes([running(150), running(356)]) == 500 + 1500 + 500 + 3560


def test_a_full_row_grows_by_its_growth_by_what_it_may_still_say_or_by_what_is_left():
    roomy = running(356)
    short = running(356, max_tokens=300)
    beside = running(500)

    assert POOL.growth_of(roomy, [roomy]) == 256
    assert POOL.growth_of(short, [short]) == 44
    assert POOL.growth_of(roomy, [roomy, beside]) == 44
    assert POOL.growth_of(roomy, [roomy, running(544)]) == 0


def test_alone_a_request_grows_until_the_pool_is_full_and_not_a_token_less():
    request = running(356)

    while growth := POOL.growth_of(request, [request]):
        request.room_len += growth

    assert POOL.used_bytes([request]) == POOL.pool_bytes


def test_a_pool_without_bounds_refuses_nobody():
    request = running(10**9, max_tokens=2 * 10**9)

    assert BOUNDLESS.room_of(request) == 356
    assert BOUNDLESS.growth_of(request, [request] * 1000) == 4096
    assert BOUNDLESS.used_bytes([request] * 1000) <= BOUNDLESS.pool_bytes


def test_a_sequence_whose_states_alone_are_larger_than_the_pool_has_no_room():
    assert MemoryPool(pool_bytes=499, kv_bytes_per_token=10, state_bytes_per_sequence=250).largest_room == 0


@pytest.mark.parametrize(("prompt_len", "fits"), [(949, True), (950, False)])
def test_a_pool_can_hold_a_request_with_room_for_one_token_more(prompt_len, fits):
    assert POOL.can_hold(a_request(prompt=(1,) * prompt_len)) is fits


def test_what_was_generated_needs_room_like_the_prompt_when_a_request_goes_on():
    request = a_request(prompt=(1,) * 100, max_tokens=60)
    request.tokens.extend([1] * 50)

    assert POOL.room_of(request) == 160


def test_a_row_fits_beside_others_to_the_last_byte():
    assert POOL.fits(400, beside=[running(500)])
    assert not POOL.fits(401, beside=[running(500)])


PADDED = MemoryPool(pool_bytes=10_000, kv_bytes_per_token=10, state_bytes_per_sequence=250, is_padded=True)


def test_padded_every_row_takes_as_much_as_the_longest():
    assert PADDED.used_bytes([running(100), running(400)]) == 2 * (500 + 4000)
    assert PADDED.used_bytes([]) == 0
    assert PADDED.fits(450, beside=[running(100)])
    assert not PADDED.fits(451, beside=[running(100)])


def test_padded_a_row_that_is_not_the_longest_grows_for_nothing_and_the_longest_for_all():
    short, long = running(100), running(400)

    assert PADDED.growth_of(short, [short, long]) == 256
    assert PADDED.growth_of(long, [short, long]) == 50
    assert PADDED.growth_of(long, [short, long, running(1)]) == 0


LONG, SHORT = 20_000, 3_000


def test_four_prompts_may_stand_half_way_each_overtaken_by_a_more_urgent_one():
    """For so many the memory plan counts what their windows hold beyond their size."""
    scheduler = Scheduler(max_streams=RUNNING_STREAMS)

    kinds = ((LONG, "batch"), (SHORT, "batch"), (LONG, "interactive"), (SHORT, "interactive"))
    for token, (prompt_len, urgency) in enumerate(kinds):
        request = a_request(f"{urgency} {prompt_len}", prompt=(token,) * prompt_len, request_class=urgency)
        scheduler.enter(request)
        assert scheduler.next_action(0.0) == Start(request)
        action = scheduler.next_action(0.0)
        assert isinstance(action, Prefill) and action.request is request
        scheduler.observe_prefill(request, action.num_tokens, 1.0)

    assert [0 < each.prefilled_len < each.input_len - 1 for each in scheduler.prefilling] == [True] * RUNNING_STREAMS


def test_who_has_joined_decodes_one_step_before_anyone_is_prefilled():
    """That step gives back what its windows hold beyond their size."""
    scheduler = Scheduler(max_streams=RUNNING_STREAMS)
    first, second = a_request("first", prompt=(1,) * 40), a_request("second", prompt=(2,) * LONG)
    scheduler.enter(first)
    assert scheduler.next_action(0.0) == Start(first)
    scheduler.observe_prefill(first, scheduler.next_action(0.0).num_tokens, 1.0)
    scheduler.enter(second)

    assert scheduler.next_action(0.0) == Join(first)
    assert scheduler.next_action(0.0) == Decode()
