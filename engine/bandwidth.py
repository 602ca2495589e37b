"""How fast the device moves memory, measured by adding to a large array in place.

It knows no model, and what it measures is the device at its best: a fresh array, one kernel, nobody beside it.
"""

import time
from collections.abc import Callable
from typing import Final

import mlx.core as mx

MIB: Final = 2**20

# Several times what the caches next to memory hold: 96 MB on the largest Apple chips, 50 MB on an H200.
GPU_ARRAY_BYTES: Final = 256 * MIB
# On a CPU the first touch of a page takes longer than the whole measurement: 0.15 s for these on a slow machine.
CPU_ARRAY_BYTES: Final = 64 * MIB

# Shorter, and starting a kernel and waiting for it would count.
TRIAL_S: Final = 0.02
NUM_TRIALS: Final = 3
LIMIT_S: Final = 0.15
# What a clock can tell apart; less is no time at all.
SHORTEST_S: Final = 1e-6


def measured_bandwidth(*, room_bytes: int) -> float | None:
    """Bytes per second, those read and those written counted alike: the best of several trials.

    An addition in place reads each byte once and writes it once; into a new array a CPU would read that first, too.
    None when `room_bytes` does not hold the array: a smaller one would measure a cache.
    """
    array_bytes = CPU_ARRAY_BYTES if mx.default_device() == mx.cpu else GPU_ARRAY_BYTES
    if room_bytes < array_bytes:
        return None
    one = mx.array(1, mx.uint32)
    array = mx.zeros((array_bytes // mx.uint32.size,), mx.uint32)

    def add(num_times: int) -> float:
        nonlocal array
        began_at = time.perf_counter()
        for _ in range(num_times):
            array = array + one
        mx.eval(array)
        return time.perf_counter() - began_at

    add(1)  # touches the pages and makes the kernel, before any time counts
    return 2 * array_bytes * best_rate(add)


def best_rate(work: Callable[[int], float]) -> float:
    """How often a second `work` can be done. It does it so many times, and says how many seconds that took."""
    best, num_times, num_trials, spent_s = 0.0, 1, 0, 0.0
    while num_trials < NUM_TRIALS and spent_s < LIMIT_S:
        taken_s = max(work(num_times), SHORTEST_S)
        spent_s += taken_s
        best = max(best, num_times / taken_s)
        if taken_s >= TRIAL_S:
            num_trials += 1
        else:
            num_times *= 2
    return best
