"""What a request takes of the memory pool."""

import pytest

from engine.admission import MemoryPool, growth_tokens, reserved_tokens
from tests.unit.engine.conversations import a_request

POOL = MemoryPool(pool_bytes=10_000, kv_bytes_per_token=10, state_bytes_per_sequence=500)


@pytest.mark.parametrize(
    ("length", "growth"), [(0, 256), (2048, 256), (2049, 512), (8192, 1024), (30_000, 4096), (262_144, 4096)]
)
def test_a_row_grows_by_about_an_eighth_of_its_length(length, growth):
    assert growth_tokens(length) == growth


def test_room_is_made_for_the_prompt_and_what_may_come_first():
    assert reserved_tokens(100, 50) == 150
    assert reserved_tokens(100, 100_000) == 356


def test_a_request_needs_its_state_and_its_room():
    assert POOL.need_bytes(a_request(prompt=(1,) * 100, max_tokens=50)) == 500 + 150 * 10


def test_a_request_that_outgrew_its_room_needs_one_more_growth():
    request = a_request(prompt=(1,) * 100, max_tokens=5000)
    request.tokens.extend([1] * 257)

    assert POOL.need_bytes(request) == 500 + (356 + 256) * 10


def test_requests_fit_until_the_pool_is_full():
    request = a_request(prompt=(1,) * 400, max_tokens=50)  # 500 + 4500

    assert POOL.fits_beside(request, [request])
    assert not POOL.fits_beside(request, [request, request])
