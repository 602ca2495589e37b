"""What the door shows before there is a worker: an engine that is loading and has no request.

It finds and loads nothing; `engine.startup` and `engine.worker` do.
"""

import os
import time

import psutil

from engine.errors import NotReady
from engine.request import Request
from engine.wire import (
    WIRE_VERSION,
    Admission,
    LoadProgress,
    MemoryActual,
    RequestCounts,
    SchedulerStatus,
    Status,
)


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

    def order(self, do: object) -> None:
        raise NotReady("there is no cache before the model")

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
