"""A stand-in for macOS's caffeinate: a program that lives as long as the process that it is told to watch.

    python tests/fakes/caffeinate.py DIARY [--fails] -i -w PID

It keeps nobody awake. A line of the file DIARY for each start (`+ own pid, arguments`) and each end (`- own pid`), so
that a test sees all that ever were; `--fails` ends with 1 at once.
"""

import os
import signal
import sys
import time
from pathlib import Path

import psutil

LOOK_EVERY_S = 0.05


def main(words: list[str]) -> int:
    diary, *words = words
    fails = words[:1] == ["--fails"]
    arguments = words[1:] if fails else words
    assert arguments[:2] == ["-i", "-w"] and len(arguments) == 3, arguments
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    note(diary, f"+ {os.getpid()} {' '.join(arguments)}")
    try:
        while not fails and lives(int(arguments[2])):
            time.sleep(LOOK_EVERY_S)
    finally:
        note(diary, f"- {os.getpid()}")
    return int(fails)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def note(diary: str, line: str) -> None:
    with Path(diary).open("a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
