"""What every benchmark of the engine is given: size, kinds, repetitions, a voice for progress, the device's facts.

It measures one thing only: whether float32 matrix products are fast here, which decides what a CPU figure is worth.
"""

import functools
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import mlx.core as mx

from benchmarks import models
from benchmarks.models import Kind, Size
from benchmarks.report import Measurement, command_line, show

FAST_BLAS_GFLOPS: Final = 20.0
"""Reference BLAS does about 3 on the slow machines, an optimised one ten times that on two cores."""


@dataclass(frozen=True, slots=True)
class Workload:
    is_quick: bool
    size: Size
    kinds: tuple[Kind, ...]
    minutes: float

    @property
    def is_gpu(self) -> bool:
        return self.size == "gpu"

    def on(self, *, cpu: int, gpu: int) -> int:
        return gpu if self.is_gpu else cpu

    def prompt(self, kind: Kind, length: int, *, seed: int = 0) -> tuple[int, ...]:
        """Random tokens; no two seeds share a prefix."""
        draw = random.Random(seed)
        vocabulary = models.vocabulary_of(kind, self.size)
        return tuple(draw.randrange(1, vocabulary) for _ in range(length))


def say(words: str) -> None:
    print(f"# {words}", file=sys.stderr, flush=True)


@functools.cache
def device_facts() -> dict[str, Any]:
    facts: dict[str, Any] = {"device": str(mx.default_device())}
    if mx.default_device() == mx.cpu:
        gflops = sgemm_gflops()
        facts |= {"sgemm_gflops": round(gflops, 1), "is_blas_fast": gflops >= FAST_BLAS_GFLOPS}
    else:
        facts |= {"device_name": mx.device_info().get("device_name", "unknown")}
    return facts


def sgemm_gflops() -> float:
    size = 512
    matrix = mx.random.normal((size, size))
    mx.eval(matrix)
    fastest_s = float("inf")
    for _ in range(5):
        began_at = time.perf_counter()
        mx.eval(matrix @ matrix)
        fastest_s = min(fastest_s, time.perf_counter() - began_at)
    return 2 * size**3 / fastest_s / 1e9


def run_workload(
    measure: Callable[[Workload], Measurement],
    description: str,
    *,
    kinds: tuple[Kind, ...],
    minutes: float = 10.0,
) -> None:
    """Parse the command line, measure `kinds` unless it names others, and show, with the device's facts."""
    parser = command_line(description)
    parser.add_argument("--size", choices=("small", "gpu"), default=models.default_size(), help="of the models")
    parser.add_argument("--kinds", default=",".join(kinds), help="of layers: dense, hybrid, sliding; with commas")
    parser.add_argument("--minutes", type=float, default=minutes, help="of a benchmark that runs for a given time")
    asked = parser.parse_args()
    workload = Workload(asked.quick, asked.size, tuple(asked.kinds.split(",")), asked.minutes)
    measurement = measure(workload)
    measurement.detail.update(device_facts() | {"size": workload.size, "is_quick": workload.is_quick})
    # A thread that used MLX must let go of its streams before the interpreter ends.
    mx.clear_streams()
    show(measurement, is_json=asked.json)
