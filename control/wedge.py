"""Whether an engine that lives is stuck: it answers nothing, or it has work and makes no step. Pure policy.

It asks nobody and ends nothing: `supervisor` tells it of every attempt to get a /status, and acts on its verdict.

1. Silent: no answer for a while; longer while it loads, because reading and compiling can hold the interpreter's lock.
2. Stalled: requests are in it, and neither a step was made nor a request ended; or control has sent it some, and its
   worker does not even publish. Before its first request is done, the device still compiles: patience is long.
3. Its text side is at one prompt or one grammar: nobody else's prompt is read meanwhile, or its memory grows.
4. What waits for memory alone is no work: the machine may give some back.
5. Only time between two attempts that came as they should counts: a machine or a control that slept proves nothing.
6. After a sleep all patience begins anew: the engine wakes up, too, and its device with it.
"""

from dataclasses import dataclass
from typing import Final

from engine.wire import Status


@dataclass(frozen=True, slots=True)
class WedgeLimits:
    """`awake_s`: attempts are seconds apart, an unanswered one included; what took longer was sleep."""

    silent_s: float = 30.0
    silent_while_loading_s: float = 300.0
    # A step takes 0.8 s at most, by design; far more is a device that hangs or a machine that only swaps.
    stalled_s: float = 60.0
    # The first slices of a model compile kernels for minutes.
    stalled_at_first_s: float = 300.0
    # A prompt of a million tokens takes seconds, a grammar at most five.
    text_busy_s: float = 60.0
    awake_s: float = 15.0


USUAL_LIMITS: Final = WedgeLimits()


class WedgeWatch:
    """Times are monotonic seconds. A verdict is one sentence, None while nothing is wrong."""

    def __init__(self, limits: WedgeLimits = USUAL_LIMITS) -> None:
        self._limits = limits
        self.forget()

    def forget(self) -> None:
        """The process has ended; what follows is about another."""
        self._looked_at: float | None = None
        self._newest: Status | None = None
        self._silent_s = 0.0
        self._stalled_s = 0.0
        self._text_busy_s = 0.0

    def woke(self, *, now: float) -> None:
        """The machine slept, or control stood still: the same engine, and all patience begins anew."""
        self._looked_at = now
        self._silent_s = self._stalled_s = self._text_busy_s = 0.0

    def answered(self, status: Status, *, num_sent: int, now: float) -> str | None:
        """`num_sent`: requests that control has in the engine, as far as it knows."""
        awake_s, before = self._awake_s(now), self._newest
        self._newest = status
        self._silent_s = 0.0
        # What it says itself, but no more than was seen of it: a sleep is no work.
        self._text_busy_s = min(self._text_busy_s + awake_s, status.text_busy_s) if status.ready else 0.0
        if self._text_busy_s >= self._limits.text_busy_s:
            return f"The engine prepared one request for {self._text_busy_s:.0f} s, and was killed."
        if before is None or not status.ready or not _has_work(status, before, num_sent) or _moved(status, before):
            self._stalled_s = 0.0
            return None
        self._stalled_s += awake_s
        is_first = status.request_counts.completed == 0
        limit_s = self._limits.stalled_at_first_s if is_first else self._limits.stalled_s
        if self._stalled_s < limit_s:
            return None
        return (
            f"The engine made no step for {self._stalled_s:.0f} s, though it had "
            f"{_requests(max(len(status.requests), num_sent))} to work on, and was killed."
        )

    def unanswered(self, *, is_loading: bool, now: float) -> str | None:
        self._silent_s += self._awake_s(now)
        limit_s = self._limits.silent_while_loading_s if is_loading else self._limits.silent_s
        if self._silent_s < limit_s:
            return None
        return f"The engine did not answer for {self._silent_s:.0f} s, though it lived, and was killed."

    def _awake_s(self, now: float) -> float:
        """Seconds since the attempt before this one; 0 when control slept in between."""
        passed_s = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        return passed_s if passed_s <= self._limits.awake_s else 0.0


def _has_work(status: Status, before: Status, num_sent: int) -> bool:
    if status.sampled_monotonic_s == before.sampled_monotonic_s:
        return num_sent > 0 or bool(status.requests)
    waits_for_memory = status.admission.waiting_memory > 0 and all(each.phase == "queued" for each in status.requests)
    return bool(status.requests) and not waits_for_memory


def _moved(status: Status, before: Status) -> bool:
    """A step, or an end. Requests that come, and clients that go, are not the engine's doing."""
    done, was_done = status.request_counts, before.request_counts
    return (status.steps, done.completed, done.failed) != (before.steps, was_done.completed, was_done.failed)


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
