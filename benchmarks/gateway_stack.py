"""Control and the scripted engine as real processes, for the gateway's benchmarks: a home of their own, free ports.

It measures nothing. No console runs: it would ask for the overview once a second.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
from sqlalchemy import select

from control import wire
from control.metrics.database import open_for_reading
from control.metrics.tables import requests
from engine.wire import Launch
from tests.story.stack import ROOT, Stack, wait_until

ENGINE_PROGRAM: Final = ROOT / "benchmarks" / "gateway_engine.py"
START_LIMIT_S: Final = 60.0
ROWS_LIMIT_S: Final = 5.0
MIB: Final = 2**20
CHAT: Final = "/v1/chat/completions"

Entry = dict[str, Any]


class Gateway:
    """`script` is what the engine plays; a new one holds from its next start."""

    def __init__(self, folder: Path, script: list[Entry]) -> None:
        self._script_file = folder / "script.json"
        self.write_script(script)
        words = [sys.executable, str(ENGINE_PROGRAM), "--script", str(self._script_file)]
        self.stack = Stack(folder / "home", engine_command=shlex.join(words))
        self.key = ""
        self._child: subprocess.Popen[bytes] | None = None

    def write_script(self, script: list[Entry]) -> None:
        self._script_file.write_text(json.dumps(script))

    def start(self) -> None:
        self.stack.home.create()
        self._child = self.stack.start_control()
        # Its record is its last file before it answers; the secret of the admin door comes a moment later.
        wait_until(lambda: self.stack.is_alive("control"), "control's record", START_LIMIT_S)
        wait_until(self.stack.home.admin_secret_file.exists, "the admin secret", START_LIMIT_S)
        wait_until(self.stack.engine_state, "control to answer", START_LIMIT_S)
        self.key = self.new_key("benchmark")
        self.load()
        self.wait_for_state("ready")

    def clean_up(self) -> None:
        """Also a control that got stuck before it left a record."""
        if self._child is not None and not self.stack.is_alive("control"):
            self._child.kill()
        self.stack.clean_up()

    def new_key(self, name: str) -> str:
        answer = self.order(wire.KEYS, wire.NewKey(name=name))
        return msgspec.json.decode(answer, type=wire.CreatedKey).key

    def load(self) -> None:
        self.order(wire.LOAD, wire.LoadRequest(model="demo"))

    def unload(self) -> None:
        self.order(wire.UNLOAD, wire.UnloadRequest())

    def order(self, path: str, body: msgspec.Struct) -> bytes:
        """Ask control's admin door. Raises RuntimeError when it refuses."""
        with self.stack.admin() as admin:
            answer = admin.post(path, content=msgspec.json.encode(body))
        if not answer.is_success:
            raise RuntimeError(f"{path} was refused: {answer.text}")
        return answer.content

    def wait_for_state(self, *states: str, limit_s: float = START_LIMIT_S) -> None:
        """Raises RuntimeError when the engine failed for good meanwhile."""

        def is_there() -> bool:
            state = self.stack.engine_state()
            if state == "failed" and state not in states:
                raise RuntimeError("the engine failed")
            return state in states

        wait_until(is_there, f"the engine to be {' or '.join(states)}", limit_s)

    def rows(self, *, at_least: int) -> list[wire.RequestRow]:
        """Of splash.db, in the order of their numbers. They are written a moment later: so many are waited for."""
        deadline = time.monotonic() + ROWS_LIMIT_S
        while len(found := self._rows_now()) < at_least and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _rows_now(self) -> list[wire.RequestRow]:
        database = open_for_reading(self.stack.home.database)
        with database.begin() as connection:
            found = connection.execute(select(requests).order_by(requests.c.number)).mappings().all()
        database.dispose()
        return [wire.RequestRow(**row) for row in found]

    @property
    def api_port(self) -> int:
        return self.stack.ports["api"]

    @property
    def control(self) -> psutil.Process:
        return psutil.Process(self.stack.record("control").pid)

    @property
    def engine_launch(self) -> Launch:
        """Of the engine that was started last: its port and secret."""
        launch = self.stack.home.read_launch()
        assert launch is not None, "no engine was ever started"
        return launch


@contextmanager
def gateway(script: list[Entry]) -> Iterator[Gateway]:
    """Ready, with one key; ended afterwards, and its logs shown if the benchmark broke."""
    with tempfile.TemporaryDirectory(prefix="splash-gateway-") as folder:
        started = Gateway(Path(folder), script)
        try:
            started.start()
            yield started
        except BaseException:
            print(started.stack.logs(), file=sys.stderr)
            raise
        finally:
            started.clean_up()


def chat_body(text: str, *, is_stream: bool = True) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "demo", "messages": messages, "stream": is_stream}).encode()


def cpu_s(process: psutil.Process) -> float:
    """User and system time that the process has used so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


class CpuShare:
    """The share of one core that a process uses between its making and `share`."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._began_at = time.monotonic()
        self._used_s = cpu_s(process)

    def share(self) -> float:
        return (cpu_s(self._process) - self._used_s) / (time.monotonic() - self._began_at)


def load_average() -> float:
    """Of the last minute: how many others wanted a core."""
    return round(os.getloadavg()[0], 1)
