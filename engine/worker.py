"""The one thread that owns every MLX object: it loads the model, does what the scheduler says and ends every request.

It decides no order (`scheduler.py`), touches no tensor (`execution.py`) and makes no event (`answering.py`).

1. Other threads reach it through its mailbox and see it in `snapshot`; nothing else is shared.
2. Every request that `submit` took ends with exactly one Finished or Failed, also when the engine stops or fails.
3. Cancelling takes effect between two steps. Tokens are delivered while the device computes the next ones.
4. An exception from the device is not survived: all requests fail as retryable, and `on_fatal` ends the process. So
   does a model that computes logits that are not finite for one request after another.
"""

import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.admission import MemoryPool
from engine.answering import Answering
from engine.buffers import KeptBuffers
from engine.device import free_gpu_bytes, keep_resident
from engine.errors import DeviceFailed, EngineError, NonFiniteLogits, Stopping, traced
from engine.execution import Execution
from engine.governor import Governor
from engine.mailbox import Cancel, Command, Mailbox, Order, Stop, Submit
from engine.memory import available_bytes
from engine.preparation import prepare
from engine.promises import DEFAULT_PROMISES, Promises
from engine.request import Request, SampledToken
from engine.scheduler import Decode, Idle, Join, Prefill, Refuse, Scheduler, Start, Suspend
from engine.status import Counters, EngineFacts, LoadClock, MemorySampler, build_status
from engine.step import DecodedStep
from engine.wire import MemoryPlan, ModelStatus, Roofline, SelfTest, Status

logger = logging.getLogger(__name__)

PUBLISH_S = 0.2
GOVERN_S = 1.0
IDLE_WAKE_S = 1.0  # an idle engine refreshes its snapshot, which also proves that it is alive
MOST_BROKEN_IN_A_ROW = 3  # one bad request may be its own fault; several without a good one between are the model's

OnProgress = Callable[[int, int], None]
"""Called by the loader, on the worker's thread, with (bytes read, bytes in total)."""


