"""The engine's worker around a model in memory, and clients that note when their tokens come.

It measures nothing. The text side is as cheap as can be: what is measured is the engine, not a tokenizer.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import engine.worker
from benchmarks.workload import say
from engine.blocks import TokenBlocks
from engine.kinds import is_growing
from engine.layout import new_caches
from engine.promises import DEFAULT_PROMISES, Promises
from engine.request import Finish, PromptMarks, Request, SampledToken, SamplingParameters
from engine.step import prefill_slice
from engine.wire import Event, Failed, Finished, MemoryPlan, ModelStatus, TextDelta
from engine.worker import Worker

PATIENCE_S: Final = 600.0
NO_MARKS: Final = PromptMarks()
GREEDY: Final = SamplingParameters(temperature=0.0)

# An idle worker wakes to give memory back; here it would disturb what is measured beside it.
IDLE_S: Final = 600.0


class Said:
    """An answer without text: one character a token, and no end of its own."""

    def __init__(self) -> None:
        self.finish: Finish | None = None
        self.reasoning_tokens = 0

    def push(self, _token: SampledToken) -> list[Event]:
        return [TextDelta(text="x")]

    def close(self, reason: Any) -> tuple[list[Event], Finish]:
        return [], Finish(reason)


@dataclass
class Client:
    """The other end of a request. Times are of `time.perf_counter`, in seconds."""

    request: Request | None = None
    asked_at: float = 0.0
    token_at: list[float] = field(default_factory=list)
    ending: Finished | Failed | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def deliver(self, events: Sequence[Event]) -> None:
        now = time.perf_counter()
        for event in events:
            if isinstance(event, TextDelta):
                self.token_at.append(now)
            elif isinstance(event, (Finished, Failed)):
                self.ending = event
                self.ended.set()

    def wait(self) -> Finished:
        """Until the end, which must be a good one."""
        if not self.ended.wait(PATIENCE_S):
            raise TimeoutError("a request did not end")
        if not isinstance(self.ending, Finished):
            raise RuntimeError(f"a request failed: {self.ending}")
        return self.ending

    def wait_for_tokens(self, count: int) -> None:
        deadline = time.perf_counter() + PATIENCE_S
        while len(self.token_at) < count:
            if self.ended.is_set() or time.perf_counter() > deadline:
                raise RuntimeError(f"{len(self.token_at)} of {count} tokens came; ending: {self.ending}")
            time.sleep(0.005)

    @property
    def ttft_s(self) -> float:
        return self.token_at[0] - self.asked_at

    @property
    def cached_tokens(self) -> int:
        return self.wait().usage.cached

    @property
    def output(self) -> tuple[int, ...]:
        assert self.request is not None
        return tuple(self.request.tokens)


def ask(
    worker: Worker,
    request_id: str,
    prompt: tuple[int, ...],
    *,
    max_tokens: int,
    marks: PromptMarks = NO_MARKS,
    client: Client | None = None,
) -> Client:
    client = client or Client()
    request = Request(
        id=request_id,
        prompt=prompt,
        sampling=GREEDY,
        max_tokens=max_tokens,
        request_class="interactive",
        output=Said(),
        deliver=client.deliver,
        arrived_at=time.monotonic(),
        blocks=TokenBlocks(prompt),
        marks=marks,
    )
    client.request = request
    client.asked_at = time.perf_counter()
    worker.submit(request)
    return client


@contextmanager
def running(
    model: Any,
    *,
    max_streams: int = 4,
    plan: MemoryPlan | None = None,
    promises: Promises = DEFAULT_PROMISES,
    traces: Path | None = None,
) -> Iterator[Worker]:
    """A worker that is ready; ended afterwards, also when it failed."""
    fatal: list[Exception] = []
    usual_idle_s, engine.worker.IDLE_WAKE_S = engine.worker.IDLE_WAKE_S, IDLE_S
    worker = Worker(
        lambda _on_progress: SimpleNamespace(model=model),
        describe=_described,
        memory_plan=plan,
        on_fatal=fatal.append,
        max_streams=max_streams,
        promises=promises,
        traces=traces,
    )
    worker.start()
    try:
        wait_until(lambda: worker.snapshot.state != "loading")
        if worker.snapshot.state != "ready":
            raise RuntimeError(f"the worker could not start: {worker.snapshot.error}")
        yield worker
    finally:
        engine.worker.IDLE_WAKE_S = usual_idle_s
        worker.stop()
        if not worker.join(PATIENCE_S):
            say("the worker did not end")
    if fatal:
        raise RuntimeError(f"the worker failed: {fatal[0]}")


def wait_until(is_true: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.005)


def memory_plan(model: Any, *, pool_bytes: int) -> MemoryPlan:
    """A plan for a model in memory: its layers are measured, its weights are not counted."""
    kv_bytes_per_token, state_bytes = bytes_of_layers(model)
    return MemoryPlan(
        weights_bytes=0,
        fixed_bytes=0,
        kv_bytes_per_token=kv_bytes_per_token,
        state_bytes_per_sequence=state_bytes,
        pool_bytes=pool_bytes,
        limit_bytes=pool_bytes,
        maximum_context_tokens=1 << 20,
        fits=True,
        verdict="",
    )


def bytes_of_layers(model: Any) -> tuple[int, int]:
    """Bytes that a token takes in all growing layers, and bytes of all fixed state of one sequence."""
    room_len = 64
    caches = new_caches(model, room_len=room_len)
    prefill_slice(model, caches, range(1, room_len + 1))
    growing_bytes = sum(cache.nbytes for cache in caches if is_growing(cache))
    fixed_bytes = sum(full_window_bytes(cache, room_len) for cache in caches if not is_growing(cache))
    return growing_bytes // room_len, fixed_bytes


def full_window_bytes(cache: Any, num_tokens: int) -> int:
    """A sliding window grows until it is full; recurrent state has its size from the start."""
    nbytes: int = cache.nbytes
    window: int | None = getattr(cache, "max_size", None)
    return nbytes if window is None else nbytes * window // num_tokens


def _described(_loaded: Any) -> ModelStatus:
    return ModelStatus(
        id="benchmark",
        path="-",
        architecture="-",
        quantization=None,
        is_demo=True,
        maximum_context_tokens=1 << 20,
        native_context_tokens=1 << 20,
        has_thinking=False,
        has_tools=False,
    )
