"""The line: the only queue, which releases at most `concurrency` requests to the engine, in order of arrival.

It does not know what a request is, nor run one; the relay stands in it with a ticket per request.
All state changes are synchronous and happen on the event loop, so nothing can interleave.

1. Interactive before batch, in order of arrival within a class.
2. Batch holds at most `concurrency` - 1 slots, but always may hold one.
3. A batch ticket that was overtaken 8 times, or waited 10 minutes, goes first: batch can't starve.
4. Nobody is admitted while the line is held; whoever was admitted stays.
5. A ticket that is not ready yet keeps its place, counts as waiting, and lets the others pass.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Literal

from control.errors import ApiError, LineFull, WaitedTooLong
from control.power.clocks import elapsed_s
from engine.wire import RequestClass

WAITING_LIMIT: Final = 256
WAIT_LIMIT_S: Final = 24 * 3600.0
MAXIMUM_CONCURRENCY: Final = 4
# The clocks are looked at this often while waiting: a timer alone stands still while a Mac sleeps.
CLOCK_CHECK_S: Final = 5.0
OVERTAKEN_LIMIT: Final = 8
BATCH_PATIENCE_S: Final = 600.0

Clock = Callable[[], float]


class Ticket:
    """One place in the line. Owned by the line; others read it, and wait for `admitted`."""

    def __init__(self, request_id: str, request_class: RequestClass = "interactive") -> None:
        self.request_id = request_id
        self.request_class = request_class
        self.admitted = asyncio.Event()
        self.is_ready = True
        self.interruption: ApiError | None = None
        """Why the request must end now, whatever it is doing; set by the line's `interrupt` and its two kin."""
        self.on_interrupt: Callable[[], object] = _nothing
        self.arrival = 0
        self.overtaken = 0
        self.joined_monotonic_s = 0.0
        self.joined_elapsed_s = 0.0


def _nothing() -> None:
    """Nobody listens yet."""


