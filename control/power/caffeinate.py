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

import psutil

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


def arguments(pid: int) -> Command:
    return ("-i", "-w", str(pid))


def end_left_over(command: Command, pid: int) -> int:
    """End those that an earlier control left behind, killed before it could end its own; return how many.

    They are known by their whole command line, which names the process `pid` of ours. Blocks: it reads all processes,
    and waits until those are gone.
    """
    expected = [*command, *arguments(pid)]
    found = [
        process
        for process in psutil.process_iter(["cmdline", "ppid"])
        if process.info["cmdline"] == expected and process.info["ppid"] != os.getpid()
    ]
    num_ended = 0
    for process in found:
        try:
            process.terminate()
        except psutil.Error as error:
            logger.warning("a caffeinate of an earlier control can't be ended pid=%d reason=%s", process.pid, error)
        else:
            logger.info("a caffeinate of an earlier control was ended pid=%d watched=%d", process.pid, pid)
            num_ended += 1
    psutil.wait_procs(found, timeout=CLOSE_LIMIT_S)
    return num_ended


class Caffeinate:
    """Called on the event loop; nothing blocks but `fork`. Without a `command` nothing is ever started."""

    def __init__(self, command: Sequence[str], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._command = tuple(command)
        self._now = monotonic
        self._child: subprocess.Popen[bytes] | None = None
        self._watched: int | None = None
        self._started_at = 0.0
        self._end_by: float | None = None  # when it is killed; None: nobody asked it to end
        self._back_off = BackOff()
        self._is_said = False

    @property
    def is_alive(self) -> bool:
        """Known since the last `follow`: it lives, and nobody told it to end."""
        return self._child is not None and self._end_by is None

    def follow(self, pid: int | None) -> None:
        """One shall live that watches `pid`; None: none shall. It may take further calls until that is so."""
        self._reap(pid)
        if self._child is not None and self._watched != pid:
            self._end()
        if self._child is None and pid is not None and self._command and self._back_off.is_over(now=self._now()):
            self._start(pid)

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
        self._reap(None)

    def _start(self, pid: int) -> None:
        try:
            # In control's process group: launchd ends what is left of a job's group when the job was killed.
            self._child = subprocess.Popen(
                [*self._command, *arguments(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self._back_off.failed(now=self._now())
            self._say("caffeinate can't be started reason=%s", error)
            return
        self._watched, self._started_at, self._end_by = pid, self._now(), None
        logger.info("caffeinate started pid=%d watched=%d", self._child.pid, pid)

    def _end(self) -> None:
        assert self._child is not None
        if self._end_by is None:
            self._child.terminate()
            self._end_by = self._now() + END_LIMIT_S
        elif self._now() >= self._end_by:
            self._child.kill()

    def _reap(self, wanted: int | None) -> None:
        if self._child is None or (code := self._child.poll()) is None:
            return
        lived_s = self._now() - self._started_at
        if self._end_by is None and self._watched == wanted:
            self._back_off.failed(now=self._now(), lived_s=lived_s)
            self._say("caffeinate ended by itself pid=%d code=%d lived_s=%.0f", self._child.pid, code, lived_s)
        else:
            logger.info("caffeinate ended pid=%d watched=%d lived_s=%.0f", self._child.pid, self._watched, lived_s)
            self._is_said = False
        self._child = self._watched = self._end_by = None

    def _say(self, message: str, *values: object) -> None:
        """A warning the first time, until one has lived as it should."""
        logger.log(logging.DEBUG if self._is_said else logging.WARNING, message, *values)
        self._is_said = True
