"""How often a minute a wrong password may be tried: a few times from one address, a few times more from all together.

Pure but for its clock: it checks no password. The right password is refused, too, while there are too many wrong ones.
`Waiting` bounds how many stand in line for their turn.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0
MOST_OF_ONE_ADDRESS: Final = 5
MOST_OF_ALL: Final = 30
# Each try takes a tenth of a second, on a busy machine a whole one: the last of these still has its answer in time.
MOST_WAITING: Final = 4


@dataclass(frozen=True, slots=True)
class _Failure:
    at_s: float
    address: str


class PasswordAttempts:
    """Keeps the newest MOST_OF_ALL failures and nothing else, however many addresses try."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failures: deque[_Failure] = deque(maxlen=MOST_OF_ALL)

    def wait_s(self, address: str) -> float:
        """So long until that address may try; 0 when it may now."""
        now_s = self._monotonic()
        recent = [each for each in self._failures if each.at_s > now_s - WINDOW_S]
        own = [each for each in recent if each.address == address]
        return max(_wait_s(own, MOST_OF_ONE_ADDRESS, now_s), _wait_s(recent, MOST_OF_ALL, now_s))

    def failed(self, address: str) -> None:
        self._failures.append(_Failure(self._monotonic(), address))


class Waiting:
    """How many wait for their try or have it: one, and a few behind it."""

    def __init__(self) -> None:
        self._num = 0

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Whether there is one, for as long as the block."""
        has_place = self._num <= MOST_WAITING
        self._num += has_place
        try:
            yield has_place
        finally:
            self._num -= has_place


def _wait_s(failures: list[_Failure], most: int, now_s: float) -> float:
    """Until the oldest of the newest `most` has left the window."""
    return failures[-most].at_s + WINDOW_S - now_s if len(failures) >= most else 0.0
