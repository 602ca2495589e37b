"""A whole Splash of its own for a test: temporary home, free ports, the real command line.

It ends only what the records of its home name.
"""

import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec

from control.home import PROCESS_NAMES, Home, ProcessName
from control.identity import live_process
from control.wire import LEAVE, OVERVIEW, Overview
from engine.wire import ProcessRecord

ROOT = Path(__file__).resolve().parents[2]
SPLASH = Path(sys.executable).parent / "splash"
FAKE_ENGINE = ROOT / "tests" / "fakes" / "engine.py"
PORT_KEYS = {
    "api": "SPLASH_API_PORT",
    "admin": "SPLASH_ADMIN_PORT",
    "console": "SPLASH_CONSOLE_PORT",
    "engine": "SPLASH_ENGINE_PORT",
}
PATIENCE_S = 30.0
NUM_PORTS = 3_000
FIRST_PORT = 15_000 + NUM_PORTS * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5)


class Stack:
    """`engine_command` None: the real engine. Everything that runs is found by its record under `home`."""

    def __init__(self, folder: Path, *, engine_command: str | None = None) -> None:
        self.home = Home(folder)
        self.ports = dict(zip(PORT_KEYS, free_ports(len(PORT_KEYS)), strict=True))
        self.engine_command = engine_command
        self.key: str | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SPLASH_")}
        ports = {key: str(self.ports[name]) for name, key in PORT_KEYS.items()}
        return inherited | ports | {"SPLASH_HOME": str(self.home.root)}

    # --- The command line ---

    def splash(self, *arguments: str, timeout_s: float = 90, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SPLASH, *arguments],
            env=self.environment | environment,
            cwd=self.home.root.parent,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def up(self, *arguments: str) -> dict[str, Any]:
        """`splash up --json`; the key of the first time is kept for `api`."""
        hidden = [] if self.engine_command is None else ["--engine-command", self.engine_command]
        done = self.splash("up", "--json", "--no-open", *hidden, *arguments)
        assert done.returncode == 0, f"splash up: {done.stderr}\n{self.logs()}"
        answer = json.loads(done.stdout)
        self.key = answer.get("key", self.key)
        return answer

    def status(self) -> dict[str, Any]:
        return json.loads(self.splash("status", "--json").stdout)

    def quit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.splash("quit", *arguments)

    # --- The doors ---

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self.ports['api']}/v1"

    def api(self, **options: Any) -> httpx.Client:
        """A client of the public API that carries the key of the first `up`."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.api_base, headers=headers, trust_env=False, timeout=60, **options)

    def admin(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.home.admin_secret()}", "Content-Type": "application/json"}
        base = f"http://127.0.0.1:{self.ports['admin']}"
        return httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=60)

    def overview(self) -> Overview:
        with self.admin() as admin:
            return msgspec.json.decode(admin.get(OVERVIEW).content, type=Overview)

    def engine_state(self) -> str | None:
        """None while control does not answer."""
        with suppress(httpx.HTTPError, msgspec.DecodeError):
            return self.overview().engine.state
        return None

    # --- The processes ---

    def record(self, name: ProcessName) -> ProcessRecord:
        record = self.home.read_record(name)
        assert record is not None, f"{name} has no record\n{self.logs()}"
        return record

    def is_alive(self, name: ProcessName) -> bool:
        record = self.home.read_record(name)
        return record is not None and live_process(record) is not None

    def kill(self, name: ProcessName, number: signal.Signals = signal.SIGKILL) -> ProcessRecord:
        """Signal a process of this stack; return the record that it had."""
        record = self.record(name)
        assert live_process(record) is not None, f"{name} is not alive"
        os.kill(record.pid, number)
        return record

    def leave(self) -> ProcessRecord:
        """Let control end and leave the engine, as `splash restart` does, but start no other; the record it had."""
        record = self.record("control")
        with self.admin() as admin:
            admin.post(LEAVE, json={"force": True}).raise_for_status()
        return record

    def start(self, name: ProcessName, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `python -m NAME` alone, as a person would who debugs it; it is found by its record like the others."""
        with self.home.log_file(name).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", name, *arguments],
                env=self.environment,
                cwd=self.home.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append(child)
        return child

    def start_control(self) -> subprocess.Popen[bytes]:
        hidden = [] if self.engine_command is None else ["--engine-command", self.engine_command]
        return self.start("control", "--manager", "detached", *hidden)

    def logs(self) -> str:
        texts = [(name, self.home.log_file(name)) for name in PROCESS_NAMES]
        return "\n".join(f"--- {name}\n{file.read_text()[-3000:]}" for name, file in texts if file.exists())

    def clean_up(self) -> None:
        """Control first: it would start the engine again."""
        for name in ("control", "engine", "webui"):
            record = self.home.read_record(name)
            if record is not None and live_process(record) is not None:
                with suppress(ProcessLookupError):
                    os.kill(record.pid, signal.SIGKILL)
                wait_until(lambda record=record: live_process(record) is None, f"{name} to be gone")
        for child in self._children:
            child.wait(PATIENCE_S)


def fake_engine(script: Path | None = None) -> str:
    """The command of the scripted engine, as `--engine-command` takes it."""
    words = [sys.executable, str(FAKE_ENGINE), *([] if script is None else ["--script", str(script)])]
    return shlex.join(words)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, and no outgoing connection gets: they lie below those that the system gives away.

    Each worker of pytest-xdist (gw0, gw1 …) has its own thousands.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(FIRST_PORT, FIRST_PORT + NUM_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """The first true answer of `condition`; an assertion error that says what was waited for otherwise."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s:.0f} s for {what}")
