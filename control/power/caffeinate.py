"""macOS's caffeinate as a child of control: at most one, watching one process, ended and reaped before the next.

It decides nothing: `control.power.awake` does. Of a real Mac it was never run on; its tests give it another program.

`caffeinate -i -w PID` keeps the system from idle sleep and ends by itself with the process PID. A closed lid and the
menu's Sleep still put a Mac to sleep. Source: caffeinate(8).
"""

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from control.power.awake import BackOff

logger = logging.getLogger(__name__)

Command = tuple[str, ...]

# It has nothing to put in order before it ends.
END_LIMIT_S: Final = 5.0
CLOSE_LIMIT_S: Final = 2.0
CLOSE_LOOK_S: Final = 0.02


def installed_caffeinate(*, platform: str = sys.platform, which: Callable[[str], str | None] = shutil.which) -> Command:
    """Empty where there is none: on a Mac that is said in the log, elsewhere nobody expects it."""
    if platform != "darwin":
        return ()
    path = which("caffeinate")
    if path is None:
        logger.warning("the machine can't be kept awake reason=caffeinate is not on the PATH")
        return ()
    return (path,)


class Caffeinate:
    """Called on the event loop; nothing blocks but `fork`. Without a `command` nothing is ever started.

    It watches control, which starts it: when that is killed, it ends by itself, and the next control starts its own.
    """

    def __init__(self, command: Sequence[str], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._command = tuple(command)
        self._now = monotonic
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._end_by: float | None = None  # when it is killed; None: nobody asked it to end
        self._back_off = BackOff()
        self._is_said = False

    @property
    def is_alive(self) -> bool:
        """Known since the last `follow`: it lives, and nobody told it to end."""
        return self._child is not None and self._end_by is None

    def follow(self, *, is_wanted: bool) -> None:
        """One shall live, or none. It may take further calls until that is so."""
        self._reap()
        if self._child is not None and (not is_wanted or self._end_by is not None):
            self._end()
        if self._child is None and is_wanted and self._command and self._back_off.is_over(now=self._now()):
            self._start()

    async def close(self) -> None:
        """End it and see it end, within two seconds."""
        child = self._child
        if child is None:
            return
        self._end()
        deadline = time.monotonic() + CLOSE_LIMIT_S
        while child.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110  # no such event
            await asyncio.sleep(CLOSE_LOOK_S)
        if child.poll() is None:
            child.kill()
            await asyncio.to_thread(child.wait)
        self._reap()

    def _start(self) -> None:
        try:
            # In control's process group: launchd ends what is left of a job's group when the job was killed.
            self._child = subprocess.Popen(
                [*self._command, "-i", "-w", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self._back_off.failed(now=self._now())
            self._say("caffeinate can't be started reason=%s", error)
            return
        self._started_at, self._end_by = self._now(), None
        logger.info("caffeinate started pid=%d", self._child.pid)

    def _end(self) -> None:
        assert self._child is not None
        if self._end_by is None:
            self._child.terminate()
            self._end_by = self._now() + END_LIMIT_S
        elif self._now() >= self._end_by:
            self._child.kill()

    def _reap(self) -> None:
        if self._child is None or (code := self._child.poll()) is None:
            return
        lived_s = self._now() - self._started_at
        if self._end_by is None:
            self._back_off.failed(now=self._now(), lived_s=lived_s)
            self._say("caffeinate ended by itself pid=%d code=%d lived_s=%.0f", self._child.pid, code, lived_s)
        else:
            logger.info("caffeinate ended pid=%d lived_s=%.0f", self._child.pid, lived_s)
            self._is_said = False
        self._child = self._end_by = None

    def _say(self, message: str, *values: object) -> None:
        """A warning the first time, until one has lived as it should."""
        logger.log(logging.DEBUG if self._is_said else logging.WARNING, message, *values)
        self._is_said = True
