"""The console as its own process in front of a scripted control."""

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from control.wire import ProcessRecord
from tests.fakes.control import SECRET, FakeControl
from tests.fakes.control_record import write_record


class ConsoleProcess:
    """`address` without a trailing slash; `link` is a fresh login link."""

    def __init__(self, home: Path, control: FakeControl) -> None:
        self.home = home
        self.control = control
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        (home / "secrets").mkdir(mode=0o700, parents=True)
        (home / "secrets" / "admin").write_text(SECRET)
        write_record(home, control.port)

    def start(self) -> None:
        """Again on the same port, when it has had one."""
        arguments = ("--home", str(self.home), "--port", str(self.port), "--admin-port", str(self.control.port))
        self.process = subprocess.Popen([sys.executable, "-m", "webui", *arguments], cwd=self.home)
        record = self.home / "run" / "webui.json"
        deadline = time.monotonic() + 20
        while not record.exists():
            assert self.process.poll() is None, "the console did not start"
            assert time.monotonic() < deadline, "the console wrote no record"
            time.sleep(0.02)
        self.port = msgspec.json.decode(record.read_bytes(), type=ProcessRecord).port

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(10)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def link(self) -> str:
        token = f"link-{time.monotonic_ns()}"
        self.control.links.add(token)
        return f"{self.address}/login?token={token}"
