"""Nothing of a Splash that has ended stays with launchd: its jobs are booted out, their property lists deleted.

As a program, `python -m control.services.removal --home HOME --after PID`, it is the last act of a process that can't
wait for its own bootout: it outlives it in a session of its own. It ends nobody who runs.
"""

import argparse
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from control.command_errors import CommandFailed
from control.home import Home, ProcessName
from control.identity import live_process
from control.services.launchctl import find_launchctl
from control.services.launchd import Launchd

logger = logging.getLogger(__name__)

# In the order in which they end.
SERVICES: Final[tuple[ProcessName, ...]] = ("control", "webui")
# The last connections of a console that leaves are cut after a second.
AFTER_LIMIT_S: Final = 30.0
POLL_S: Final = 0.05


def remove_services(home: Home) -> None:
    """Remove the jobs of this home whose processes have ended; those of a Splash that was started meanwhile stay.

    Harmless when there is none, and without launchd. Raises ServiceStays, HomeUnusable. Not to be called by who holds
    the home's lock `up`.
    """
    if not _may_have_services(home):
        return
    # Nobody starts anything meanwhile: what does not run now is not about to.
    with home.only_one("up", wait=True):
        for name in SERVICES:
            remove_service(home, name)


def remove_service(home: Home, name: ProcessName) -> None:
    """For who holds the home's lock `up`. Raises ServiceStays."""
    record = home.read_record(name)
    launchctl = find_launchctl()
    if launchctl is None or (record is not None and live_process(record) is not None):
        return
    Launchd(home, launchctl).remove(name)


def has_service(home: Home, name: ProcessName) -> bool:
    """Whether a property list of that process is there, and so, perhaps, a job."""
    launchctl = find_launchctl()
    return launchctl is not None and Launchd(home, launchctl).file(name).exists()


def _may_have_services(home: Home) -> bool:
    """On a Mac a job may be there without its file."""
    return sys.platform == "darwin" or home.launchd_folder.exists()


def main() -> int:
    """0 nothing is left, 1 something is, and the log says what."""
    parser = argparse.ArgumentParser(prog="python -m control.services.removal")
    parser.add_argument("--home", type=Path, required=True, help="SPLASH_HOME")
    parser.add_argument("--after", type=int, required=True, help="the pid of the process that ends first")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    home = Home(arguments.home.resolve())
    _wait_for_end_of(arguments.after)
    try:
        remove_services(home)
    except CommandFailed as failure:
        logger.error("services not removed reason=%s", failure)
        return 1
    return 0


def _wait_for_end_of(pid: int) -> None:
    """At most AFTER_LIMIT_S. The process that started this one is its parent until it ends."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        deadline = time.monotonic() + AFTER_LIMIT_S
        while process.is_running() and os.getppid() == pid and time.monotonic() < deadline:
            if process.status() == psutil.STATUS_ZOMBIE:
                return
            time.sleep(POLL_S)


if __name__ == "__main__":
    sys.exit(main())
