"""The one thread that owns every MLX object: it loads the model, does what the scheduler says and ends every request.

It decides no order (`scheduler.py`), computes nothing itself (`step.py`) and makes no text (`request.output`).

1. Other threads reach it through its mailbox and see it in `snapshot`; nothing else is shared.
2. Every request that `submit` took ends with exactly one Finished or Failed, also when the engine stops or fails.
3. Cancelling takes effect between two steps. Tokens are delivered while the device computes the next ones.
4. An exception from the device is not survived: all requests fail as retryable, and `on_fatal` ends the process.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from engine.admission import MemoryPool
from engine.device import keep_resident
from engine.endings import failed, finished
from engine.errors import DeviceFailed, EngineError, Stopping, TextFailed
from engine.layout import Caches, held_bytes, new_caches
from engine.mailbox import Cancel, Command, Mailbox, Stop, Submit
from engine.request import Request, SampledToken
from engine.sampling import Sampler
from engine.scheduler import Decode, Idle, Join, Prefill, Refuse, Scheduler
from engine.selftest import choose_layout
from engine.status import Counters, EngineFacts, MemorySampler, build_status
from engine.step import DecodedStep, Decoder, prefill_slice
from engine.wire import Event, FinishReason, LoadProgress, MemoryPlan, ModelStatus, Status
from engine.wire import Prefill as PrefillEvent

logger = logging.getLogger(__name__)

PUBLISH_S = 0.2
PROGRESS_S = 0.25
IDLE_WAKE_S = 1.0  # an idle engine refreshes its snapshot, which also proves that it is alive
CLEAR_EVERY_STEPS = 512  # as often as mlx-lm, within a factor of two

OnProgress = Callable[[int, int], None]
"""Called by the loader, on the worker's thread, with (bytes read, bytes in total)."""


