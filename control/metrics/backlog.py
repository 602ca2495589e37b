"""Entries that wait to be written: filled on the event loop, emptied on the writing thread, and bounded.

It writes nothing. What does not fit is lost, the oldest first, and counted.
"""

import threading
from collections import deque

from control.metrics.recording import Entry


class Backlog:
    """`losses`: entries that will never be written."""

    def __init__(self, limit: int) -> None:
        self.losses = 0
        self._limit = limit
        self._rows: deque[Entry] = deque()
        self._num_taken = 0
        self._is_closed = False
        # The only state of control that two threads change.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Of those that nobody has taken."""
        return len(self._rows)

    @property
    def num_unwritten(self) -> int:
        """With those that were taken and neither written nor given back so far."""
        with self._lock:
            return len(self._rows) + self._num_taken

    def add(self, row: Entry) -> bool:
        """Whether it was taken: after `close` it is lost."""
        with self._lock:
            if self._is_closed:
                self.losses += 1
                return False
            self._rows.append(row)
            self._drop_oldest()
            return True

    def take(self) -> list[Entry]:
        """All of them, the oldest first. Those that were not written are given back."""
        with self._lock:
            rows, self._rows = list(self._rows), deque()
            self._num_taken = len(rows)
            return rows

    def written(self) -> None:
        """All that were taken; or lost."""
        with self._lock:
            self._num_taken = 0

    def give_back(self, rows: list[Entry]) -> None:
        with self._lock:
            self._num_taken = 0
            self._rows.extendleft(reversed(rows))
            self._drop_oldest()

    def lose(self, count: int) -> None:
        with self._lock:
            self.losses += count

    def close(self) -> int:
        """Nobody writes any more: what is left is lost. How many those are."""
        with self._lock:
            self._is_closed = True
            num_left = len(self._rows)
            self._rows.clear()
            self.losses += num_left
            return num_left

    def _drop_oldest(self) -> None:
        while len(self._rows) > self._limit:
            self._rows.popleft()
            self.losses += 1
