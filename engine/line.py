"""Who stands in the engine's line, and in which order they are looked at.

It starts nobody: `scheduler.py` takes out who may run. Control's line is the long one; this one is what it released.

1. Interactive before batch, first come first served within a class; a suspended request stands before all of its class.
2. A batch request that waited 10 minutes or was overtaken 8 times is overdue: it goes before interactive ones.
3. Overdue batch and interactive requests take turns, so that neither starves the other.
4. Who stands behind the first 16 is not looked at yet: control releases only a few.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain, dropwhile, islice, takewhile
from operator import attrgetter
from typing import Final

from engine.request import Request
from engine.wire import RequestClass

BATCH_PATIENCE_S: Final = 600.0
BATCH_OVERTAKEN_LIMIT: Final = 8
LONGEST_LOOK: Final = 16

_is_suspended = attrgetter("is_suspended")


def is_overdue(request: Request, now: float) -> bool:
    if request.request_class == "interactive":
        return False
    return request.num_overtaken >= BATCH_OVERTAKEN_LIMIT or now - request.arrived_at >= BATCH_PATIENCE_S


class Line:
    """Also remembers, for as long as a request is in the engine, when it came relative to others."""

    def __init__(self) -> None:
        self._waiting: dict[RequestClass, deque[Request]] = {"interactive": deque(), "batch": deque()}
        self._arrivals: dict[Request, int] = {}
        self._num_arrived = 0
        self._is_batch_turn = True

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[Request]:
        return chain(self._waiting["interactive"], self._waiting["batch"])

    @property
    def batch(self) -> Iterator[Request]:
        return iter(self._waiting["batch"])

    def arrival(self, request: Request) -> int:
        """Grows from one request to the next; kept while it runs."""
        return self._arrivals[request]

    def enter(self, request: Request) -> None:
        self._num_arrived += 1
        self._arrivals[request] = self._num_arrived
        self._waiting[request.request_class].append(request)

    def put_back(self, request: Request) -> None:
        """A running request waits again, before all others of its class."""
        self._waiting[request.request_class].appendleft(request)

    def take(self, request: Request) -> None:
        """The request leaves the line to run."""
        self._waiting[request.request_class].remove(request)
        if request.request_class == "interactive":
            self._is_batch_turn = True
        elif self._waiting["interactive"]:
            self._is_batch_turn = False

    def forget(self, request: Request) -> None:
        """The request leaves the engine, from wherever it is."""
        del self._arrivals[request]
        if request in self._waiting[request.request_class]:
            self._waiting[request.request_class].remove(request)

    def in_order(self, now: float) -> Iterator[Request]:
        """From the first to be looked at to the last. The line must not change meanwhile."""
        interactive, batch = self._waiting["interactive"], self._waiting["batch"]
        first = self._first_overdue(now) if self._is_batch_turn and interactive else None
        if first is None:
            return islice(self, LONGEST_LOOK)
        everyone = chain(
            takewhile(_is_suspended, interactive),
            [first],
            dropwhile(_is_suspended, interactive),
            (each for each in batch if each is not first),
        )
        return islice(everyone, LONGEST_LOOK)

    def _first_overdue(self, now: float) -> Request | None:
        return next((each for each in islice(self.batch, LONGEST_LOOK) if is_overdue(each, now)), None)
