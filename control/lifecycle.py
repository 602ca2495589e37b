"""The life of the engine process as policy: which state follows an event, and what must be done about it.

It does nothing itself: no process, no clock, no queue. `supervisor` reports events and carries the actions out.

    unloaded ──load──▶ loading ──ready──▶ ready ──unload, switch, restart, quit──▶ draining ──line is empty──▶ stopping
        ▲                 │  ▲              │                                          │ (force: at once)        │
        │           died  ▼  │ back-off     ▼ died                                     └──────── died ───────────┤
        │              crashed ◀────────────┘                                                                    │
        │                 │ too many, or refused ──▶ failed                                                      │
        └──────── nothing is to follow ◀───────── engine is gone ──────── something is: loading ◀────────────────┘
"""

from dataclasses import dataclass
from typing import Final, Literal

from control.wire import EngineState

BACK_OFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
FAILURE_LIMIT: Final = 5
FAILURE_WINDOW_S: Final = 120.0

# ready: the line releases requests. held: it keeps them for the engine that is coming. none: nobody is coming (503).
Gate = Literal["ready", "held", "none"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the engine is to be started with. Defaults: engine.wire.Launch."""

    model: str
    context: int | None = None
    budget_bytes: int | None = None
    kv_bits: int | None = None
    max_gap_ms: float = 500.0
    decode_share: float = 0.5


@dataclass(frozen=True, slots=True)
class Spawn:
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Stop:
    """End the engine and prove that it is gone. `force`: without its consent."""

    force: bool = False


Action = Spawn | Stop


@dataclass(frozen=True, slots=True)
class Exit:
    """How the engine ended. `is_final`: it refused what it was asked, so that trying again would not help.

    `last_lines`: what its log ends with, when that says more than `reason`.
    """

    reason: str
    is_final: bool = False
    last_lines: tuple[str, ...] = ()


class Lifecycle:
    """One engine's life. Every event returns the action to carry out now, or None."""

    def __init__(self, *, now: float) -> None:
        self.state: EngineState = "unloaded"
        self.since = now
        self.wanted: Wanted | None = None
        self.error: str | None = None
        self.restarts = 0
        self.retry_at: float | None = None
        self._next: Wanted | None = None
        self._was_loaded = False
        self._is_engine_left = False  # it did not end when it should have
        self._failures: list[float] = []  # since the engine last stayed ready for a whole window
        self._failed_loads = 0  # since the engine was last ready
        self._failed_starts = 0  # in a row, of no engine at all

    @property
    def gate(self) -> Gate:
        if self.state == "ready":
            return "ready"
        if self.state in ("loading", "draining", "stopping", "crashed"):
            return "held"
        # Unloaded by a person is a pause; never loaded and failed have nobody on the way.
        return "held" if self.state == "unloaded" and self._was_loaded else "none"

    @property
    def coming(self) -> Wanted | None:
        """The model that follows the one that is being drained or stopped."""
        return self._next

    # --- What a person asks ---

    def load(self, wanted: Wanted, *, now: float, again: bool = False) -> Action | None:
        """Run this model; a running one is drained first. `again`: also when it is the one that runs."""
        if self._is_engine_left:
            self._next = wanted
            return self._stop(now, force=True)
        if self.state in ("unloaded", "failed", "crashed"):
            self._forgive()
            return self._spawn(wanted, now)
        if self.state in ("loading", "ready") and wanted == self.wanted and not again:
            return None
        self._next = wanted
        if self.state == "loading":
            return self._stop(now)
        if self.state == "ready":
            self._move("draining", now)
        return None

    def unload(self, *, now: float, force: bool = False) -> Action | None:
        """Run nothing. Graceful unless `force`; while it drains, `force` cuts it short."""
        self._next = None
        if self._is_engine_left:
            return self._stop(now, force=True)
        if self.state in ("crashed", "failed"):
            self._finish_unload(now)
        elif self.state == "loading" or (force and self.state in ("ready", "draining")):
            return self._stop(now, force=force)
        elif force and self.state == "stopping":
            return Stop(force=True)
        elif self.state == "ready":
            self._move("draining", now)
        return None

    # --- What happens ---

    def adopted(self, wanted: Wanted, *, now: float) -> None:
        """A live engine of ours was found. Whether it is ready it must say itself."""
        self.wanted = wanted
        self.error = None
        self.retry_at = None
        self._move("loading", now)

    def became_ready(self, *, now: float) -> None:
        self.error = None
        self._was_loaded = True
        self._failed_loads = self._failed_starts = 0
        self._move("ready", now)

    def drained(self, *, now: float) -> Action | None:
        """No request runs any more."""
        return self._stop(now) if self.state == "draining" else None

    def exited(self, end: Exit, *, now: float) -> Action | None:
        """The engine process is gone, asked or not."""
        self._is_engine_left = False
        self._failed_starts = 0
        if self.state in ("draining", "stopping"):
            if self._next is not None:
                following, self._next = self._next, None
                return self._spawn(following, now)
            self._finish_unload(now)
            return None
        if self.state not in ("loading", "ready"):
            return None
        self.error = end.reason
        self._count_failure(now)
        if end.is_final:
            self._move("failed", now)
        elif self._is_hopeless(now):
            sentence = f"The engine ended {len(self._failures)} times in a row and is not started again."
            self.error = "\n".join([f"{sentence} Last: {end.reason}", *end.last_lines])
            self._move("failed", now)
        else:
            self.retry_at = now + BACK_OFF_S[min(len(self._failures), len(BACK_OFF_S)) - 1]
            self._move("crashed", now)
        return None

    def not_started(self, reason: str, *, now: float) -> None:
        """There is no engine, for a reason outside of it, which may pass: it is tried again for as long as it takes.

        No failure of the engine's: a disk that is full for an hour must not cost those who are held their place.
        """
        self.error = reason
        self.retry_at = now + BACK_OFF_S[min(self._failed_starts, len(BACK_OFF_S) - 1)]
        self._failed_starts += 1
        self._move("crashed", now)

    def left_over(self, reason: str, *, now: float) -> None:
        """An engine is there that can't be used, only ended: it outlived its end, or nobody knows its secret."""
        self._next = None
        self._is_engine_left = True
        self.error = reason
        self._move("failed", now)

    def tick(self, *, now: float) -> Action | None:
        """Time has passed."""
        if self.state == "crashed" and self.retry_at is not None and now >= self.retry_at and self.wanted is not None:
            if not self._failed_starts:
                self.restarts += 1
            return self._spawn(self.wanted, now, keep_error=True)
        return None

    # --- Steps ---

    def _spawn(self, wanted: Wanted, now: float, *, keep_error: bool = False) -> Spawn:
        self.wanted = wanted
        self.retry_at = None
        if not keep_error:
            self.error = None
        self._move("loading", now)
        return Spawn(wanted)

    def _stop(self, now: float, *, force: bool = False) -> Stop:
        self._move("stopping", now)
        return Stop(force=force)

    def _finish_unload(self, now: float) -> None:
        self.wanted = None
        self.error = None
        self.retry_at = None
        self._was_loaded = True
        self._forgive()
        self._move("unloaded", now)

    def _forgive(self) -> None:
        self._failures.clear()
        self._failed_loads = self._failed_starts = 0

    def _count_failure(self, now: float) -> None:
        if self.state == "ready":
            if now - self.since >= FAILURE_WINDOW_S:
                self._failures.clear()
        else:
            self._failed_loads += 1
        self._failures.append(now)

    def _is_hopeless(self, now: float) -> bool:
        """Too many failures in the window; or as many loads in a row that failed, however slowly each did."""
        recent = [at for at in self._failures if now - at < FAILURE_WINDOW_S]
        return len(recent) >= FAILURE_LIMIT or self._failed_loads >= FAILURE_LIMIT

    def _move(self, state: EngineState, now: float) -> None:
        self.state = state
        self.since = now