class Worker:
    """`load` returns an object with the field `model`. It and what takes or tests that run on the worker's thread.

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
        kv_bits: int | None = None,
        promises: Promises = DEFAULT_PROMISES,
        text_tests: Callable[[], Sequence[SelfTest]] = tuple,
        roofline: Callable[[Any], Roofline | None] = lambda _: None,
        traces: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._describe = describe
        self._on_fatal = on_fatal
        self._kv_bits = kv_bits
        self._traces = traces
        self._text_tests = text_tests
        self._roofline = roofline
        self._clock = clock
        self._started_at = clock()
        self._load_clock = LoadClock(clock)
        self._facts = EngineFacts(concurrency=max_streams, memory_plan=memory_plan)
        self._counters = Counters()
        self._memory = MemorySampler()
        self._buffers = KeptBuffers(memory_plan)
        self._governor = None if memory_plan is None else Governor(memory_plan)
        self._scheduler = Scheduler(
            max_streams=max_streams,
            pool=None if memory_plan is None else MemoryPool.of(memory_plan),
            promises=promises,
            restorable=self._restorable,
        )
        self._mailbox = Mailbox()
        self._answering = Answering(counters=self._counters, mailbox=self._mailbox, release=self._release, clock=clock)
        self._execution: Execution | None = None
        self._cache_version = 0
        self._broken_in_a_row = self._completed_at_last_break = 0
        self._published_at = self._governed_at = float("-inf")
        self._busy_at = self._started_at
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

    def order(self, do: Callable[[Execution], None]) -> None:
        """Have it done on the worker's thread, between two steps. Running requests wait that long, and go on."""
        self._mailbox.order(do)

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
                execution = self._load_model()
                self._serve(execution)
        except Stopping as stopping:
            self._facts.state = "stopping"
            self._end_all(stopping)
        except EngineError as error:
            logger.error("engine ends reason=%s", error.message)
            self._die(error)
        except Exception as failure:
            # MLX raises RuntimeError, and its words are needed; those of any other error may quote a prompt.
            words = f"{type(failure).__name__}: {failure}" if isinstance(failure, RuntimeError) else traced(failure)
            logger.error("device failed error=%s at=%s", words, traced(failure))
            self._die(DeviceFailed(words))
        finally:
            self._execution = None
            # Without this the thread's compile cache is torn down after the interpreter: exit code 134.
            mx.clear_streams()

    def _load_model(self) -> Execution:
        keep_resident()
        loaded = self._load(self._on_progress)
        prepared = prepare(loaded.model, kv_bits=self._kv_bits, traces=self._traces)
        self._execution = prepared.execution
        self._scheduler.set_model(
            needs_snapshots=prepared.needs_snapshots,
            is_padded=prepared.layout.kind == "padded",
            is_cache_on=prepared.is_cache_on,
        )
        self._facts.model = self._describe(loaded)
        self._facts.layout, self._facts.self_tests = prepared.layout, (*prepared.tests, *self._text_tests())
        self._facts.roofline = self._roofline(loaded)
        mx.clear_cache()
        gc.collect()
        gc.freeze()  # a full collection would walk the model's and the libraries' objects: 37 ms of a stream's gap
        self._on_progress(self._facts.load.bytes_read, self._facts.load.bytes_total)
        self._facts.state = "ready"
        self._publish()
        logger.info("engine ready layout=%s seconds=%.1f", prepared.layout.kind, self._facts.load.seconds)
        return prepared.execution

    def _on_progress(self, bytes_read: int, bytes_total: int) -> None:
        if self._mailbox.is_stopping:
            raise Stopping
        self._facts.load = self._load_clock.read(bytes_read, bytes_total)
        self._publish_if_due()

    def _serve(self, execution: Execution) -> None:
        """Commands, then one action, again and again, until Stopping is raised."""
        while True:
            while (command := self._mailbox.take()) is not None:
                self._obey(execution, command)
            self._act(execution)
            self._publish_if_due()

    def _obey(self, execution: Execution, command: Command) -> None:
        match command:
            case Submit(request):
                self._counters.submitted += 1
                self._scheduler.enter(request)
                self._publish()
            case Cancel(request):
                if self._mailbox.is_live(request):
                    self._answering.finish(request, "cancelled")
            case Order(do):
                self._paused(lambda: do(execution))
                self._notice_cache(execution)
                self._publish()
            case Stop():
                raise Stopping

    def _act(self, execution: Execution) -> None:
        action = self._scheduler.next_action(self._clock())
        if not isinstance(action, Idle):
            self._busy_at = self._clock()
        if not isinstance(action, Start | Idle):  # a start moves blocks into its row before the cache shrinks
            execution.fit_cache(self._scheduler.free_for_cache_bytes)
        match action:
            case Start(request):
                self._read_step_in_flight(execution)
                self._paused(lambda: execution.start(request, cache_bytes=self._scheduler.free_for_cache_bytes))
                self._answering.tell_progress(request)
                self._publish()
            case Prefill(request, num_tokens):
                self._prefill(execution, request, num_tokens)
            case Join(request):
                self._paused(lambda: execution.join(request))
                self._counters.membership_epoch += 1
                self._publish()
            case Decode():
                self._decode(execution)
            case Suspend(request):
                self._suspend(execution, request)
            case Refuse(request, error):
                self._answering.fail(request, error)
            case Idle():
                self._rest(execution)
        self._notice_cache(execution)
        self._buffers.fit()
        self._govern_if_due(execution)

    def _rest(self, execution: Execution) -> None:
        """Give unused memory back after a while, and wait for a command."""
        mx.synchronize()
        self._buffers.rest(idle_s=self._clock() - self._busy_at)
        execution.fit_cache(self._scheduler.free_for_cache_bytes)
        self._publish()
        command = self._mailbox.take(wait_s=IDLE_WAKE_S)
        if command is not None:
            self._obey(execution, command)

    # --- actions -----------------------------------------------------------------------------------------------------

    def _prefill(self, execution: Execution, request: Request, num_tokens: int) -> None:
        if self._read_step_in_flight(execution):  # which may have changed what is to be done
            return
        began_at = self._clock()
        execution.prefill(request, num_tokens)
        elapsed_ms = (self._clock() - began_at) * 1000
        self._scheduler.observe_prefill(request, num_tokens, elapsed_ms)
        self._counters.prefilled(num_tokens, elapsed_ms)
        self._answering.tell_progress(request)

    def _decode(self, execution: Execution) -> None:
        began_at = self._clock()
        self._emit(execution.decode(), began_at)

    def _read_step_in_flight(self, execution: Execution) -> bool:
        """Whether there was one. Its tokens must not wait for whatever is done next."""
        began_at = self._clock()
        step = execution.drain()
        if step is not None:
            self._emit(step, began_at)
        return step is not None

    def _emit(self, step: DecodedStep, began_at: float) -> None:
        """Count a step that was just read, and hand its tokens to their requests."""
        device_ms = (self._clock() - began_at) * 1000
        num_tokens = sum(isinstance(outcome.result, SampledToken) for outcome in step.outcomes)
        self._counters.decoded(step.width, num_tokens, device_ms)
        self._scheduler.observe_decode(device_ms)  # before requests end: what that takes is a pause for the others
        for outcome in step.outcomes:
            if isinstance(outcome.result, SampledToken):
                self._answering.take_token(outcome.request, outcome.result)
            elif isinstance(outcome.result, NonFiniteLogits):
                self._fail_broken(outcome.request, outcome.result)
            else:  # a grammar is its request's own fault, however often
                self._answering.fail(outcome.request, outcome.result)

    def _fail_broken(self, request: Request, error: NonFiniteLogits) -> None:
        self._answering.fail(request, error)
        if self._execution is not None:
            self._execution.clear_cache()  # what it computed would break whoever shares its prefix, and itself again
        if self._counters.completed != self._completed_at_last_break:
            self._completed_at_last_break, self._broken_in_a_row = self._counters.completed, 0
        self._broken_in_a_row += 1
        if self._broken_in_a_row >= MOST_BROKEN_IN_A_ROW:
            raise DeviceFailed(f"{self._broken_in_a_row} requests in a row failed: {error}")

    def _suspend(self, execution: Execution, request: Request) -> None:
        """Memory is short: what the request has computed goes to the prefix cache, and its row is freed."""
        # Its token was sampled, so it must not be sampled again; it may be the last.
        self._read_step_in_flight(execution)
        self._paused(lambda: self._give_up_row(execution, request))
        self._counters.membership_epoch += 1
        logger.info("request suspended id=%s tokens=%d", request.id, len(request.tokens))
        self._publish()

    def _paused(self, work: Callable[[], None]) -> None:
        """Do what the running streams wait for beside prefilling: it is paid back to them like a slice."""
        began_at = self._clock()
        work()
        self._scheduler.observe_pause((self._clock() - began_at) * 1000)

    def _release(self, request: Request) -> None:
        """Forget a request and let go of its memory."""
        if request.phase == "decode":
            self._counters.membership_epoch += 1
        self._scheduler.remove(request)
        execution = self._execution
        if execution is not None:
            self._paused(lambda: self._give_up_row(execution, request))
        self._mailbox.forget(request)
        self._publish()

    def _give_up_row(self, execution: Execution, request: Request) -> None:
        execution.fit_cache(self._scheduler.free_for_cache_bytes)  # its row's memory becomes the cache's
        execution.release(request)

    def _restorable(self, request: Request) -> int:
        return 0 if self._execution is None else self._execution.restorable(request)

    def _notice_cache(self, execution: Execution) -> None:
        if execution.cache_version != self._cache_version:
            self._cache_version = execution.cache_version
            self._scheduler.prefix_changed()

    def _govern_if_due(self, execution: Execution) -> None:
        """Hold the pool to what the machine still has."""
        now = self._clock()
        if self._governor is None or now - self._governed_at < GOVERN_S:
            return
        self._governed_at = now
        memory = self._memory.sample(now, kv_bytes=execution.kv_bytes)
        gpu_bytes = free_gpu_bytes()
        free_bytes = available_bytes() if gpu_bytes is None else gpu_bytes
        # What MLX keeps without using it is as good as free for whatever it computes next.
        pool_bytes = self._governor.observe(
            now_s=now,
            available_bytes=free_bytes + memory.cache_bytes,
            active_bytes=memory.active_bytes,
            pool_used_bytes=execution.kv_bytes + execution.cache_bytes,
            process_bytes=max(0, memory.process_bytes - memory.cache_bytes) if gpu_bytes is None else 0,
        )
        self._buffers.observe(available_bytes=free_bytes)
        self._scheduler.set_pool_bytes(pool_bytes)

    # --- the end, and the snapshot -----------------------------------------------------------------------------------

    def _die(self, error: EngineError) -> None:
        self._facts.state, self._facts.error = "failed", error.message
        try:
            self._end_all(error)
        finally:
            self._on_fatal(error)

    def _end_all(self, error: EngineError) -> None:
        """Take nothing more, and fail whoever is here or was about to enter."""
        if self._execution is not None:
            self._execution.stop_trace("ended")
        self._execution = None
        present = set(map(id, self._scheduler.requests))
        for request in self._mailbox.close():
            if id(request) not in present:
                self._counters.submitted += 1
                self._scheduler.enter(request)
            try:
                self._answering.fail(request, error)
            except Exception as failure:  # the others must be told all the same
                logger.error("could not end a request id=%s error=%s", request.id, traced(failure))
        self._publish()

    def _publish_if_due(self) -> None:
        if self._clock() - self._published_at >= PUBLISH_S:
            self._publish()

    def _publish(self) -> None:
        self._published_at = self._clock()
        self.snapshot = self._status()

    def _status(self) -> Status:
        now = self._clock()
        execution = self._execution
        return build_status(
            self._facts,
            self._counters,
            self._scheduler,
            self._memory.sample(now, kv_bytes=0 if execution is None else execution.kv_bytes),
            cache=None if execution is None else execution.cache_status(),
            governor=None if self._governor is None else self._governor.status(),
            trace=None if execution is None else execution.trace_status,
            now=now,
            unix_now=time.time(),
            uptime_s=now - self._started_at,
        )
