"""How long a slice of a prompt is, from what slices took: noise must not stretch the gaps of those who decode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.pace import (
    AIM,
    EQUAL_COST_TOKENS,
    FIRST_SLICE_TOKENS,
    NUM_SPEEDS,
    SMALLEST_SLICE_TOKENS,
    PrefillPace,
)


def test_the_short_end_of_a_prompt_does_not_slow_the_next_one():
    pace = PrefillPace()
    for _ in range(5):
        pace.observe(pace.slice_tokens(400.0), pace.slice_tokens(400.0) * 0.5, target_ms=400.0)
    before = pace.slice_tokens(400.0)

    pace.observe(3, 30.0, target_ms=400.0)

    assert pace.slice_tokens(400.0) == before == 720


def test_one_stalled_slice_is_recovered_from():
    pace = PrefillPace()
    pace.observe(FIRST_SLICE_TOKENS, 30_000.0, target_ms=400.0)
    stalled = pace.slice_tokens(400.0)
    for _ in range(NUM_SPEEDS + 6):
        num_tokens = pace.slice_tokens(400.0)
        pace.observe(num_tokens, num_tokens * 0.5, target_ms=400.0)

    assert stalled == SMALLEST_SLICE_TOKENS
    assert pace.slice_tokens(400.0) == 720


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([(160, 704.0), (90, 152.0)], 81),  # the second was lucky
        ([(160, 704.0), (90, 152.0), (90, 396.0)], 81),
        ([(90, 152.0), (180, 304.0), (236, 789.0)], 107),  # the newest is the slowest
        ([(160, 704.0), (90, 152.0), (90, 152.0), (90, 152.0)], 180),  # forgotten, but grown into
        ([(500, 100.0)], 1000),
    ],
)
def test_a_slice_is_as_long_as_the_slowest_of_the_last_ones_allows_and_at_most_twice_the_last(slices, expected):
    pace = PrefillPace()

    for num_tokens, elapsed_ms in slices:
        pace.observe(num_tokens, elapsed_ms, target_ms=400.0)

    assert pace.slice_tokens(400.0) == expected


@given(
    speeds=st.lists(st.floats(0.2, 2.0), min_size=4, max_size=60),
    target_ms=st.sampled_from([400.0, 800.0]),
)
def test_however_speeds_vary_a_slice_overruns_by_no_more_than_the_machine_slowed_down(speeds, target_ms):
    pace = PrefillPace()
    longest = 0

    for i, speed in enumerate(speeds):
        num_tokens = pace.slice_tokens(target_ms)
        if (
            pace.is_cut_in_vain
        ):  # the machine slowed down as fast as slices were cut: it can't be told from a fixed cost
            assert num_tokens <= longest
        elif i > 0:
            slowest = min(speeds[max(0, i - NUM_SPEEDS) : i])
            assert num_tokens == SMALLEST_SLICE_TOKENS or num_tokens / slowest <= target_ms * AIM * 1.001
        longest = max(longest, num_tokens)
        pace.observe(num_tokens, num_tokens / speed, target_ms=target_ms)


def measured(ms_per_token: float, *, depth: int = 0) -> PrefillPace:
    pace = PrefillPace()
    for _ in range(5):
        pace.observe(pace.slice_tokens(400.0), pace.slice_tokens(400.0) * ms_per_token, target_ms=400.0, depth=depth)
    return pace


def test_deeper_in_a_prompt_slower_slices_are_expected_and_nearer_to_its_start_no_faster_ones():
    pace = measured(0.5, depth=EQUAL_COST_TOKENS)

    assert pace.slice_tokens(400.0, depth=EQUAL_COST_TOKENS) == 720
    assert pace.slice_tokens(400.0, depth=3 * EQUAL_COST_TOKENS) == 360
    assert pace.slice_tokens(400.0, depth=0) == 720


def test_for_another_prompt_the_speed_is_a_guess_that_its_first_slice_replaces():
    pace = measured(4.0).for_another()
    guessed = pace.slice_tokens(400.0)

    pace.observe(guessed, guessed * 0.5, target_ms=400.0)

    assert guessed == 90
    assert pace.slice_tokens(400.0) == 180


def test_what_another_prompt_does_is_its_own_matter():
    pace = measured(0.5)
    before = pace.slice_tokens(400.0)

    pace.for_another().observe(720, 30_000.0, target_ms=400.0)

    assert pace.slice_tokens(400.0) == before


def test_what_a_slice_costs_whatever_its_length_does_not_shrink_it_to_nothing():
    """A device with 900 ms of fixed cost: 16 tokens a second would never end. It may take as long as it takes."""
    pace = PrefillPace()
    num_tokens, elapsed_ms = 0, 0.0
    while num_tokens < 20_000:
        length = pace.slice_tokens(800)
        took_ms = 900 + length * 1.0
        pace.observe(length, took_ms, target_ms=800)
        num_tokens, elapsed_ms = num_tokens + length, elapsed_ms + took_ms

    assert num_tokens / elapsed_ms > 16 / 916 * 2

    for _ in range(10):  # and when the cost is gone, so is the memory of it
        length = pace.slice_tokens(800)
        pace.observe(length, length * 1.0, target_ms=800)
    assert 500 <= pace.slice_tokens(800) <= 800
