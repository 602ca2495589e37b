"""What a request takes of the memory pool, and how it grows into what is left."""

import pytest

from engine.admission import BOUNDLESS, MemoryPool, first_room, growth_tokens
from tests.unit.engine.conversations import a_request

POOL = MemoryPool(pool_bytes=10_000, kv_bytes_per_token=10, state_bytes_per_sequence=500)


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


def test_the_largest_room_is_what_the_verdict_of_the_plan_promises_to_one_sequence():
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


def test_a_sequence_whose_state_alone_is_larger_than_the_pool_has_no_room():
    assert MemoryPool(pool_bytes=499, kv_bytes_per_token=10, state_bytes_per_sequence=500).largest_room == 0
