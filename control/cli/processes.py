"""The processes of one home as the command line sees them: found by their verified records, started detached.

It asks nobody to do anything; that is `admin_client`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from control.command_errors import StartFailed, StartRefused
from control.home import Home, ProcessName
from control.identity import Identity, verify
from control.log_files import last_line, open_log
from engine.wire import ProcessRecord

START_LIMIT_S: Final = 20.0
END_LIMIT_S: Final = 8.0
POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Found:
    """What the home says about one process, and what the machine says to that. Both None: there is no record."""

    name: ProcessName
    record: ProcessRecord | None
    identity: Identity | None

    @property
    def is_ours(self) -> bool:
        return self.identity is not None and self.identity.is_ours

    @property
    def is_alive(self) -> bool:
        """The process of the record exists, ours to talk to or not."""
        return self.identity is not None and self.identity.is_alive

    @property
    def nonce(self) -> str | None:
        """Differs from start to start."""
        return None if self.record is None else self.record.nonce

    @property
    def is_settled(self) -> bool:
        """It is neither starting nor ending."""
        return self.identity is None or self.identity.verdict not in ("closed", "silent")


def find(home: Home, name: ProcessName) -> Found:
    record = home.read_record(name)
    return Found(name, record, None if record is None else verify(record))


def start_detached(home: Home, name: ProcessName, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one and its terminal, with its output in the log file of that name."""
    with open_log(home.log_file(name)) as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Python puts the working directory before the installed packages, so it must hold none of ours or theirs.
            cwd=home.root,
            start_new_session=True,
        )


def python_module(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def wait_until_found(home: Home, name: ProcessName, child: subprocess.Popen[bytes]) -> ProcessRecord:
    """The verified record of the process that was just started.

    Raises StartFailed with the last thing that it said, StartRefused when that was about a port.
    """
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            said = last_line(home.log_file(name)) or f"it ended with exit code {child.returncode}"
            kind = StartRefused if child.returncode == StartRefused.exit_code else StartFailed
            raise kind(f"{name} did not start: {said}")
        record = home.read_record(name)
        if record is not None and record.pid == child.pid and verify(record).is_ours:
            return record
        time.sleep(POLL_S)
    raise StartFailed(
        f"{name} (pid {child.pid}) did not answer within {START_LIMIT_S:.0f} s; see {home.log_file(name)}."
    )


def end_child(home: Home, name: ProcessName, child: subprocess.Popen[bytes]) -> None:
    """End a process that this command has started, reap it, and leave no record of it."""
    child.terminate()
    try:
        child.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    # One that is ended before it can see a signal does not remove its record itself.
    record = home.read_record(name)
    if record is not None and record.pid == child.pid:
        home.remove_record(record)


def wait_for(condition: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def has_display() -> bool:
    """A browser that is opened here would be seen by the person who asked."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
