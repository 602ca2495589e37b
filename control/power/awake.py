"""Whether the machine must stay awake, for what, and how soon a caffeinate that ended is started again. Pure policy.

1. Requests that run, wait or are held keep it awake, unless the setting is `never`.
2. When the last one ends it is kept awake a little longer: the next turn of an agent comes within seconds.
3. `loaded`: as long as an engine lives, too.
"""

from dataclasses import dataclass
from typing import Final

from control.wire_power import AwakeReason, KeepAwake

# An agent's tool runs for seconds between two turns; a Mac whose idle time is over sleeps soon after the last
# assertion ends. It also bounds how often a process is started: twice a minute.
LINGER_S: Final = 30.0
BACK_OFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
# One that lived that long was in order, whatever ended it.
STEADY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Situation:
    """`num_requests` run, wait or are held."""

    keep_awake: KeepAwake
    has_engine: bool
    num_requests: int


class AwakePolicy:
    """Times are monotonic seconds, which stand still in sleep."""

    def __init__(self, *, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._busy_at: float | None = None

    def reason(self, situation: Situation, *, now: float) -> AwakeReason | None:
        """None: it may sleep."""
        if situation.num_requests > 0:
            self._busy_at = now
        if situation.keep_awake == "never":
            return None
        if situation.num_requests > 0:
            return "requests"
        if not situation.has_engine:
            return None
        if situation.keep_awake == "loaded":
            return "loaded"
        was_busy = self._busy_at is not None and now - self._busy_at < self._linger_s
        return "linger" if was_busy else None


class BackOff:
    """When the next one may be started. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._num_failures = 0
        self._not_before = float("-inf")

    def is_over(self, *, now: float) -> bool:
        return now >= self._not_before

    def failed(self, *, now: float, lived_s: float = 0.0) -> None:
        """It ended by itself after `lived_s`, or could not be started at all."""
        if lived_s >= STEADY_S:
            self._num_failures = 0
        self._not_before = now + BACK_OFF_S[min(self._num_failures, len(BACK_OFF_S) - 1)]
        self._num_failures += 1
