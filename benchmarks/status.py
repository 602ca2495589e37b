"""What /status costs: the door's own time for it, and its latency over a socket while a hybrid model prefills.

A real engine process with a model of at least 25M parameters; the poller does nothing else. It measures no other path.
"""

import asyncio
import http.client
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from benchmarks.model_folder import write_hybrid
from benchmarks.report import Goal, Measurement
from benchmarks.streams import wait_until
from benchmarks.workload import Workload, run_workload, say
from engine.door.server import Door, make_app
from engine.wire import (
    GENERATE,
    STATUS,
    CacheStatus,
    GenerateRequest,
    Launch,
    MissExplanation,
    Prompt,
    RequestStatus,
    Status,
)

HANDLER_TARGET_MS: Final = 2.0
LATENCY_TARGET_MS: Final = 150.0
POLL_S: Final = 0.02
NUM_MISSES: Final = 100  # as many as /status tells
NUM_REQUESTS: Final = 256
START_TIMEOUT_S: Final = 120.0


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Engine:
    """An engine process under a home of its own."""

    def __init__(self, home: Path, model: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.secret = secrets.token_urlsafe(16)
        for folder in ("run", "secrets"):
            (home / folder).mkdir(parents=True)
        launch = Launch(secret=self.secret, nonce=secrets.token_urlsafe(16), port=self.port, model=str(model))
        (home / "secrets" / "engine.json").write_bytes(msgspec.json.encode(launch))
        self.log = home / "engine.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "engine", "serve", "--home", str(home)], stderr=log, env=os.environ
            )

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def get_status(self, connection: http.client.HTTPConnection) -> Status:
        connection.request("GET", STATUS, headers={"Authorization": f"Bearer {self.secret}"})
        return msgspec.json.decode(connection.getresponse().read(), type=Status)

    def is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the engine ended: {self.log.read_text()[-2000:]}")
        try:
            return self.get_status(self.connect()).ready
        except OSError:
            return False

    def generate(self, prompt: tuple[int, ...]) -> None:
        """Ask, and read all events to the end."""
        body = msgspec.json.encode(
            GenerateRequest(id=secrets.token_hex(4), prompt=Prompt(tokens=prompt), max_tokens=4, ignore_eos=True)
        )
        connection = self.connect()
        connection.request("POST", GENERATE, body=body, headers={"Authorization": f"Bearer {self.secret}"})
        answer = connection.getresponse().read()
        if b'"finished"' not in answer:
            raise RuntimeError(f"the engine did not finish: {answer[-500:]!r}")


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    model = folder / "hybrid"
    model.mkdir()
    write_hybrid(model)
    started = Engine(folder / "home", model)
    try:
        wait_until(started.is_ready, patience_s=START_TIMEOUT_S)
        yield started
    finally:
        started.process.terminate()
        started.process.wait(timeout=30)


def latencies_while_prefilling(started: Engine, prompt: tuple[int, ...]) -> tuple[list[float], Status]:
    """In ms, of polls whose answer says that a prompt is being prefilled; and the last such answer."""
    generating = threading.Thread(target=started.generate, args=(prompt,))
    generating.start()
    connection = started.connect()
    found: list[float] = []
    last: Status | None = None
    while generating.is_alive():
        began_at = time.perf_counter()
        status = started.get_status(connection)
        elapsed_ms = (time.perf_counter() - began_at) * 1000
        if status.scheduler.prefilling:
            found.append(elapsed_ms)
            last = status
        time.sleep(POLL_S)
    generating.join()
    assert last is not None, "the prompt was too short to be seen"
    return found, last


def as_full_as_can_be(status: Status) -> Status:
    """With all that a busy engine would tell."""
    miss = MissExplanation(
        id="0123456789abcdef",
        sampled_at_s=status.sampled_at_s,
        cause="never_taken",
        prompt_tokens=50_412,
        restored_tokens=50_400,
        matched_tokens=50_412,
        first_difference=50_413,
        distance_tokens=12,
    )
    cache = msgspec.structs.replace(status.cache or CacheStatus(is_on=True), misses=(miss,) * NUM_MISSES)
    request: RequestStatus = status.requests[0]
    return msgspec.structs.replace(status, cache=cache, requests=(request,) * NUM_REQUESTS)


async def handler_times_ms(status: Status, num_calls: int) -> list[float]:
    """Of the whole application behind the HTTP server; each call finds a new snapshot, which it must encode."""
    worker: Any = SimpleNamespace(snapshot=status)
    text_thread: Any = None
    door = Door(worker=worker, text_thread=text_thread, nonce="n", on_shutdown=lambda: None)
    app = make_app(door, secret="s", port=1)
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": STATUS,
        "raw_path": STATUS.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:1"), (b"authorization", b"Bearer s")],
        "client": ("127.0.0.1", 2),
        "server": ("127.0.0.1", 1),
    }
    answered: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    found = []
    for number in range(num_calls):
        worker.snapshot = msgspec.structs.replace(status, steps=number)
        began_at = time.perf_counter()
        await app(dict(scope), receive, send)
        found.append((time.perf_counter() - began_at) * 1000)
    assert set(answered) == {200}, answered
    return found


def measure(workload: Workload) -> Measurement:
    latencies: list[float] = []
    with tempfile.TemporaryDirectory() as folder, engine(Path(folder)) as started:
        num_prompts = 1 if workload.is_quick else 3
        for seed in range(num_prompts):
            vocabulary = 2000  # the demo's tokenizer has 2048
            prompt = tuple(1 + token % vocabulary for token in workload.prompt("hybrid", 8192, seed=seed))
            found, status = latencies_while_prefilling(started, prompt)
            latencies += found
            say(f"{len(found)} polls while prefilling: p50 {statistics.median(found):.1f} ms, max {max(found):.1f} ms")
    handler = asyncio.run(handler_times_ms(as_full_as_can_be(status), 200 if workload.is_quick else 1000))
    handler_ms = statistics.median(handler)
    goals = (
        Goal("p99_latency_ms", percentile(latencies, 0.99), LATENCY_TARGET_MS, "lower"),
        Goal("handler_ms", handler_ms, HANDLER_TARGET_MS, "lower"),
    )
    detail = {
        "polls": len(latencies),
        "p50_latency_ms": round(statistics.median(latencies), 2),
        "largest_latency_ms": round(max(latencies), 2),
        "handler_p99_ms": round(percentile(handler, 0.99), 3),
        "handler_told": f"{NUM_REQUESTS} requests, {NUM_MISSES} misses",
    }
    return Measurement("status", goals[0].value, "ms", LATENCY_TARGET_MS, "lower", detail, goals)


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("hybrid",))
