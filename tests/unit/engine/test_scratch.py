"""What MLX keeps between two prefill slices. It asks MLX itself, on the CPU."""

import gc

import mlx.core as mx
import pytest

from engine.scratch import Scratch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean_memory():
    gc.collect()
    mx.clear_cache()
    yield
    mx.clear_cache()


def work(num_mib: int) -> None:
    """Needs so much for a moment, and keeps nothing of it."""
    array = mx.zeros((num_mib, MIB // 4))
    mx.eval(array)


def kept_bytes() -> int:
    mx.eval(mx.zeros(1))  # MLX lets go of what is over the limit when something is asked for
    return mx.get_cache_memory()


def test_no_more_is_kept_than_was_planned_when_nothing_was_prefilled():
    Scratch(8 * MIB)

    work(64)

    assert kept_bytes() <= 8 * MIB


def test_what_a_slice_needed_is_kept_for_the_next_one():
    scratch = Scratch(8 * MIB)
    with scratch.slice():
        work(64)

    work(64)

    assert 64 * MIB <= kept_bytes() <= 80 * MIB


def test_a_smaller_slice_does_not_lower_what_is_kept():
    scratch = Scratch(0)
    for num_mib in (64, 1):
        with scratch.slice():
            work(num_mib)

    work(64)

    assert kept_bytes() >= 64 * MIB


def test_the_memory_that_a_slice_fills_for_good_is_not_taken_for_scratch():
    scratch = Scratch(0)
    with scratch.slice():
        row = mx.zeros((64, MIB // 4))
        mx.eval(row)

    work(32)

    assert row.nbytes == 64 * MIB
    assert kept_bytes() < MIB


def test_the_largest_use_is_remembered_over_slices():
    scratch = Scratch(0)
    mx.reset_peak_memory()
    work(64)

    for _ in range(2):
        with scratch.slice():
            work(1)

    assert scratch.peak_bytes >= 64 * MIB
