"""What the device does next: start, prefill a slice, let the streams decode, suspend, refuse. Pure policy, no MLX.

It does nothing itself and reads no clock: the worker asks `next_action(now)`, does it, and reports what it took.

1. At most `max_streams` requests run. The line (`line.py`) says who is looked at first.
2. A slice is as long as measured speed lets it be in 0.8 x `max_gap_ms` while anyone decodes, in 800 ms otherwise. It
   ends on a block, unless it is the end of the input, an armed boundary or shorter than two blocks.
3. After t ms in which streams waited, for a slice or anything else, they decode t * share / (1 - share) ms, less what
   they had too much the time before. Whatever they waited for, they decode one step before they wait again.
4. Who in line would go before all who are being prefilled starts, and has the next slice (`precedence.py`): urgent
   before batch, one document at a time, shorter ones past it 3 times in all.
5. Who shares a prefix that another is computing waits for it (`siblings.py`), and may be passed by anyone.
6. A request that does not fit in the memory pool beside the running ones waits, and everyone behind it. A full row
   grows by what the pool has left; when that is nothing, the youngest prefill, else the youngest stream, batch first,
   gives its memory back and is first in line again. It starts when there is room for it and for one growth more. Only
   who is alone and does not fit is refused.
"""

from collections.abc import Callable
from dataclasses import replace

from engine.actions import Action, Decode, Idle, Join, Prefill, Refuse, Start, Suspend
from engine.admission import BOUNDLESS, MemoryPool, growth_tokens
from engine.blocks import BLOCK_TOKENS, floor_to_block
from engine.errors import OutOfMemory
from engine.line import Line
from engine.pace import PrefillPace
from engine.precedence import Precedence, num_left
from engine.promises import DEFAULT_PROMISES, SLICE_ALONE_MS, Credit, PromiseKeeper, Promises
from engine.request import Request
from engine.siblings import Siblings
from engine.wire import PromiseStatus

__all__ = ["Action", "Decode", "Idle", "Join", "Prefill", "Refuse", "Scheduler", "Start", "Suspend"]


