"""From a name to a checked model: resolve, preflight, plan; and what /status says meanwhile. No MLX is imported yet.

It loads nothing: the worker does, with what comes out of here.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.errors import ModelRefused, NotReady
from engine.memory import device_limit_bytes, plan
from engine.model.library import resolve
from engine.model.preflight import Preflight, preflight
from engine.request import Request
from engine.wire import (
    WIRE_VERSION,
    Admission,
    Launch,
    LoadProgress,
    MemoryActual,
    MemoryPlan,
    RequestCounts,
    SchedulerStatus,
    Status,
)


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model that can be loaded, as far as its files and the memory plan tell."""

    preflight: Preflight
    plan: MemoryPlan


def check_model(launch: Launch, home: Path, on_progress: Callable[[int, int], None]) -> CheckedModel:
    """Find the model, downloading it if need be, and check it. Raises Refused with one sentence."""
    found = preflight(resolve(launch.model, home, on_progress=on_progress))
    memory_plan = plan(
        found, limit_bytes=device_limit_bytes(), context=launch.context, budget_bytes=launch.budget_bytes
    )
    if not memory_plan.fits:
        raise ModelRefused(memory_plan.verdict, reason="does_not_fit")
    return CheckedModel(found, memory_plan)


class Beginning:
    """Stands where the worker will be while the model is looked for: it is loading, and has no request."""

    def __init__(self, *, concurrency: int) -> None:
        self._concurrency = concurrency
        self._began_at = time.monotonic()
        self._process = psutil.Process()
        self.snapshot: Status = self._status(LoadProgress())

    def downloaded(self, bytes_done: int, bytes_total: int) -> None:
        """Called on other threads while the hub is read."""
        seconds = time.monotonic() - self._began_at
        self.snapshot = self._status(LoadProgress(bytes_read=bytes_done, bytes_total=bytes_total, seconds=seconds))

    def submit(self, request: Request) -> None:
        raise NotReady(f"request {request.id} came before the model")

    def cancel(self, request_id: str) -> bool:
        return False

    def _status(self, load: LoadProgress) -> Status:
        now = time.monotonic()
        return Status(
            sampled_at_s=time.time(),
            sampled_monotonic_s=now,
            wire_version=WIRE_VERSION,
            state="loading",
            ready=False,
            pid=os.getpid(),
            uptime_s=now - self._began_at,
            membership_epoch=0,
            steps=0,
            concurrency=self._concurrency,
            model=None,
            layout=None,
            self_tests=(),
            load=load,
            admission=Admission(),
            scheduler=SchedulerStatus(),
            request_counts=RequestCounts(),
            memory_plan=None,
            memory_actual=MemoryActual(process_bytes=self._process.memory_info().rss),
            requests=(),
        )
