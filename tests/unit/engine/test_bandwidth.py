"""The bandwidth of memory: measured in a bounded time, by an addition that reads and writes each byte once."""

import mlx.core as mx
import pytest

from engine import bandwidth
from engine.bandwidth import CPU_ARRAY_BYTES, LIMIT_S, NUM_TRIALS, TRIAL_S, best_rate, measured_bandwidth


class Memory:
    """Takes `pass_s` for each pass, and `start_s` for each trial. `trials`: how many passes each had."""

    def __init__(self, *, pass_s: float, start_s: float = 0.0):
        self._pass_s, self._start_s = pass_s, start_s
        self.trials = []

    def __call__(self, num_times: int) -> float:
        self.trials.append(num_times)
        return self._start_s + num_times * self._pass_s

    @property
    def spent_s(self) -> float:
        return sum(map(self._taken_s, self.trials))

    def _taken_s(self, num_times: int) -> float:
        return self._start_s + num_times * self._pass_s


def test_passes_that_are_long_enough_are_timed_one_by_one():
    memory = Memory(pass_s=2 * TRIAL_S)

    assert best_rate(memory) == pytest.approx(1 / (2 * TRIAL_S))
    assert memory.trials == [1] * NUM_TRIALS


def test_short_passes_are_put_together_until_starting_them_hardly_counts():
    memory = Memory(pass_s=0.0001, start_s=0.0003)

    found = best_rate(memory)

    assert memory.trials[:3] == [1, 2, 4]
    assert 0.98 / 0.0001 < found < 1 / 0.0001


def test_a_slow_memory_is_given_no_more_time_than_one_pass_beyond_the_limit():
    memory = Memory(pass_s=LIMIT_S - 0.01)

    best_rate(memory)

    assert memory.trials == [1, 1]


@pytest.mark.parametrize("pass_s", [1e-7, 1e-5, 1e-3, 0.01, 0.1])
def test_however_fast_memory_is_it_takes_a_fraction_of_a_second(pass_s):
    memory = Memory(pass_s=pass_s)

    best_rate(memory)

    assert memory.spent_s < 2 * LIMIT_S


def test_the_best_of_several_counts():
    taken = iter([0.05, 0.03, 0.04, 1.0])

    assert best_rate(lambda _: next(taken)) == pytest.approx(1 / 0.03)


def test_it_is_measured_on_this_machine_with_no_more_memory_than_it_was_given(monkeypatch):
    monkeypatch.setattr(bandwidth, "CPU_ARRAY_BYTES", 1 << 20)
    before = mx.get_active_memory()
    mx.reset_peak_memory()

    found = measured_bandwidth(room_bytes=1 << 20)

    assert found is not None
    assert found > 1e8
    assert mx.get_peak_memory() - before <= (1 << 20) + 4096
    assert mx.get_active_memory() <= before + 4096


def test_without_room_nothing_is_measured():
    assert measured_bandwidth(room_bytes=CPU_ARRAY_BYTES - 1) is None
