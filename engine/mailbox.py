"""How other threads reach the worker: requests, cancellations, orders, and who is still owed an ending.

It runs nothing: the worker takes commands from it between two steps.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from engine.errors import InvalidRequest, Stopping
from engine.request import Request


@dataclass(frozen=True, slots=True)
class Submit:
    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    request: Request


@dataclass(frozen=True, slots=True)
class Order:
    """Something to be done on the worker's thread between two steps, with the `Execution`; streams wait for it."""

    do: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = Submit | Cancel | Order | Stop


class Mailbox:
    """`submit`, `cancel`, `order` and `stop` are for any thread; the rest is for the worker's."""

    def __init__(self) -> None:
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._live: dict[str, Request] = {}
        # The one lock of the engine: a request must not slip in between the worker's last look and its end, and its
        # cancellation must not come before it.
        self._door = threading.Lock()
        self._is_open = True
        self.is_stopping = False

    def submit(self, request: Request) -> None:
        """Raises Stopping when the engine is on its way out, InvalidRequest for an empty prompt or an id that runs."""
        if not request.prompt:
            raise InvalidRequest("the prompt has no tokens", param="prompt")
        with self._door:
            if not self._is_open or self.is_stopping:
                raise Stopping
            if request.id in self._live:
                raise InvalidRequest(f"a request with the id {request.id!r} is running already", param="id")
            self._live[request.id] = request
            self._commands.put(Submit(request))

    def cancel(self, request_id: str) -> bool:
        with self._door:
            request = self._live.get(request_id)
            if request is None:
                return False
            self._commands.put(Cancel(request))
            return True

    def order(self, do: Callable[[Any], None]) -> None:
        self._commands.put(Order(do))

    def stop(self) -> None:
        self.is_stopping = True
        self._commands.put(Stop())

    def take(self, *, wait_s: float | None = None) -> Command | None:
        """The next command; None when there is none, or none came within `wait_s`."""
        try:
            return self._commands.get_nowait() if wait_s is None else self._commands.get(timeout=wait_s)
        except Empty:
            return None

    def is_live(self, request: Request) -> bool:
        return self._live.get(request.id) is request

    def forget(self, request: Request) -> None:
        """The request got its ending."""
        self._live.pop(request.id, None)

    def close(self) -> list[Request]:
        """Take nothing more; returns who is still owed an ending."""
        with self._door:
            self._is_open = False
            return list(self._live.values())