class Scheduler:
    """Owns who waits, who is prefilled and who decodes, and of each request its phase, room and prefilled length."""

    def __init__(
        self,
        *,
        max_streams: int,
        pool: MemoryPool | None = None,
        promises: Promises = DEFAULT_PROMISES,
        restorable: Callable[[Request], int] = lambda _: 0,
        needs_snapshots: bool = False,
    ) -> None:
        self._max_streams = max_streams
        self._pool = self._planned_pool = BOUNDLESS if pool is None else pool
        self._promises = promises
        self._keeper = PromiseKeeper(promises)
        self._line = Line()
        self._siblings = Siblings(restorable=restorable, needs_snapshots=needs_snapshots)
        self._precedence = Precedence(self._line, self._siblings)
        self._pace = PrefillPace()  # of the last slice
        self._paces: dict[Request, PrefillPace] = {}
        self.prefilling: list[Request] = []
        """In the order in which they started."""
        self.decoding: list[Request] = []
        """In the order in which they joined."""
        self._never_fit: list[Request] = []
        self._blocked: Request | None = None
        self._owed_ms = 0.0  # decoding that the streams must have before the next slice; below 0: had too much
        self._credit = Credit()
        self._is_step_due = False  # the streams have waited, or one is new
        self._had_last_step: frozenset[Request] = frozenset()  # streams
        self._ends_gap = False
        self.suspensions = self.resumptions = 0

    # --- who is here -------------------------------------------------------------------------------------------------

    @property
    def is_blocked_by_memory(self) -> bool:
        """Whether the first in line could run but for memory."""
        return self._blocked is not None

    @property
    def running(self) -> list[Request]:
        return [*self.decoding, *self.prefilling]

    @property
    def waiting(self) -> list[Request]:
        return list(self._line)

    @property
    def requests(self) -> list[Request]:
        return [*self.running, *self._line]

    @property
    def waiting_prefix(self) -> int:
        """How many of those in line wait for a prefix that another computes."""
        return self._siblings.num_waiting

    @property
    def prefix_waits(self) -> int:
        return self._siblings.prefix_waits

    @property
    def overtakes(self) -> int:
        return self._precedence.overtakes

    @property
    def free_for_cache_bytes(self) -> int:
        """What running requests leave of the pool to the prefix cache."""
        return max(0, self._pool.pool_bytes - self._pool.used_bytes(self.running))

    def promise_status(self) -> PromiseStatus:
        return self._keeper.status()

    # --- what happened -----------------------------------------------------------------------------------------------

    def set_model(self, *, needs_snapshots: bool, is_padded: bool, is_cache_on: bool) -> None:
        """What is known of the model's layers, layout and prefix cache once it is loaded."""
        self._siblings.needs_snapshots = needs_snapshots
        self._siblings.is_cache_on = is_cache_on
        self._pool = replace(self._pool, is_padded=is_padded)
        self._planned_pool = replace(self._planned_pool, is_padded=is_padded)

    def set_pool_bytes(self, nbytes: int) -> None:
        """What the machine allows now. Who runs alone keeps what it has, also when that is more."""
        self._pool = replace(self._pool, pool_bytes=nbytes)

    def prefix_changed(self) -> None:
        """The prefix cache got or lost entries."""
        self._siblings.prefix_changed()

    def enter(self, request: Request) -> None:
        """Stand in line."""
        self._line.enter(request)
        if not self._planned_pool.can_hold(request):
            self._never_fit.append(request)

    def remove(self, request: Request) -> None:
        """Forget a request, wherever it is: it finished, failed or was cancelled."""
        self._leave_device(request)
        self._line.forget(request)
        self._siblings.forget(request)
        if request in self._never_fit:
            self._never_fit.remove(request)
        if request is self._blocked:
            self._blocked = None

    def observe_prefill(self, request: Request, num_tokens: int, elapsed_ms: float) -> None:
        """A slice was done in `elapsed_ms`."""
        self._pace = self._pace_of(request)
        self._pace.observe(num_tokens, elapsed_ms, target_ms=self._target_ms, depth=request.prefilled_len)
        request.prefilled_len += num_tokens
        if self.decoding:
            self._keeper.sliced(elapsed_ms)
            self._owe(elapsed_ms)

    def observe_pause(self, elapsed_ms: float) -> None:
        """The streams waited `elapsed_ms` for anything but a slice: restoring, joining, publishing."""
        if self.decoding:
            self._keeper.paused(elapsed_ms)
            self._owe(elapsed_ms)

    def observe_decode(self, elapsed_ms: float) -> None:
        """A step of the decoding streams was done in `elapsed_ms`."""
        self._keeper.decoded(elapsed_ms, ends_gap=self._ends_gap)
        self._credit.stepped(elapsed_ms)
        self._owed_ms = max(self._owed_ms - elapsed_ms, -self._credit.limit_ms)
        self._is_step_due = False
        self._had_last_step = frozenset(self.decoding)

    # --- what to do --------------------------------------------------------------------------------------------------

    def next_action(self, now: float) -> Action:
        """`now` is monotonic seconds. Starting, joining and suspending take effect here; the rest when observed."""
        if not self.decoding:
            self._owed_ms = 0.0
            self._is_step_due = False
            self._had_last_step = frozenset()
            self._keeper.nobody_decodes()
        self._ends_gap = not self._had_last_step.isdisjoint(self.decoding)
        return (
            self._refuse_hopeless()
            or self._make_room(now)
            or self._join()
            or self._pay()
            or self._start(now)
            or self._slice(now)
            or (Decode() if self.decoding else Idle())
        )

    def _refuse_hopeless(self) -> Refuse | None:
        if not self._never_fit:
            return None
        request = self._never_fit[0]
        return self._refuse(request, self._planned_pool.bytes_of(request.input_len + 1), self._planned_pool)

    def _make_room(self, now: float) -> Suspend | Refuse | None:
        """Give each row that the next step would overfill more room. A step launches one token ahead of the known."""
        running = self.running
        is_alone = len(running) == 1
        if not is_alone and self._pool.used_bytes(running) > self._pool.pool_bytes:
            return self._suspend(self._precedence.youngest(self.prefilling or self.decoding, now))
        for request in self.decoding:
            while request.input_len + 1 > request.room_len:
                growth = self._pool.growth_of(request, running)
                if growth == 0 and is_alone:
                    needed_bytes = self._pool.used_bytes(running) + self._pool.kv_bytes_per_token
                    return self._refuse(request, needed_bytes, self._pool)
                if growth == 0:
                    return self._suspend(self._precedence.youngest(self.prefilling or self.decoding, now))
                request.room_len += growth
        return None

    def _join(self) -> Join | None:
        ready = next((each for each in self.prefilling if num_left(each) <= 0), None)
        has_waited_long = self._keeper.waited_ms >= self._promises.slice_while_decoding_ms
        if ready is None or (self._is_step_due and has_waited_long):
            return None
        self._leave_prefilling(ready)
        ready.phase = "decode"
        ready.prefilled_len = ready.input_len
        self.decoding.append(ready)
        self._is_step_due = True
        return Join(ready)

    def _pay(self) -> Decode | None:
        is_owed = self._is_step_due or self._owed_ms > 0
        return Decode() if self.decoding and is_owed else None

    def _start(self, now: float) -> Start | Suspend | Refuse | None:
        self._blocked = None
        is_slot_free = len(self.prefilling) + len(self.decoding) < self._max_streams
        if not is_slot_free and not self.prefilling:
            return None
        free = self._siblings.sort_out(self._line.in_order(now), self.prefilling, is_slot_free=is_slot_free)
        if not is_slot_free:
            return None
        looked_at = self._precedence.first(free, self.prefilling, now)
        return self._admit(looked_at[-1], looked_at[:-1], now) if looked_at else None

    def _admit(self, request: Request, passed: list[Request], now: float) -> Start | Suspend | Refuse | None:
        is_alone = not self.prefilling and not self.decoding
        if is_alone and not self._pool.can_hold(request):
            return self._refuse(request, self._pool.bytes_of(request.input_len + 1), self._pool)
        room_len = self._pool.room_of(request)
        # Without the growth more, who was suspended so that others grow would be again at their next growth.
        spare_len = growth_tokens(room_len) if request.is_suspended and not is_alone else 0
        if not self._pool.can_hold(request) or not self._pool.fits(room_len + spare_len, beside=self.running):
            self._blocked = request
            return self._make_way(request, room_len + spare_len, now)
        self._precedence.count_overtaking(request, passed, self.prefilling)
        self._line.take(request)
        self._siblings.stopped_waiting(request)
        self.resumptions += request.is_suspended
        request.is_suspended = False
        request.phase = "prefill"
        request.room_len = room_len
        if request.prefill_began_at is None:
            request.prefill_began_at = now
        self.prefilling.append(request)
        return Start(request)

    def _make_way(self, request: Request, room_len: int, now: float) -> Suspend | None:
        """An urgent request takes the memory of batch prefills that it goes before, if that is enough."""
        if not self._precedence.is_urgent(request, now) or not self._pool.can_hold(request):
            return None
        paused = [each for each in self.prefilling if not self._precedence.is_urgent(each, now)]
        others = [each for each in self.running if each not in paused]
        if not paused or not self._pool.fits(room_len, beside=others):
            return None
        return self._suspend(self._precedence.youngest(paused, now))

    def _slice(self, now: float) -> Prefill | None:
        if not self.prefilling:
            return None
        request = self._precedence.next_slice(self.prefilling, now)
        start = request.prefilled_len
        must_end = min((each for each in request.boundaries if each > start), default=request.input_len - 1)
        must_end = min(must_end, request.input_len - 1)
        num_tokens = self._pace_of(request).slice_tokens(self._target_ms, depth=start)
        if start + num_tokens >= must_end:
            return Prefill(request, must_end - start)
        if num_tokens >= 2 * BLOCK_TOKENS:
            num_tokens = floor_to_block(start + num_tokens) - start
        return Prefill(request, num_tokens)

    # --- what changes with it ----------------------------------------------------------------------------------------

    def _suspend(self, request: Request) -> Suspend:
        self._leave_device(request)
        self._line.put_back(request)
        request.phase = "queued"
        request.is_suspended = request.was_suspended = True
        request.prefilled_len = request.room_len = 0
        self.suspensions += 1
        return Suspend(request)

    def _refuse(self, request: Request, needed_bytes: int, pool: MemoryPool) -> Refuse:
        message = f"out of memory: the request would need {needed_bytes:,} bytes of a pool of {pool.pool_bytes:,}"
        # Other programs hold what is missing, and may give it back.
        retryable = pool.pool_bytes < self._planned_pool.pool_bytes and self._planned_pool.can_hold(request)
        error = OutOfMemory(message, needed_bytes=needed_bytes, pool_bytes=pool.pool_bytes, retryable=retryable)
        return Refuse(request, error)

    def _leave_device(self, request: Request) -> None:
        if request in self.prefilling:
            self._leave_prefilling(request)
        elif request in self.decoding:
            self.decoding.remove(request)

    def _leave_prefilling(self, request: Request) -> None:
        self.prefilling.remove(request)
        self._paces.pop(request, None)
        self._siblings.stopped_prefilling(request)

    def _owe(self, elapsed_ms: float) -> None:
        self._owed_ms += self._promises.owed_ms(elapsed_ms)
        self._is_step_due = True

    def _pace_of(self, request: Request) -> PrefillPace:
        pace = self._paces.get(request)
        if pace is None:
            pace = self._paces[request] = self._pace.for_another()
        return pace

    @property
    def _target_ms(self) -> float:
        return self._promises.slice_while_decoding_ms if self.decoding else SLICE_ALONE_MS
