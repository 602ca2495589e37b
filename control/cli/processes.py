"""The processes of one home as the command line sees them: found by their verified records, also those just started.

It asks nobody to do anything; that is `admin_client`.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from control.command_errors import StartFailed, StartRefused
from control.home import Home, ProcessName
from control.identity import Identity, verify
from control.log_files import last_line
from control.services.protocol import Launched
from engine.wire import ProcessRecord

START_LIMIT_S: Final = 20.0
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


def python_module(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def wait_until_found(home: Home, name: ProcessName, launched: Launched) -> ProcessRecord:
    """The verified record of the process that was just started.

    Raises StartFailed with the last thing that it said, StartRefused when that was about a port.
    """
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        ended = launched.ended()
        if ended is not None:
            said = last_line(home.log_file(name), since_byte=launched.log_from_byte) or ended.reason
            kind = StartRefused if ended.exit_code == StartRefused.exit_code else StartFailed
            raise kind(f"{name} did not start: {said}")
        record = home.read_record(name)
        if record is not None and launched.wrote(record) and verify(record).is_ours:
            return record
        time.sleep(POLL_S)
    raise StartFailed(f"{name} did not answer within {START_LIMIT_S:.0f} s; see {home.log_file(name)}.")


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
