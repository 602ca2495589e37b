"""Notices that the machine slept or that control stood still: says so, counts it, and has the engine looked at anew.

What a gap is, is in `control.power.clocks`; what a silence of the engine means after one, in `control.wedge`.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from control.power.clocks import Clocks, Gap, gaps_between, read_clocks
from control.repeating import repeat

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0


class SleepWatch:
    """`woke` is called at once, before anybody judges by the clocks again; `recheck` soon after, by `run`.

    A wall clock that was set is neither: nothing of control measures time by it.
    """

    def __init__(
        self,
        *,
        woke: Callable[[], None],
        recheck: Callable[[], Awaitable[object]],
        read: Callable[[], Clocks] = read_clocks,
    ) -> None:
        self.num_sleeps = 0
        self.slept_s = 0.0
        self.woke_at_s: float | None = None
        """Unix time."""
        self._woke = woke
        self._recheck = recheck
        self._read = read
        self._before: Clocks | None = None
        self._has_woken = False

    def look(self) -> None:
        """As often as one likes: whoever is about to judge by the time that passed looks first."""
        before, now = self._before, self._read()
        self._before = now
        for gap in () if before is None else gaps_between(before, now):
            self._note(gap, now)

    async def run(self) -> None:
        await repeat("watching for sleep", self._look_and_recheck, every_s=lambda: LOOK_EVERY_S)

    async def _look_and_recheck(self) -> None:
        self.look()
        if self._has_woken:
            self._has_woken = False
            await self._recheck()

    def _note(self, gap: Gap, now: Clocks) -> None:
        match gap.kind:
            case "sleep":
                logger.info("machine slept seconds=%.0f", gap.seconds)
                self.num_sleeps += 1
                self.slept_s += gap.seconds
                self.woke_at_s = now.wall_s
            case "pause":
                logger.warning("control stood still seconds=%.0f", gap.seconds)
            case "clock_set":
                logger.info("wall clock was set by_s=%+.0f", gap.seconds)
                return
        self._has_woken = True
        self._woke()
