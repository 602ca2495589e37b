"""Builds the answer of GET /status from what the worker counted and who runs now.

It counts nothing by itself and reads no clock; only `MemorySampler` looks outside, at most once a second.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import psutil

from engine.device import device_status
from engine.request import Request, Stage
from engine.scheduler import Scheduler
from engine.wire import (
    WIRE_VERSION,
    Admission,
    CacheStatus,
    DeviceStatus,
    EngineState,
    GovernorStatus,
    LayoutStatus,
    LoadProgress,
    MemoryActual,
    MemoryPlan,
    ModelStatus,
    RequestCounts,
    RequestStatus,
    Roofline,
    SchedulerStatus,
    SelfTest,
    Status,
    TraceStatus,
)

MEMORY_SAMPLE_S = 1.0


@dataclass(slots=True)
class Counters:
    """Cumulative figures since the start. Times are wall clock in ms."""

    membership_epoch: int = 0
    prefill_batches: int = 0
    prefill_rows: int = 0
    prefill_wall_ms: float = 0.0
    decode_batches: int = 0
    decode_wall_ms: float = 0.0
    decode_batches_by_width: dict[str, int] = field(default_factory=dict)
    decode_tokens_by_width: dict[str, int] = field(default_factory=dict)
    submitted: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0

    def prefilled(self, num_tokens: int, elapsed_ms: float) -> None:
        self.prefill_batches += 1
        self.prefill_rows += num_tokens
        self.prefill_wall_ms += elapsed_ms

    def decoded(self, width: int, num_tokens: int, elapsed_ms: float) -> None:
        """A step of `width` streams gave `num_tokens` tokens that were kept."""
        name = f"b{width}"
        self.decode_batches += 1
        self.decode_wall_ms += elapsed_ms
        self.decode_batches_by_width[name] = self.decode_batches_by_width.get(name, 0) + 1
        self.decode_tokens_by_width[name] = self.decode_tokens_by_width.get(name, 0) + num_tokens


class MemorySampler:
    """What the process holds. The figures of MLX are counters of its own; asking the system is rationed."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process_bytes = 0
        self._sampled_at = float("-inf")

    def sample(self, now: float, *, kv_bytes: int) -> MemoryActual:
        if now - self._sampled_at >= MEMORY_SAMPLE_S:
            self._process_bytes = self._process.memory_info().rss
            self._sampled_at = now
        return MemoryActual(
            active_bytes=mx.get_active_memory(),
            peak_bytes=mx.get_peak_memory(),
            cache_bytes=mx.get_cache_memory(),
            kv_bytes=kv_bytes,
            process_bytes=self._process_bytes,
        )


class LoadClock:
    """How far a load is, and how long it and its reading took. A reading begins anew at 0 bytes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started_at = self._reading_began_at = clock()
        self._had = LoadProgress()

    def read(self, bytes_read: int, bytes_total: int) -> LoadProgress:
        now, had = self._clock(), self._had
        if bytes_read == 0:
            self._reading_began_at = now
        is_more = bytes_read > had.bytes_read
        self._had = LoadProgress(
            bytes_read=bytes_read,
            bytes_total=bytes_total,
            seconds=now - self._started_at,
            read_seconds=now - self._reading_began_at if is_more else had.read_seconds,
        )
        return self._had


@dataclass(slots=True)
class EngineFacts:
    """What changes only when the engine's state does."""

    concurrency: int
    memory_plan: MemoryPlan | None
    state: EngineState = "loading"
    error: str | None = None
    model: ModelStatus | None = None
    layout: LayoutStatus | None = None
    self_tests: tuple[SelfTest, ...] = ()
    roofline: Roofline | None = None
    device: DeviceStatus = field(default_factory=device_status)
    load: LoadProgress = field(default_factory=LoadProgress)


