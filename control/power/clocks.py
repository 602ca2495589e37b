"""Three clocks, and what happened between two looks at them: the machine slept, control stood still, the time was set.

Two clocks can't tell a sleep from a wall clock that was set; the third one can. It acts on nothing.
"""

import sys
import time
from dataclasses import dataclass
from typing import Final, Literal

# Far above what slewing and reading one clock after the other make, below the shortest sleep that matters.
# Source: leynier/alera#210.
CLOCKS_APART_S: Final = 5.0
# Looks come ten times a second. So long without one, and the process was stopped, or the machine only swapped.
PAUSE_S: Final = 15.0

# The clock that goes on in sleep and that nobody can set. Source: clock_gettime(3) of macOS, clock_gettime(2) of Linux.
_NAMES: Final = {"darwin": "CLOCK_MONOTONIC_RAW", "linux": "CLOCK_BOOTTIME"}
_ELAPSED: Final[int | None] = getattr(time, _NAMES.get(sys.platform, ""), None)

Kind = Literal["sleep", "pause", "clock_set"]


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds, each since a moment of its own. `awake_s` stands still while the machine sleeps (`time.monotonic`),
    `elapsed_s` does not, and neither can be set; `wall_s` is Unix time, and can be."""

    awake_s: float
    elapsed_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """`seconds` slept, without a look, or by which the wall clock was set: negative when it was set back."""

    kind: Kind
    seconds: float


def elapsed_s() -> float:
    """Monotonic seconds, sleep included. Where the system has no such clock, Unix time: the next best."""
    return time.time() if _ELAPSED is None else time.clock_gettime(_ELAPSED)


def read_clocks() -> Clocks:
    return Clocks(awake_s=time.monotonic(), elapsed_s=elapsed_s(), wall_s=time.time())


def are_apart(passed_s: float, also_passed_s: float) -> bool:
    """Whether two clocks disagree about the time between two moments by more than clocks that only run do."""
    return abs(passed_s - also_passed_s) > CLOCKS_APART_S


def gaps_between(before: Clocks, after: Clocks) -> tuple[Gap, ...]:
    """All that happened, each kind at most once: a Mac that wakes may have its clock set, too."""
    awake_s = after.awake_s - before.awake_s
    elapsed = after.elapsed_s - before.elapsed_s
    wall_s = after.wall_s - before.wall_s
    found = []
    if elapsed > awake_s and are_apart(elapsed, awake_s):
        found.append(Gap("sleep", elapsed - awake_s))
    if awake_s > PAUSE_S:
        found.append(Gap("pause", awake_s))
    if are_apart(wall_s, elapsed):
        found.append(Gap("clock_set", wall_s - elapsed))
    return tuple(found)