class Worker:
    """`load` returns an object with the field `model`; it and `describe` run on the worker's thread.

    `on_fatal` is called there with what ended the thread: Refused (for the model) or DeviceFailed.
    """

    def __init__(
        self,
        load: Callable[[OnProgress], Any],
        *,
        describe: Callable[[Any], ModelStatus],
        memory_plan: MemoryPlan | None,
        on_fatal: Callable[[EngineError], None],
        max_streams: int = 4,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._describe = describe
        self._on_fatal = on_fatal
        self._clock = clock
        self._started_at = clock()
        self._facts = EngineFacts(concurrency=max_streams, memory_plan=memory_plan)
        self._counters = Counters()
        self._memory = MemorySampler()
        pool = None if memory_plan is None else MemoryPool.of(memory_plan)
        self._scheduler = Scheduler(max_streams=max_streams, pool=pool)
        self._mailbox = Mailbox()
        self._model: Any = None
        self._decoder: Decoder | None = None
        self._prefill_caches: Caches | None = None
        self._published_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.snapshot: Status = self._status()

    # --- for other threads -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Raises Stopping when the engine is on its way out, InvalidRequest for an empty prompt or an id that runs."""
        self._mailbox.submit(request)

    def cancel(self, request_id: str) -> bool:
        """Ask for the end of a request; True when it is known. Its Finished says "cancelled"."""
        return self._mailbox.cancel(request_id)

    def stop(self) -> None:
        """Ask the thread to end after the step that it is in: what runs fails as retryable. `join` waits for it."""
        self._mailbox.stop()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread; True when it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with mx.stream(mx.new_stream(mx.default_device())):
                self._load_model()
                self._serve()
        except Stopping as stopping:
            self._facts.state = "stopping"
            self._end_all(stopping)
        except EngineError as error:
            logger.error("model refused reason=%s", error.message)
            self._die(error)
        except Exception as failure:
            logger.exception("device failed")
            self._die(DeviceFailed(f"{type(failure).__name__}: {failure}"))
        finally:
            self._model = self._decoder = self._prefill_caches = None
            # Without this the thread's compile cache is torn down after the interpreter: exit code 134.
            mx.clear_streams()

    def _load_model(self) -> None:
        keep_resident()
        loaded = self._load(self._on_progress)
        self._model = loaded.model
        chosen = choose_layout(self._model)
        self._decoder = Decoder(chosen.layout)
        self._facts.layout, self._facts.self_tests = chosen.status, chosen.tests
        self._facts.model = self._describe(loaded)
        mx.clear_cache()
        self._on_progress(self._facts.load.bytes_read, self._facts.load.bytes_total)
        self._facts.state = "ready"
        self._publish()
        logger.info("engine ready layout=%s seconds=%.1f", chosen.status.kind, self._facts.load.seconds)

    def _on_progress(self, bytes_read: int, bytes_total: int) -> None:
        if self._mailbox.is_stopping:
            raise Stopping
        seconds = self._clock() - self._started_at
        self._facts.load = LoadProgress(bytes_read=bytes_read, bytes_total=bytes_total, seconds=seconds)
        self._publish_if_due()

    def _serve(self) -> None:
        """Commands, then one action, again and again, until Stopping is raised."""
        assert self._decoder is not None
        while True:
            while (command := self._mailbox.take()) is not None:
                self._obey(command)
            match self._scheduler.next_action(self._clock()):
                case Prefill(request, num_tokens):
                    self._prefill(self._decoder, request, num_tokens)
                case Join(request):
                    self._join(self._decoder, request)
                case Decode():
                    self._decode(self._decoder)
                case Refuse(request, error):
                    self._fail(request, error)
                case Idle():
                    self._rest()
            self._publish_if_due()

    def _obey(self, command: Command) -> None:
        match command:
            case Submit(request):
                self._counters.submitted += 1
                self._scheduler.enter(request)
                self._publish()
            case Cancel(request):
                if self._mailbox.is_live(request):
                    self._finish(request, "cancelled", [])
            case Stop():
                raise Stopping

    def _rest(self) -> None:
        """Give unused memory back, then wait for a command."""
        mx.synchronize()
        mx.clear_cache()
        self._publish()
        command = self._mailbox.take(wait_s=IDLE_WAKE_S)
        if command is not None:
            self._obey(command)

    # --- actions -----------------------------------------------------------------------------------------------------

    def _prefill(self, decoder: Decoder, request: Request, num_tokens: int) -> None:
        began_at = self._clock()
        waiting_step = decoder.drain()
        if waiting_step is not None:  # its tokens must not wait for the slice, and may change what is to be done
            self._emit(waiting_step, began_at)
            return
        if request.prefilled_len == request.cached_len:
            self._tell_progress(request)
        tokens = request.prompt[request.prefilled_len : request.prefilled_len + num_tokens]
        prefill_slice(self._model, self._caches_of(request), tokens)
        mx.clear_cache()
        elapsed_ms = (self._clock() - began_at) * 1000
        self._scheduler.observe_prefill(request, num_tokens, elapsed_ms)
        self._counters.prefilled(num_tokens, elapsed_ms)
        self._tell_progress(request)

    def _join(self, decoder: Decoder, request: Request) -> None:
        decoder.join(request, self._caches_of(request), Sampler(request.sampling, request.prompt))
        self._prefill_caches = None
        self._counters.membership_epoch += 1
        self._tell_progress(request)
        self._publish()

    def _decode(self, decoder: Decoder) -> None:
        began_at = self._clock()
        self._emit(decoder.step(), began_at)
        if self._counters.decode_batches % CLEAR_EVERY_STEPS == 0:
            mx.clear_cache()

    def _caches_of(self, request: Request) -> Caches:
        if self._prefill_caches is None:
            self._prefill_caches = new_caches(self._model, room_len=request.room_len)
        return self._prefill_caches

    def _emit(self, step: DecodedStep, began_at: float) -> None:
        """Count a step that was just read, and hand its tokens to their requests."""
        device_ms = (self._clock() - began_at) * 1000
        self._counters.decoded(step.width, len(step.outcomes), device_ms)
        for outcome in step.outcomes:
            if isinstance(outcome.result, SampledToken):
                self._take_token(outcome.request, outcome.result)
            else:
                self._fail(outcome.request, outcome.result)
        self._scheduler.observe_decode((self._clock() - began_at) * 1000)

    # --- one request -------------------------------------------------------------------------------------------------

    def _take_token(self, request: Request, token: SampledToken) -> None:
        request.tokens.append(token.token)
        try:
            events = list(request.output.push(token))
        except Exception:  # a fault in the text side of one request must not take the weights down
            logger.exception("text failed id=%s", request.id)
            self._fail(request, TextFailed())
            return
        finish = request.output.finish
        is_last = finish is not None or len(request.tokens) >= request.max_tokens
        if request.first_token_at is None and (events or is_last):
            request.first_token_at = self._clock()
            request.first_emission_tokens = len(request.tokens)
        if is_last:
            self._finish(request, "length" if finish is None else finish.reason, events)
        elif events:
            self._deliver(request, events)

    def _finish(self, request: Request, reason: FinishReason, events: list[Event]) -> None:
        """End a request well: `events`, what the text side held back, then Finished."""
        try:
            held_back, finish = request.output.close(reason)
        except Exception:  # as above
            logger.exception("text failed id=%s", request.id)
            self._fail(request, TextFailed())
            return
        ending = finished(request, finish, now=self._clock())
        if ending.reason == "cancelled":
            self._counters.cancelled += 1
        else:
            self._counters.completed += 1
        self._release(request)
        self._deliver(request, [*events, *held_back, ending])
        logger.info(
            "request finished id=%s reason=%s prompt_tokens=%d tokens=%d wait_ms=%d prefill_ms=%d decode_ms=%d",
            *(request.id, ending.reason, ending.usage.prompt, ending.usage.completion),
            *(ending.timings.wait_ms, ending.timings.prefill_ms, ending.timings.decode_ms),
        )

    def _fail(self, request: Request, error: EngineError) -> None:
        ending = failed(request, error, now=self._clock())
        self._counters.failed += 1
        self._release(request)
        self._deliver(request, [ending])
        logger.warning("request failed id=%s code=%s reason=%s", request.id, error.code, error.message)

    def _release(self, request: Request) -> None:
        """Forget a request and let go of its memory."""
        if request is self._scheduler.prefilling:
            self._prefill_caches = None
        elif request.phase == "decode" and self._decoder is not None:
            self._decoder.leave(request)
            self._counters.membership_epoch += 1
        self._scheduler.remove(request)
        self._mailbox.forget(request)
        mx.clear_cache()
        self._publish()

    def _tell_progress(self, request: Request) -> None:
        now = self._clock()
        if now - request.last_progress_at >= PROGRESS_S:
            request.last_progress_at = now
            progress = PrefillEvent(
                processed=request.prefilled_len, cached=request.cached_len, total=request.prompt_len
            )
            self._deliver(request, [progress])

    def _deliver(self, request: Request, events: Sequence[Event]) -> None:
        try:
            request.deliver(events)
        except Exception:  # the other end is gone: the request ends at the next look at the mailbox
            logger.warning("events could not be delivered id=%s", request.id)
            self._mailbox.cancel(request.id)

    # --- the end, and the snapshot -----------------------------------------------------------------------------------

    def _die(self, error: EngineError) -> None:
        self._facts.state, self._facts.error = "failed", error.message
        self._end_all(error)
        self._on_fatal(error)

    def _end_all(self, error: EngineError) -> None:
        """Take nothing more, and fail whoever is here or was about to enter."""
        self._decoder = None
        present = set(map(id, self._scheduler.requests))
        for request in self._mailbox.close():
            if id(request) not in present:
                self._counters.submitted += 1
                self._scheduler.enter(request)
            self._fail(request, error)
        self._publish()

    def _publish_if_due(self) -> None:
        if self._clock() - self._published_at >= PUBLISH_S:
            self._publish()

    def _publish(self) -> None:
        self._published_at = self._clock()
        self.snapshot = self._status()

    def _status(self) -> Status:
        now = self._clock()
        kv_bytes = held_bytes(self._prefill_caches or []) + (self._decoder.kv_bytes if self._decoder else 0)
        return build_status(
            self._facts,
            self._counters,
            self._scheduler,
            self._memory.sample(now, kv_bytes=kv_bytes),
            now=now,
            unix_now=time.time(),
            uptime_s=now - self._started_at,
        )
