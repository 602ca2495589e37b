"""Compiles a grammar on a thread of its own, so that one that takes too long is given up instead of waited for.

It knows no grammar. A compilation that was given up goes on until it is done: a thread can't be ended. How long one
has been going on is for the door to tell (`Status.text_busy_s`), and for control to act on.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Final, TypeVar

# Beyond what any grammar within the limits of `engine.text.grammar` takes on a slow core.
LONGEST_S: Final = 5.0
# References are followed by recursion, 8 KiB a level; the largest grammar has 8,700. Only what is used is taken.
_STACK_BYTES: Final = 256 * 1024 * 1024

Result = TypeVar("Result")


class TookTooLong(Exception):
    """A compilation was given up, or not begun, because the time for it was over."""


class Deadline:
    """Until when the compilations of one request may go on."""

    def __init__(self, limit_s: float = LONGEST_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ends_at = monotonic() + limit_s

    def left_s(self) -> float:
        return self._ends_at - self._monotonic()


class Compilations:
    """`run` is called on the text thread, `longest_s` on any."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._given_up: tuple[_GivenUp, ...] = ()

    def run(self, compile_: Callable[[], Result], deadline: Deadline) -> Result:
        """What `compile_` returns or raises. Raises TookTooLong."""
        left_s, begun_at = deadline.left_s(), self._monotonic()
        if left_s <= 0:
            raise TookTooLong
        outcome: Future[Result] = Future()
        thread = _started(lambda: _settle(outcome, compile_))
        try:
            return outcome.result(left_s)
        except FutureTimeoutError as error:
            self._given_up = (*(each for each in self._given_up if each.thread.is_alive()), _GivenUp(thread, begun_at))
            raise TookTooLong from error

    def longest_s(self) -> float:
        """How long the oldest one that was given up has been going on; 0 when there is none."""
        begun = [each.begun_at for each in self._given_up if each.thread.is_alive()]
        return self._monotonic() - min(begun) if begun else 0.0


@dataclass(frozen=True, slots=True)
class _GivenUp:
    thread: threading.Thread
    begun_at: float


def _started(work: Callable[[], None]) -> threading.Thread:
    usual_bytes = threading.stack_size(_STACK_BYTES)
    try:
        thread = threading.Thread(target=work, name="grammar", daemon=True)
        thread.start()
    finally:
        threading.stack_size(usual_bytes)
    return thread


def _settle(outcome: "Future[Result]", compile_: Callable[[], Result]) -> None:
    try:
        outcome.set_result(compile_())
    except Exception as error:  # raised again where the result is waited for
        outcome.set_exception(error)
