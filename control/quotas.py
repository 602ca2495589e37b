"""The limits of each key, enforced: requests in flight, requests a day, tokens a day. Pure policy, in memory.

It reads no database (the counts of a few days are given at the start), and knows neither the line nor a request.

1. A request enters before anything is done for it, and counts in flight until it leaves, waiting or running. The relay
   gives a full key half a second first: a client that left may not have been noticed yet.
2. One that is turned away, here or later, counts as nothing.
3. Tokens are known when a request ends, so those in flight may carry a key past its limit; the next is refused.
4. A prompt that is only counted is in flight as long, and is nothing of a day.
5. A request counts on the day on which it began. Days are this machine's. A clock that goes to another day and comes
   back finds that day as it left it.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from control.errors import KeyLimitReached
from control.keys import Key
from control.metrics.local_day import local_midnight_s, next_midnight_s
from control.wire import KeyUsage

# Nobody knows when a request of the same key ends; a client that asks again so soon costs next to nothing.
IN_FLIGHT_RETRY_S: Final = 1
DAYS_LIMIT: Final = 40


@dataclass(frozen=True, slots=True)
class Entry:
    """One request that was let in. `day_s` is the midnight at which its day began."""

    key_id: int
    day_s: float


@dataclass(slots=True)
class _Count:
    requests: int = 0
    tokens: int = 0


class Quotas:
    """Changed on the event loop, synchronously.

    `days`: what each key used, by its id, on the day that began at a midnight: today, and those around it.
    """

    def __init__(
        self, days: Mapping[float, Mapping[int, KeyUsage]] | None = None, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._wall = wall
        self._day_s = local_midnight_s(wall())
        self._next_day_s = next_midnight_s(wall())
        self._days = {
            day_s: {key_id: _Count(requests=usage.requests, tokens=usage.tokens) for key_id, usage in used.items()}
            for day_s, used in (days or {}).items()
        }
        self._in_flight: dict[int, int] = {}

    def enter(self, key: Key) -> Entry:
        """Count a request in. Raises KeyLimitReached, and counts nothing. What entered must `leave` exactly once."""
        self._turn_the_day()
        count = self._days.setdefault(self._day_s, {}).setdefault(key.id, _Count())
        limits = key.limits
        self._check_in_flight(key)
        if limits.requests_per_day is not None and count.requests >= limits.requests_per_day:
            raise self._used_up(
                f"The key {key.name!r} has made its {_counted(limits.requests_per_day, 'request')} of today"
            )
        if limits.tokens_per_day is not None and count.tokens >= limits.tokens_per_day:
            raise self._used_up(
                f"The key {key.name!r} has used its {_counted(limits.tokens_per_day, 'token')} of today"
            )
        self._in_flight[key.id] = self._in_flight.get(key.id, 0) + 1
        count.requests += 1
        return Entry(key_id=key.id, day_s=self._day_s)

    def leave(self, entry: Entry, *, tokens: int, was_rejected: bool) -> None:
        """Count it out, with its prompt and completion `tokens`; one that `was_rejected` never was."""
        self._in_flight[entry.key_id] -= 1
        count = self._days.get(entry.day_s, {}).get(entry.key_id)
        if count is None:
            return
        if was_rejected:
            count.requests -= 1
        else:
            count.tokens += tokens

    def begin_count(self, key: Key) -> None:
        """The tokens of a prompt are counted for the key. Raises KeyLimitReached. Each must `end_count` once."""
        self._check_in_flight(key)
        self._in_flight[key.id] = self._in_flight.get(key.id, 0) + 1

    def end_count(self, key: Key) -> None:
        self._in_flight[key.id] -= 1

    def usage(self, key_id: int) -> KeyUsage:
        self._turn_the_day()
        count = self._days.get(self._day_s, {}).get(key_id, _Count())
        return KeyUsage(requests=count.requests, tokens=count.tokens, in_flight=self._in_flight.get(key_id, 0))

    def _check_in_flight(self, key: Key) -> None:
        limit, in_flight = key.limits.max_in_flight, self._in_flight.get(key.id, 0)
        if limit is not None and in_flight >= limit:
            raise KeyLimitReached(
                f"The key {key.name!r} may have {_counted(limit, 'request')} in flight, and has {in_flight}.",
                retry_after_s=IN_FLIGHT_RETRY_S,
            )

    def _turn_the_day(self) -> None:
        """A new day begins with nothing. One that was there already, for a clock that was wrong, goes on."""
        now = self._wall()
        if self._day_s <= now < self._next_day_s:
            return
        self._day_s = local_midnight_s(now)
        self._next_day_s = next_midnight_s(now)
        # The newest of those that a clock has shown: which of them was right is not known.
        self._days[self._day_s] = self._days.pop(self._day_s, {})
        while len(self._days) > DAYS_LIMIT:
            del self._days[next(iter(self._days))]

    def _used_up(self, sentence: str) -> KeyLimitReached:
        retry_after_s = max(1, math.ceil(self._next_day_s - self._wall()))
        return KeyLimitReached(f"{sentence}; the next day begins at midnight.", retry_after_s=retry_after_s)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
