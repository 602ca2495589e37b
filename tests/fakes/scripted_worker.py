"""Stands where the engine's worker stands: takes requests, plays their steps on the event loop, publishes a snapshot.

It has no model. Up to `concurrency` requests play at once; one prefills at a time, as in the real engine.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psutil

from engine.errors import InvalidRequest
from engine.request import Request
from engine.wire import (
    WIRE_VERSION,
    Admission,
    CacheCleared,
    Event,
    Failed,
    Finished,
    FinishReason,
    Launch,
    LayoutStatus,
    LoadProgress,
    MemoryActual,
    MemoryPlan,
    ModelStatus,
    ReasoningDelta,
    RequestCounts,
    RequestStatus,
    SchedulerStatus,
    Status,
    TextDelta,
    Timings,
    ToolCallBegin,
    ToolCallDelta,
    TraceStatus,
    Usage,
)
from engine.wire import Prefill as PrefillEvent
from tests.fakes import scripted_figures as figures
from tests.fakes.script import Prefill, Script, Step, Tokens, words

CONTEXT_TOKENS = 262_144
PROGRESS_S = 0.25
PUBLISH_S = 0.2
GIB = 2**30

PLAN = MemoryPlan(
    weights_bytes=GIB,
    fixed_bytes=GIB // 2,
    kv_bytes_per_token=2048,
    state_bytes_per_sequence=116_736,
    pool_bytes=4 * GIB,
    limit_bytes=8 * GIB,
    maximum_context_tokens=CONTEXT_TOKENS,
    fits=True,
    verdict="scripted fits",
    reserve_bytes=GIB,
    snapshots_per_session=6,
    longest_context_tokens=CONTEXT_TOKENS,
    warm_session_tokens=23_000,
    warm_sessions=6,
)


@dataclass(slots=True, eq=False)
class Play:
    """One request that is being played."""

    request: Request
    steps: tuple[Step, ...]
    task: "asyncio.Task[None] | None" = None
    num_reasoning: int = 0
    num_output: int = 0
    made_calls: bool = False
    marks: dict[str, float] = field(default_factory=dict)


class ScriptedWorker:
    """The interface of `engine.worker.Worker` that the door uses. Everything happens on the loop."""

    def __init__(self, script: Script, launch: Launch, *, context_tokens: int) -> None:
        self._script = script
        self._launch = launch
        self._context_tokens = context_tokens
        self._cache = figures.ScriptedCache(script.start.cache_off, PLAN)
        self._trace = TraceStatus(is_on=False)
        self._began_at = time.monotonic()
        self._plays: dict[str, Play] = {}
        self._slots = asyncio.Semaphore(launch.concurrency)
        self._prefilling = asyncio.Lock()
        self._ready_at = self._began_at + script.start.slow_load_ms / 1000
        self._counts = {"submitted": 0, "completed": 0, "cancelled": 0, "failed": 0}
        self._epoch = self._prefill_batches = self._prefill_rows = 0
        self._prefill_s = self._decode_s = 0.0
        self._decode_by_width: dict[str, int] = {}
        self.steps_of: dict[str, tuple[Step, ...]] = {}
        self.snapshot = self._status()

    async def publish(self) -> None:
        while True:
            self.snapshot = self._status()
            await asyncio.sleep(PUBLISH_S)

    def submit(self, request: Request) -> None:
        if request.id in self._plays:
            raise InvalidRequest("a request with this id is running", param="id")
        play = Play(request, self.steps_of.pop(request.id))
        self._plays[request.id] = play
        self._counts["submitted"] += 1
        play.task = asyncio.create_task(self._play(play), name=f"play {request.id}")
        self.snapshot = self._status()

    def cancel(self, request_id: str) -> bool:
        play = self._plays.get(request_id)
        if play is None or play.task is None:
            return False
        play.task.cancel()
        return True

    def order(self, do: Callable[[Any], None]) -> None:
        """It is its own execution."""
        do(self)
        self.snapshot = self._status()

    def clear_cache(self) -> CacheCleared:
        return self._cache.clear()

    def start_trace(self, *, model: str, pool_bytes: int) -> TraceStatus:
        self._trace = TraceStatus(is_on=True, file=f"{model}.trace", began_at_s=time.time())
        return self._trace

    def stop_trace(self) -> TraceStatus:
        self._trace = TraceStatus(is_on=False, file=self._trace.file, ended="stopped")
        return self._trace

    async def stop(self) -> None:
        tasks = [play.task for play in self._plays.values() if play.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, play: Play) -> None:
        try:
            async with self._slots:
                play.marks["began"] = time.monotonic()
                for step in play.steps:
                    if await self._do(play, step):
                        return
            self._end(play, self._finished(play, "tool_calls" if play.made_calls else "stop"))
        except asyncio.CancelledError:
            if play.request.id in self._plays:
                self._end(play, self._finished(play, "cancelled"))

    async def _do(self, play: Play, step: Step) -> bool:
        """True when the step ended the request."""
        if step.prefill is not None:
            await self._prefill(play, step.prefill)
        elif step.tokens is not None:
            return await self._say(play, step.tokens)
        elif step.stall_ms is not None:
            await asyncio.sleep(step.stall_ms / 1000)
        elif step.die == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif step.die is not None:
            os._exit(step.die)
        elif step.fail is not None:
            failure = step.fail
            end = Failed(code=failure.code, message=failure.message, retryable=failure.retryable)
            self._end(play, self._complete(play, end))
            return True
        elif step.event is not None:
            await asyncio.sleep(step.after_ms / 1000)
            return self._emit(play, step.event)
        return False

    async def _prefill(self, play: Play, prefill: Prefill) -> None:
        async with self._prefilling:
            request = play.request
            request.phase, request.cached_len = "prefill", min(prefill.cached, request.prompt_len)
            self._cache.prefilled(prompt_len=request.prompt_len, cached_len=request.cached_len)
            began_at, duration_s = time.monotonic(), prefill.duration_ms / 1000
            done = 0.0
            while True:
                to_do = request.prompt_len - request.cached_len
                request.prefilled_len = request.cached_len + int(to_do * done)
                request.deliver([self._progress(request)])
                self.snapshot = self._status()
                self._prefill_batches += 1
                if done >= 1:
                    break
                await asyncio.sleep(min(PROGRESS_S, duration_s * (1 - done)))
                done = min(1.0, (time.monotonic() - began_at) / duration_s) if duration_s else 1.0
            self._prefill_rows += to_do
            self._prefill_s += time.monotonic() - began_at

    async def _say(self, play: Play, tokens: Tokens) -> bool:
        for word in words(tokens.text):
            await asyncio.sleep(1 / tokens.per_second)
            self._decode_s += 1 / tokens.per_second
            kind = TextDelta if tokens.kind == "text" else ReasoningDelta
            if self._emit(play, kind(text=word)):
                return True
        return False

    def _emit(self, play: Play, event: Event) -> bool:
        """Send one event; True when it is, or brings, the end."""
        request = play.request
        if isinstance(event, (Finished, Failed)):
            self._end(play, self._complete(play, event))
            return True
        num_tokens = _num_tokens(event)
        if num_tokens and request.phase != "decode":
            request.phase, request.prefilled_len = "decode", request.prompt_len
            request.first_token_at = time.monotonic()
            self._epoch += 1
        play.num_output += num_tokens
        play.num_reasoning += num_tokens if isinstance(event, ReasoningDelta) else 0
        play.made_calls |= isinstance(event, ToolCallBegin)
        self._count_decode(num_tokens)
        request.deliver([event])
        self.snapshot = self._status()
        if play.num_output >= request.max_tokens:
            self._end(play, self._finished(play, "length"))
            return True
        return False

    def _finished(self, play: Play, reason: FinishReason) -> Event:
        return self._complete(play, Finished(reason=reason))

    def _complete(self, play: Play, end: Event) -> Event:
        """Fill in what the script left out."""
        assert isinstance(end, (Finished, Failed))
        request, now = play.request, time.monotonic()
        began_at = play.marks.get("began", now)
        first_at = request.first_token_at or now
        usage = Usage(
            prompt=request.prompt_len,
            cached=request.cached_len,
            completion=play.num_output,
            reasoning=play.num_reasoning,
        )
        timings = Timings(
            wait_ms=(began_at - request.arrived_at) * 1000,
            prefill_ms=(first_at - began_at) * 1000,
            decode_ms=(now - first_at) * 1000,
            first_emission_tokens=min(1, play.num_output),
        )
        fields = {name: getattr(end, name) for name in end.__struct_fields__}
        fields["usage"] = usage if end.usage == Usage() else end.usage
        fields["timings"] = timings if end.timings == Timings() else end.timings
        return type(end)(**fields)

    def _end(self, play: Play, end: Event) -> None:
        del self._plays[play.request.id]
        if play.request.phase == "decode":
            self._epoch += 1
        if isinstance(end, Failed):
            self._counts["failed"] += 1
        else:
            self._counts["cancelled" if end.reason == "cancelled" else "completed"] += 1
        self.snapshot = self._status()
        play.request.deliver([end])

    def _count_decode(self, num_tokens: int) -> None:
        width = sum(play.request.phase == "decode" for play in self._plays.values())
        if num_tokens and width:
            name = f"b{width}"
            self._decode_by_width[name] = self._decode_by_width.get(name, 0) + 1

    def _progress(self, request: Request) -> PrefillEvent:
        return PrefillEvent(processed=request.prefilled_len, cached=request.cached_len, total=request.prompt_len)

    def _status(self) -> Status:
        now = time.monotonic()
        is_ready = now >= self._ready_at
        requests = [play.request for play in self._plays.values()]
        by_phase = {phase: [r for r in requests if r.phase == phase] for phase in ("queued", "prefill", "decode")}
        num_steps = sum(self._decode_by_width.values())
        load_s = min(now, self._ready_at) - self._began_at
        return Status(
            sampled_at_s=time.time(),
            sampled_monotonic_s=now,
            wire_version=WIRE_VERSION,
            state="ready" if is_ready else "loading",
            ready=is_ready,
            pid=os.getpid(),
            uptime_s=now - self._began_at,
            membership_epoch=self._epoch,
            steps=self._prefill_batches + num_steps,
            concurrency=self._launch.concurrency,
            model=self._model_status() if is_ready else None,
            layout=LayoutStatus(kind="rows", reason="scripted", kv_bits=self._launch.kv_bits) if is_ready else None,
            self_tests=figures.self_tests(self._script.start) if is_ready else (),
            load=LoadProgress(
                bytes_read=GIB if is_ready else GIB // 2, bytes_total=GIB, seconds=load_s, read_seconds=load_s * 0.8
            ),
            admission=Admission(waiting=len(by_phase["queued"]), waiting_concurrency=len(by_phase["queued"])),
            scheduler=SchedulerStatus(
                queued=len(by_phase["queued"]),
                prefilling=len(by_phase["prefill"]),
                decoding=len(by_phase["decode"]),
                prefill_batches=self._prefill_batches,
                prefill_rows=self._prefill_rows,
                prefill_wall_ms=self._prefill_s * 1000,
                decode_batches=num_steps,
                decode_batches_by_width=dict(self._decode_by_width),
                decode_tokens_by_width=dict(self._decode_by_width),
                decode_wall_ms=self._decode_s * 1000,
            ),
            request_counts=RequestCounts(**self._counts),
            memory_plan=msgspec.structs.replace(
                PLAN, maximum_context_tokens=self._context_tokens, kv_bits=self._launch.kv_bits
            ),
            memory_actual=MemoryActual(process_bytes=psutil.Process().memory_info().rss),
            requests=tuple(self._request_status(play, now) for play in self._plays.values()),
            cache=self._cache.status() if is_ready else None,
            trace=self._trace,
            promises=figures.promises(max_gap_ms=self._launch.max_gap_ms, decode_share=self._launch.decode_share),
            governor=figures.governor(PLAN),
        )

    def _model_status(self) -> ModelStatus:
        return ModelStatus(
            id=self._launch.model,
            path="",
            architecture="scripted",
            quantization=None,
            is_demo=True,
            maximum_context_tokens=self._context_tokens,
            native_context_tokens=CONTEXT_TOKENS,
            has_thinking=True,
            has_tools=True,
        )

    def _request_status(self, play: Play, now: float) -> RequestStatus:
        request = play.request
        since = request.first_token_at
        return RequestStatus(
            id=request.id,
            phase=request.phase,
            request_class=request.request_class,
            prompt_tokens=request.prompt_len,
            cached_tokens=request.cached_len,
            prefilled_tokens=request.prefilled_len,
            output_tokens=play.num_output,
            tokens_per_second=play.num_output / (now - since) if since is not None and now > since else 0.0,
            age_ms=(now - request.arrived_at) * 1000,
        )


def _num_tokens(event: Event) -> int:
    if isinstance(event, (TextDelta, ReasoningDelta)):
        return len(words(event.text))
    return len(words(event.arguments)) if isinstance(event, ToolCallDelta) else 0
