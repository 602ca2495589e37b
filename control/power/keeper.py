"""Keeps the machine awake while it must be: brings the setting, the line, the engine and caffeinate together.

Policy is in `control.power.awake`, the process in `control.power.caffeinate`.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, get_args

from control.fifo import Line
from control.metrics.settings import Settings
from control.power.awake import AwakePolicy, Situation
from control.power.caffeinate import Caffeinate, Command
from control.power.sleep_watch import SleepWatch
from control.repeating import repeat
from control.wire_power import AwakeReason, KeepAwake, Power

logger = logging.getLogger(__name__)

KEEP_AWAKE_SETTING: Final = "keep_awake"
CHOICES: Final[tuple[KeepAwake, ...]] = get_args(KeepAwake)
DEFAULT: Final[KeepAwake] = "busy"
LOOK_EVERY_S: Final = 1.0


class AwakeKeeper:
    """`has_engine`: whether one lives now. `run` must run."""

    def __init__(
        self,
        *,
        settings: Settings,
        command: Command,
        line: Line,
        has_engine: Callable[[], bool],
        sleep_watch: SleepWatch,
        policy: AwakePolicy,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._can_keep_awake = bool(command)
        self._line = line
        self._has_engine = has_engine
        self._sleep_watch = sleep_watch
        self._policy = policy
        self._now = monotonic
        self._caffeinate = Caffeinate(command, monotonic=monotonic)
        self._keep_awake = stored_keep_awake(settings)
        self._reason: AwakeReason | None = None

    def view(self) -> Power:
        return Power(
            keep_awake=self._keep_awake,
            can_keep_awake=self._can_keep_awake,
            awake_reason=self._reason,
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
        self.look()

    def look(self) -> None:
        """Make what runs agree with what is so now."""
        situation = Situation(
            keep_awake=self._keep_awake,
            has_engine=self._has_engine(),
            num_requests=len(self._line.running) + len(self._line.waiting),
        )
        self._reason = self._policy.reason(situation, now=self._now())
        self._caffeinate.follow(is_wanted=self._reason is not None)

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
