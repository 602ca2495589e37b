"""Does on the device what the scheduler says, and keeps the prefix cache in step with it.

It decides no order and ends no request: `scheduler.py` and `answering.py` do.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.layout import Caches, Layout, held_bytes, new_caches
from engine.prefix.cache import PrefixCache
from engine.request import Request, Stage
from engine.sampling import Sampler
from engine.step import DecodedStep, Decoder, Left, prefill_slice
from engine.trace.tracing import Tracing
from engine.wire import CacheCleared, CacheStatus, TraceEnd, TraceStatus


@dataclass(slots=True)
class Prefilling:
    """Caches that hold the first `length` tokens of a request's input."""

    caches: Caches
    length: int


class Execution:
    """Owns the caches of who is being prefilled, the decoding streams and the prefix cache."""

    def __init__(
        self,
        model: Any,
        *,
        layout: Layout,
        kv_bits: int | None,
        prefix: PrefixCache,
        traces: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._model = model
        self._kv_bits = kv_bits
        self._prefix = prefix
        self._tracing = Tracing(traces)
        self._decoder = Decoder(layout, capture=prefix.capture if prefix.needs_snapshots else None)
        self._prefilling: dict[Request, Prefilling] = {}

    @property
    def kv_bytes(self) -> int:
        """Of running requests; what the prefix cache holds comes on top."""
        return self._decoder.kv_bytes + sum(held_bytes(each.caches) for each in self._prefilling.values())

    @property
    def cache_bytes(self) -> int:
        return self._prefix.used_bytes

    @property
    def cache_version(self) -> int:
        """Grows whenever `restorable` may have changed."""
        return self._prefix.version

    def restorable(self, request: Request) -> int:
        """Tokens of the request's input that the prefix cache could restore now."""
        return self._prefix.restorable(request)

    def fit_cache(self, budget_bytes: int) -> None:
        """Let the prefix cache hold `budget_bytes` from now on. Called before running requests take more."""
        self._prefix.set_budget(budget_bytes)

    def start(self, request: Request, *, cache_bytes: int) -> None:
        """Give the request caches, with what is known of its input restored; `cache_bytes` is left for the cache."""
        caches = new_caches(self._model, room_len=request.room_len, kv_bits=self._kv_bits)
        restored_len = self._prefix.restore(request, caches, budget_bytes=cache_bytes)
        request.prefilled_len = restored_len
        if not request.was_suspended:
            request.cached_len = restored_len
        request.stage = Stage(restored_len, self._clock())
        self._prefilling[request] = Prefilling(caches, restored_len)

    def prefill(self, request: Request, num_tokens: int) -> None:
        prefilling = self._prefilling[request]
        start, end = prefilling.length, prefilling.length + num_tokens
        began_at = self._clock()
        prefill_slice(self._model, prefilling.caches, request.inputs(start, end))
        took_ms = (self._clock() - began_at) * 1000
        prefilling.length = end
        self._prefix.publish_slice(request, prefilling.caches, start=start, end=end, took_ms=took_ms)

    def join(self, request: Request) -> None:
        sampler = Sampler(request.sampling, request.prompt, generated=request.tokens)
        self._decoder.join(request, self._prefilling.pop(request).caches, sampler)
        request.stage = Stage(len(request.tokens), self._clock())

    def decode(self) -> DecodedStep:
        return self._decoder.step()

    def drain(self) -> DecodedStep | None:
        """Tokens of a step that is still in flight."""
        return self._decoder.drain()

    def release(self, request: Request) -> None:
        """Let go of what the request holds, once the prefix cache has what it can use of it."""
        prefilling = self._prefilling.pop(request, None)
        if prefilling is not None:
            self._prefix.publish_rest(request, prefilling.caches, length=prefilling.length, checkpoint=None)
        elif request in self._decoder:
            self._publish_decoded(request, self._decoder.leave(request))
        request.stage = None
        self._prefix.forget(request)

    def _publish_decoded(self, request: Request, left: Left) -> None:
        """Keep what is known of it: a token that failed is not, but the step behind it has been launched by then.

        Fixed state that is a token too far is never taken for that of `length`: where a block ends there, the stream
        has stood there before and the checkpoint is of then.
        """
        length = min(left.length, request.input_len)
        checkpoint = left.checkpoint
        if checkpoint is not None and checkpoint.covered_tokens > length:
            checkpoint = None
        request.blocks.extend(request.inputs(request.blocks.length, length))
        self._prefix.publish_rest(request, left.caches, length=length, checkpoint=checkpoint)

    def clear_cache(self) -> CacheCleared:
        return self._prefix.clear()

    @property
    def trace_status(self) -> TraceStatus:
        return self._tracing.status

    def start_trace(self, *, model: str, pool_bytes: int) -> TraceStatus:
        """Of the prefix cache, from now on. `pool_bytes`: what the rows of running requests and the cache share."""
        return self._prefix.trace(self._tracing, model=model, pool_bytes=pool_bytes)

    def stop_trace(self, reason: TraceEnd = "stopped") -> TraceStatus:
        return self._tracing.stop(reason)

    def cache_status(self) -> CacheStatus:
        return self._prefix.status()
