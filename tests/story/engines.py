"""Starts an engine program as control does, and talks to it over its socket: for tests, and for both programs alike."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import msgspec
import psutil

from engine.wire import AnyEvent, ErrorAnswer, Health, Launch, ProcessRecord, Status
from tests.story.stack import free_ports

ROOT = Path(__file__).resolve().parents[2]
REAL = (sys.executable, "-m", "engine")
FAKE = (sys.executable, str(ROOT / "tests" / "fakes" / "engine.py"))

START_TIMEOUT_S = 60
POLL_S = 0.05


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(claim, *, timeout_s=10, what="the claim"):
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, f"{what} did not come true in {timeout_s} s"
        time.sleep(POLL_S)


class Engine:
    """A running engine program under a home of its own."""

    def __init__(self, command, home, *, script=None, **launch):
        self.home = home
        for folder in ("run", "secrets", "logs"):
            (home / folder).mkdir(parents=True, exist_ok=True)
        fields = {"model": "demo", "port": free_ports(1)[0]} | launch
        self.launch = Launch(secret=secrets.token_urlsafe(16), nonce=secrets.token_urlsafe(16), **fields)
        (home / "secrets" / "engine.json").write_bytes(msgspec.json.encode(self.launch))
        if script is not None:
            (home / "script.json").write_text(json.dumps(script))
            command = (*command, "--script", str(home / "script.json"))
        self.log = home / "logs" / "engine.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--home", str(home)],
                stdout=log,
                stderr=log,
                cwd=home,
                env=os.environ,
                start_new_session=True,
            )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        self.http.headers["authorization"] = f"Bearer {self.launch.secret}"

    @property
    def port(self):
        return self.launch.port

    @property
    def record_file(self):
        return self.home / "run" / "engine.json"

    def record(self):
        return msgspec.json.decode(self.record_file.read_bytes(), type=ProcessRecord)

    def wait_until_ready(self):
        def is_ready():
            assert self.process.poll() is None, self.log.read_text()
            try:
                return self.status().ready
            except httpx.TransportError:
                return False

        wait_for(is_ready, timeout_s=START_TIMEOUT_S, what="the engine's readiness")
        return self

    def health(self):
        return msgspec.json.decode(self.http.get("/healthz").content, type=Health)

    def status(self):
        return msgspec.json.decode(self.http.get("/status").content, type=Status)

    def post(self, path, body=None):
        return self.http.post(path, content=b"" if body is None else msgspec.json.encode(body))

    def error(self, path, body):
        """The status and the decoded error of a POST that must fail. `body` may be bytes."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        response = self.http.post(path, content=content)
        return response.status_code, msgspec.json.decode(response.content, type=ErrorAnswer)

    def stream(self, body):
        """A context manager; its `iter_lines()` are the events."""
        return self.http.stream("POST", "/generate", content=msgspec.json.encode(body))

    def generate(self, body):
        """All events of a request that must be accepted."""
        with self.stream(body) as response:
            lines = list(response.iter_lines())
        assert response.status_code == 200, lines
        return [event(line) for line in lines]

    def has_ended(self):
        return self.process.poll() is not None

    def is_gone(self):
        return self.has_ended() and not psutil.pid_exists(self.process.pid) and not is_open(self.port)

    def kill(self):
        if not self.has_ended():
            self.process.kill()
        self.process.wait()
        self.http.close()


def event(line):
    return msgspec.json.decode(line, type=AnyEvent)


def user(text):
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def asked(request_id, text="Say something long", **more):
    return {"id": request_id, "prompt": {"messages": [user(text)]}} | more