class Line:
    """Held until the first `open()`. Waiting tickets are kept in order of arrival, the oldest first."""

    def __init__(
        self,
        concurrency: int = MAXIMUM_CONCURRENCY,
        *,
        limit: int = WAITING_LIMIT,
        wait_limit_s: float = WAIT_LIMIT_S,
        monotonic: Clock = time.monotonic,
        elapsed: Clock = elapsed_s,
        clock_check_s: float = CLOCK_CHECK_S,
    ) -> None:
        self._concurrency = concurrency
        self._limit = limit
        self._wait_limit_s = wait_limit_s
        self._monotonic = monotonic
        self._elapsed = elapsed
        self._clock_check_s = clock_check_s
        self.refusal: ApiError | None = None
        """Why those that waited were turned away, and those that come now are; None while anybody may wait."""
        self._is_open = False
        self._arrivals = 0
        self._waiting: list[Ticket] = []
        self._running: list[Ticket] = []

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def concurrency(self) -> int:
        return self._concurrency

    @property
    def running(self) -> tuple[Ticket, ...]:
        """Those that hold a slot: what a drain waits for."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Ticket, ...]:
        """In the order in which they will go, if nobody else comes."""
        return tuple(self._in_order())

    def set_concurrency(self, concurrency: int) -> None:
        """1 to 4, at once. Fewer: those that run finish; nobody is admitted until there is room. Raises ValueError."""
        if not 1 <= concurrency <= MAXIMUM_CONCURRENCY:
            raise ValueError(f"concurrency must be 1 to {MAXIMUM_CONCURRENCY}, not {concurrency}")
        self._concurrency = concurrency
        self._admit()

    def open(self) -> None:
        """The engine is ready. Harmless when already open."""
        self.refusal = None
        self._is_open = True
        self._admit()

    def hold(self) -> None:
        """No engine is ready: admit nobody until `open()`. Harmless when already held."""
        self.refusal = None
        self._is_open = False

    def join(self, ticket: Ticket, *, is_ready: bool = True) -> int:
        """Stand in line; return the position, 0 when admitted at once. Raises LineFull.

        Not `is_ready`: the place is taken, and `ready` must follow before it is admitted.
        """
        if len(self._waiting) >= self._limit:
            raise LineFull(limit=self._limit)
        ticket.is_ready = is_ready
        self._arrivals += 1
        ticket.arrival = self._arrivals
        ticket.joined_monotonic_s = self._monotonic()
        ticket.joined_elapsed_s = self._elapsed()
        self._waiting.append(ticket)
        self._admit()
        return self.position(ticket)

    def ready(self, ticket: Ticket) -> None:
        """From now on it can be admitted."""
        ticket.is_ready = True
        self._admit()

    def put_back(self, ticket: Ticket) -> None:
        """Give the slot back and wait again, at the place of the first arrival, even when the line is full."""
        self._running.remove(ticket)
        ticket.admitted.clear()
        self._waiting.append(ticket)
        self._waiting.sort(key=lambda each: each.arrival)
        self._admit()

    def leave(self, ticket: Ticket) -> None:
        """Go, from wherever the ticket is. Harmless when it already went."""
        if ticket in self._running:
            self._running.remove(ticket)
        elif ticket in self._waiting:
            self._waiting.remove(ticket)
        self._admit()

    def position(self, ticket: Ticket) -> int:
        """1 for the next to go; 0 when it is not waiting."""
        if ticket not in self._waiting:
            return 0
        return self._in_order().index(ticket) + 1

    def phase(self, ticket: Ticket) -> Literal["waiting", "held", "running"]:
        if ticket in self._running:
            return "running"
        return "waiting" if self._is_open else "held"

    def interrupt(self, request_id: str, error: ApiError) -> bool:
        """End one request with `error`, wherever it is. False when it is not here."""
        found = [ticket for ticket in (*self._running, *self._waiting) if ticket.request_id == request_id]
        return self._interrupt(found, error) > 0

    def cut_running(self, error: ApiError) -> int:
        """Force stop: end those that run with `error`; return how many."""
        return self._interrupt(self._running, error)

    def turn_away_waiting(self, error: ApiError) -> int:
        """Quit, or no model can come any more: end those that wait with `error`; return how many."""
        self.refusal = error
        return self._interrupt(self._waiting, error)

    async def wait(self, ticket: Ticket) -> None:
        """Until admitted. Raises WaitedTooLong when the limit since `join` is over, time in sleep included."""
        while not ticket.admitted.is_set():
            remaining_s = self._remaining_s(ticket)
            if remaining_s <= 0:
                raise WaitedTooLong(limit_s=self._wait_limit_s)
            await _wait_up_to(ticket.admitted, min(remaining_s, self._clock_check_s))

    def _remaining_s(self, ticket: Ticket) -> float:
        # Not by Unix time: a clock that is set a day forward must not turn everybody away.
        waited_s = max(self._monotonic() - ticket.joined_monotonic_s, self._elapsed() - ticket.joined_elapsed_s)
        return self._wait_limit_s - waited_s

    def _interrupt(self, tickets: list[Ticket], error: ApiError) -> int:
        fresh = [ticket for ticket in tickets if ticket.interruption is None]
        for ticket in fresh:
            ticket.interruption = error
            ticket.on_interrupt()
        return len(fresh)

    def _admit(self) -> None:
        while self._is_open and len(self._running) < self._concurrency:
            ticket = self._next()
            if ticket is None:
                return
            self._note_overtaking(ticket)
            self._waiting.remove(ticket)
            self._running.append(ticket)
            ticket.admitted.set()

    def _next(self) -> Ticket | None:
        for ticket in self._in_order():
            if ticket.is_ready and (ticket.request_class == "interactive" or self._batch_has_room()):
                return ticket
        return None

    def _batch_has_room(self) -> bool:
        num_batch = sum(ticket.request_class == "batch" for ticket in self._running)
        return num_batch < max(1, self._concurrency - 1)

    def _in_order(self) -> list[Ticket]:
        # sorted() is stable, and _waiting is in order of arrival.
        return sorted(self._waiting, key=self._rank)

    def _rank(self, ticket: Ticket) -> int:
        if ticket.request_class == "interactive":
            return 1
        is_overdue = (
            ticket.overtaken >= OVERTAKEN_LIMIT or self._monotonic() - ticket.joined_monotonic_s >= BATCH_PATIENCE_S
        )
        return 0 if is_overdue else 2

    def _note_overtaking(self, admitted: Ticket) -> None:
        for ticket in self._waiting:
            if ticket.is_ready and ticket.arrival < admitted.arrival:
                ticket.overtaken += 1


async def _wait_up_to(event: asyncio.Event, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return
