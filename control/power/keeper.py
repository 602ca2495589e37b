"""Keeps the machine awake while it must be: brings the setting, the line, the engine's pid and caffeinate together.

Policy is in `control.power.awake`, the process in `control.power.caffeinate`.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Final, get_args

from control.fifo import Line
from control.metrics.settings import Settings
from control.power.awake import AwakePolicy, Hold, Situation
from control.power.caffeinate import Caffeinate, Command, end_left_over
from control.power.sleep_watch import SleepWatch
from control.repeating import repeat
from control.wire_power import KeepAwake, Power

logger = logging.getLogger(__name__)

KEEP_AWAKE_SETTING: Final = "keep_awake"
CHOICES: Final[tuple[KeepAwake, ...]] = get_args(KeepAwake)
DEFAULT: Final[KeepAwake] = "busy"
LOOK_EVERY_S: Final = 1.0


class AwakeKeeper:
    """`engine_pid` is that of the engine that lives now, None without one. `run` must run."""

    def __init__(
        self,
        *,
        settings: Settings,
        command: Command,
        line: Line,
        engine_pid: Callable[[], int | None],
        sleep_watch: SleepWatch,
        policy: AwakePolicy | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._command = command
        self._line = line
        self._engine_pid = engine_pid
        self._sleep_watch = sleep_watch
        self._policy = policy or AwakePolicy(own_pid=os.getpid())
        self._now = monotonic
        self._caffeinate = Caffeinate(command, monotonic=monotonic)
        self._keep_awake = stored_keep_awake(settings)
        self._hold: Hold | None = None
        self._seen_pid: int | None = None

    def view(self) -> Power:
        return Power(
            keep_awake=self._keep_awake,
            can_keep_awake=bool(self._command),
            awake_reason=None if self._hold is None else self._hold.reason,
            is_kept_awake=self._caffeinate.is_alive,
            sleeps=self._sleep_watch.num_sleeps,
            slept_s=self._sleep_watch.slept_s,
            woke_at_s=self._sleep_watch.woke_at_s,
        )

    async def change(self, keep_awake: KeepAwake) -> None:
        """On disk before it is in force, and then at once."""
        await self._settings.change(KEEP_AWAKE_SETTING, lambda: keep_awake, in_force=self._set)

    async def run(self) -> None:
        await repeat("keeping the machine awake", self._look, every_s=lambda: LOOK_EVERY_S)

    async def close(self) -> None:
        """`run` must have ended: it would start another."""
        await self._caffeinate.close()

    async def _look(self) -> None:
        await self._end_left_over()
        self.look()

    def look(self) -> None:
        """Make what runs agree with what is so now."""
        situation = Situation(
            keep_awake=self._keep_awake,
            engine_pid=self._engine_pid(),
            num_requests=len(self._line.running) + len(self._line.waiting),
        )
        self._hold = self._policy.hold(situation, now=self._now())
        self._caffeinate.follow(None if self._hold is None else self._hold.pid)

    async def _end_left_over(self) -> None:
        """Once for each engine: one that was adopted may still be watched for a control that was killed."""
        pid = self._engine_pid()
        if pid is not None and pid != self._seen_pid and self._command:
            await asyncio.to_thread(end_left_over, self._command, pid)
            self._seen_pid = pid

    def _set(self, keep_awake: KeepAwake) -> None:
        self._keep_awake = keep_awake
        self.look()


def stored_keep_awake(settings: Settings) -> KeepAwake:
    """As it was chosen; the default when it never was, and, with a warning, when what is there is none."""
    stored = settings.get(KEEP_AWAKE_SETTING, str)
    for choice in CHOICES:
        if stored == choice:
            return choice
    if stored is not None:
        logger.warning("setting ignored name=%s reason=not one of %s", KEEP_AWAKE_SETTING, ", ".join(CHOICES))
    return DEFAULT