def build_status(
    facts: EngineFacts,
    counters: Counters,
    scheduler: Scheduler,
    memory: MemoryActual,
    *,
    cache: CacheStatus | None,
    governor: GovernorStatus | None,
    trace: TraceStatus | None,
    now: float,
    unix_now: float,
    uptime_s: float,
) -> Status:
    return Status(
        sampled_at_s=unix_now,
        sampled_monotonic_s=now,
        wire_version=WIRE_VERSION,
        state=facts.state,
        ready=facts.state == "ready",
        pid=os.getpid(),
        uptime_s=uptime_s,
        membership_epoch=counters.membership_epoch,
        steps=counters.prefill_batches + counters.decode_batches,
        concurrency=facts.concurrency,
        model=facts.model,
        layout=facts.layout,
        self_tests=facts.self_tests,
        load=facts.load,
        admission=admission_status(scheduler, now=now, is_draining=facts.state == "stopping"),
        scheduler=scheduler_status(counters, scheduler),
        request_counts=RequestCounts(
            submitted=counters.submitted,
            completed=counters.completed,
            cancelled=counters.cancelled,
            failed=counters.failed,
        ),
        memory_plan=facts.memory_plan,
        memory_actual=memory,
        requests=request_statuses(scheduler.requests, now=now),
        error=facts.error,
        cache=cache,
        promises=scheduler.promise_status(),
        governor=governor,
        roofline=facts.roofline,
        device=facts.device,
        trace=trace,
    )


def admission_status(scheduler: Scheduler, *, now: float, is_draining: bool) -> Admission:
    """Only the first in line can wait for memory; who stands behind it waits for a turn."""
    waiting = scheduler.waiting
    waiting_memory = 1 if waiting and scheduler.is_blocked_by_memory else 0
    return Admission(
        waiting=len(waiting),
        waiting_memory=waiting_memory,
        waiting_concurrency=len(waiting) - waiting_memory - scheduler.waiting_prefix,
        waiting_prefix=scheduler.waiting_prefix,
        suspended=sum(request.is_suspended for request in waiting),
        oldest_wait_ms=max(((now - request.arrived_at) * 1000 for request in waiting), default=0.0),
        draining=is_draining,
    )


def scheduler_status(counters: Counters, scheduler: Scheduler) -> SchedulerStatus:
    return SchedulerStatus(
        queued=len(scheduler.waiting),
        prefilling=len(scheduler.prefilling),
        decoding=len(scheduler.decoding),
        prefill_batches=counters.prefill_batches,
        prefill_rows=counters.prefill_rows,
        prefill_wall_ms=counters.prefill_wall_ms,
        decode_batches=counters.decode_batches,
        decode_batches_by_width=dict(counters.decode_batches_by_width),
        decode_tokens_by_width=dict(counters.decode_tokens_by_width),
        decode_wall_ms=counters.decode_wall_ms,
        overtakes=scheduler.overtakes,
        suspensions=scheduler.suspensions,
        resumptions=scheduler.resumptions,
        prefix_waits=scheduler.prefix_waits,
    )


def request_statuses(requests: Sequence[Request], *, now: float) -> tuple[RequestStatus, ...]:
    return tuple(
        RequestStatus(
            id=request.id,
            phase=request.phase,
            request_class=request.request_class,
            prompt_tokens=request.prompt_len,
            cached_tokens=request.cached_len,
            prefilled_tokens=min(request.prefilled_len, request.prompt_len),
            output_tokens=len(request.tokens),
            tokens_per_second=tokens_per_second(request, now=now),
            age_ms=(now - request.arrived_at) * 1000,
            is_suspended=request.is_suspended,
        )
        for request in requests
    )


def tokens_per_second(request: Request, *, now: float) -> float:
    """Of the phase that the request is in, since it last began it: 0 as long as that is not known. What came with the
    first emission is not decoding speed.
    """
    began = request.stage
    if began is None:
        return 0.0
    if request.phase == "prefill":
        num_tokens = request.prefilled_len - began.began_len
    elif request.phase == "decode" and request.first_token_at is not None:
        if request.first_token_at > began.began_at:
            began = Stage(request.first_emission_tokens, request.first_token_at)
        num_tokens = len(request.tokens) - began.began_len
    else:
        return 0.0
    return num_tokens / (now - began.began_at) if now > began.began_at else 0.0
