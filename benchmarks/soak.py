"""Ten minutes of random arrivals, cancellations and cleared caches on a hybrid model whose pool is always too small.

Looks for memory that grows after the warm-up, a budget that is exceeded, and requests that end badly. No speed.
"""

import gc
import queue
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Final

import mlx.core as mx
import psutil

from benchmarks import models
from benchmarks.report import Goal, Measurement
from benchmarks.streams import PATIENCE_S, Client, ask, bytes_of_layers, memory_plan, running, wait_until
from benchmarks.workload import Workload, run_workload, say
from engine.request import PromptMarks
from engine.wire import Failed, Finished
from engine.worker import Worker

NUM_FAMILIES: Final = 6
NUM_CHECKPOINTS: Final = 10
WARM_UP_CHECKPOINTS: Final = 2
MOST_WAITING: Final = 8
CANCELLED_SHARE: Final = 0.4
ANSWER_LENGTHS: Final = (1, 16, 150, 900)  # the longest outgrow their first room, and somebody has to yield
ACTIVE_GROWTH_MIB: Final = 1.0
PROCESS_GROWTH_MIB: Final = 48.0  # what a C allocator keeps back varies by tens of MiB without growing
MIB: Final = 2**20


@dataclass
class Watch:
    """What a second thread saw in the worker's snapshots while requests ran."""

    pool_bytes: int
    largest_bytes: int = 0
    num_over_budget: int = 0
    num_seen: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self, worker: Worker) -> None:
        seen = None
        while not self.is_over.wait(0.01):
            status = worker.snapshot
            if status is seen:
                continue
            seen = status
            used = status.memory_actual.kv_bytes + (status.cache.used_bytes if status.cache else 0)
            self.num_seen += 1
            self.largest_bytes = max(self.largest_bytes, used)
            self.num_over_budget += used > self.pool_bytes


