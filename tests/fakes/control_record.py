"""The record of a control that answers in this very process, as tests stand one up: true in all that is checked.

It answers nothing: that is `tests.fakes.control`.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil

from control.wire import ProcessRecord
from tests.fakes.control import FakeControl


def record_of_this_process(port: int) -> ProcessRecord:
    return record_of(os.getpid(), port)


def record_of(pid: int, port: int) -> ProcessRecord:
    return ProcessRecord(
        name="control",
        pid=pid,
        created_at_s=psutil.Process(pid).create_time(),
        nonce="n",
        port=port,
        manager="detached",
        started_at_s=time.time(),
        version="0",
    )


def write_record(home: Path, port: int, *, pid: int | None = None) -> None:
    """So that the console finds who listens on `port`; None: this process does."""
    file = home / "run" / "control.json"
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.write_bytes(msgspec.json.encode(record_of(pid or os.getpid(), port)))


def gateway_process(home: Path, control: FakeControl) -> subprocess.Popen[bytes]:
    """A process that is recorded as control, holds its port as well, and can be ended; the answers come from here."""
    listening = control._server.servers[0].sockets[0].fileno()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[listening])
    write_record(home, control.port, pid=process.pid)
    return process
