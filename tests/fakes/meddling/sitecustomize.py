"""Meddles with a process of Splash from within, so that the product needs no hook for it: for tests.

Python imports it by itself where PYTHONPATH names this folder; it acts on control, the console and the scripted engine
only. The folder MEDDLING holds what it is told:

    SIGUSR2           the event loop stands still for ever: the process lives, its port takes connections, no more
    MEDDLING/clock    a file with seconds by which the clock is set off, for every process, commands too: `time.time`,
                      and the boot time that Linux gives as now less the time since
    MEDDLING/linger   a file with the seconds that a Mac is kept awake after its last request
    MEDDLING/silence  a file with the seconds after which an engine that does not answer counts as stuck

What the system's own clock tells elsewhere (files, SQLite) stays right.
"""

import os
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["MEDDLING"])
FOR_EVER_S = 3600.0


def is_one_of_the_three(words: list[str]) -> bool:
    return words[1:3] in (["-m", "control"], ["-m", "webui"]) or words[1:2] == [str(engine_file())]


def engine_file() -> Path:
    return Path(__file__).resolve().parents[1] / "engine.py"


def stand_still(_number: int, _frame: object) -> None:
    time.sleep(FOR_EVER_S)


def set_clocks_off(file: Path) -> None:
    from psutil import _pslinux

    true_now, true_boot = time.time, _pslinux.boot_time

    def off_by_s() -> float:
        try:
            return float(file.read_text() or 0)
        except OSError:
            return 0.0

    time.time = lambda: true_now() + off_by_s()
    _pslinux.boot_time = lambda: true_boot() + off_by_s()


def shorten(limits: dict[str, float]) -> None:
    """Control is assembled with these in the place of its usual ones."""
    from functools import partial

    from control import assembly
    from control.wedge import WedgeLimits

    if "linger" in limits:
        assembly.assemble = partial(assembly.assemble, linger_s=limits["linger"])
    if "silence" in limits:
        assembly.assemble = partial(assembly.assemble, wedge_limits=WedgeLimits(silent_s=limits["silence"]))


if is_one_of_the_three(sys.orig_argv):
    signal.signal(signal.SIGUSR2, stand_still)
if (FOLDER / "clock").exists():
    set_clocks_off(FOLDER / "clock")
if sys.orig_argv[1:3] == ["-m", "control"]:
    told = [FOLDER / "linger", FOLDER / "silence"]
    shorten({file.name: float(file.read_text()) for file in told if file.exists()})