class Traffic:
    """Random requests, two in five cancelled on their way; the seed decides everything but the time it takes."""

    def __init__(self, workload: Workload, worker: Worker) -> None:
        self._draw = random.Random(1)
        self._worker = worker
        on = workload.on
        self._longest = on(cpu=1536, gpu=12288)
        self._families = [
            workload.prompt("hybrid", self._draw.randrange(64, self._longest // 2), seed=family)
            for family in range(NUM_FAMILIES)
        ]
        self._workload = workload
        self._live: dict[str, Client] = {}
        self._cancel_at: dict[str, float] = {}
        self._usual_s = 1.0  # how long the answers took that nobody cancelled
        self._num_asked = 0
        self.num_finished = 0
        self.num_cancelled = 0
        self.failures: list[str] = []

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._collect()
            if len(self._live) < MOST_WAITING:
                self._ask()
            for name in [name for name, moment in self._cancel_at.items() if moment < time.monotonic()]:
                del self._cancel_at[name]
                self._worker.cancel(name)
            time.sleep(self._draw.expovariate(1 / 0.08))
        wait_until(lambda: not self._worker.snapshot.requests, patience_s=PATIENCE_S)
        for client in self._live.values():
            client.ended.wait(PATIENCE_S)
        self._collect()

    def _ask(self) -> None:
        self._num_asked += 1
        family = self._draw.choice(self._families)
        shared = family[: self._draw.randrange(1, len(family) + 1)] if self._draw.random() < 0.5 else family
        tail_len = self._draw.randrange(1, self._longest // 2)
        tail = self._workload.prompt("hybrid", tail_len, seed=10_000 + self._num_asked)
        name = f"soak-{self._num_asked}"
        marks = PromptMarks(shared_len=len(shared), message_starts=(len(shared),), generation_len=1)
        if self._draw.random() < CANCELLED_SHARE:
            # As long after its arrival as suits the machine: some wait, some are prefilled, some decode by then.
            self._cancel_at[name] = time.monotonic() + self._draw.uniform(0, 2 * self._usual_s)
        self._live[name] = ask(
            self._worker, name, shared + tail, max_tokens=self._draw.choice(ANSWER_LENGTHS), marks=marks
        )

    def _collect(self) -> None:
        for name, client in list(self._live.items()):
            if not client.ended.is_set():
                continue
            del self._live[name]
            self._cancel_at.pop(name, None)
            if isinstance(client.ending, Failed):
                self.failures.append(client.ending.message)
            elif isinstance(client.ending, Finished):
                self.num_finished += 1
                if client.ending.reason == "cancelled":
                    self.num_cancelled += 1
                else:
                    self._usual_s += (time.perf_counter() - client.asked_at - self._usual_s) / 8


def cleared_memory(worker: Worker) -> tuple[float, float]:
    """MiB of MLX's arrays and of the process, with nothing running and nothing cached."""
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()
    worker.order(lambda execution: answers.put(execution.clear_cache()))
    answers.get(timeout=PATIENCE_S)
    gc.collect()
    mx.clear_cache()
    time.sleep(0.3)
    return mx.get_active_memory() / MIB, psutil.Process().memory_info().rss / MIB


def measure(workload: Workload) -> Measurement:
    model = models.build("hybrid", workload.size, say=say)
    kv_bytes, state_bytes = bytes_of_layers(model)
    longest = workload.on(cpu=1536, gpu=12288)
    # Room for about two rows and a few snapshots: the next makes someone wait or yield, and the cache is always full.
    pool_bytes = 2 * (longest + 300) * kv_bytes + 12 * state_bytes
    minutes = min(workload.minutes, 1.0) if workload.is_quick else workload.minutes
    active, process = [], []
    with running(model, plan=memory_plan(model, pool_bytes=pool_bytes)) as worker:
        watch = Watch(pool_bytes)
        watching = threading.Thread(target=watch.run, args=(worker,))
        watching.start()
        traffic = Traffic(workload, worker)
        try:
            for number in range(NUM_CHECKPOINTS):
                traffic.run(minutes * 60 / NUM_CHECKPOINTS)
                active_mib, process_mib = cleared_memory(worker)
                active.append(round(active_mib, 2))
                process.append(round(process_mib, 1))
                say(
                    f"{number + 1}/{NUM_CHECKPOINTS}: {traffic.num_finished} ended, {len(traffic.failures)} failed, "
                    f"arrays {active_mib:.1f} MiB, process {process_mib:.0f} MiB"
                )
        finally:
            watch.is_over.set()
            watching.join()
        status = worker.snapshot
    scheduler, cache = status.scheduler, status.cache
    goals = (
        Goal("failures", len(traffic.failures), 0, "lower"),
        Goal("over_budget", watch.num_over_budget, 0, "lower"),
        Goal("active_growth_mib", active[-1] - active[WARM_UP_CHECKPOINTS - 1], ACTIVE_GROWTH_MIB, "lower"),
        Goal("suspensions", scheduler.suspensions, None if workload.is_quick else 1, "higher"),
        Goal("process_growth_mib", process[-1] - process[WARM_UP_CHECKPOINTS - 1], PROCESS_GROWTH_MIB, "lower"),
    )
    detail = {
        "minutes": minutes,
        "ended": traffic.num_finished,
        "cancelled": traffic.num_cancelled,
        "failures": traffic.failures[:5],
        "pool_bytes": pool_bytes,
        "largest_used_bytes": watch.largest_bytes,
        "snapshots_of_status_seen": watch.num_seen,
        "resumptions": scheduler.resumptions,
        "prefix_waits": scheduler.prefix_waits,
        "hit_rate": round(cache.hit_rate, 3) if cache else None,
        "snapshots_evicted": cache.snapshots_evicted if cache else None,
        "active_mib": active,
        "process_mib": process,
    }
    return Measurement("soak", float(len(traffic.failures)), "failures", 0.0, "lower", detail, goals)


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("hybrid",))
