"""What the gateway adds to the engine's own door: time to the first token, and CPU for four fast streams.

Control, a scripted engine and a bare httpx relay are real processes; this one reads both doors in turn, over sockets.
The engine writes into each token when it left, so that every token's delay is known. It measures no model.
"""

import asyncio
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import psutil
import uvloop

from benchmarks.gateway_client import Connection
from benchmarks.gateway_stack import CHAT, CpuShare, Gateway, chat_body, gateway, load_average
from benchmarks.report import ROOT, Goal, Measurement, run
from engine.wire import GENERATE, GenerateRequest, Message, Prompt, TextPart
from tests.story.stack import free_ports, is_free, wait_until

FIRST_BYTE_TARGET_MS: Final = 3.0
CPU_TARGET_SHARE: Final = 0.30
NUM_STREAMS: Final = 4
EVENTS_PER_S: Final = 250
# A stream that falls behind loses more with every second; one that keeps up ends within this of its time.
BACKLOG_LIMIT_MS: Final = 100.0
NUM_WARM_UPS: Final = 20
LONG_PROMPT_WORDS: Final = 15_000

STAMP: Final = re.compile(rb'"(?:text|content)":" ?(\d+\.\d{6})"')
AT_ONCE: Final = {
    "match": "at once",
    "steps": [{"prefill": {}}, {"event": {"type": "text_delta", "text": "<now>"}}],
}


def steadily(num_events: int) -> dict[str, Any]:
    words = {"text": " <now>" * num_events, "per_second": EVENTS_PER_S}
    return {"match": "steadily", "steps": [{"prefill": {}}, {"tokens": words}]}


def engine_body(text: str, request_id: str) -> bytes:
    message = Message(role="user", content=(TextPart(text=text),))
    return msgspec.json.encode(GenerateRequest(id=request_id, prompt=Prompt(messages=(message,))))


@dataclass(frozen=True, slots=True)
class Door:
    """One way to the engine: which port, with which key, on which path, and whose CPU it costs."""

    name: str
    port: int
    token: str
    process: psutil.Process

    async def connect(self) -> Connection:
        return await Connection.open(self.port, self.token)

    def ask(self, connection: Connection, text: str, request_id: str) -> None:
        if self.name == "gateway":
            connection.send(CHAT, chat_body(text))
        else:
            connection.send(GENERATE, engine_body(text, request_id))


async def first_token_ms(door: Door, connection: Connection, text: str, request_id: str) -> float:
    began_at = time.perf_counter()
    door.ask(connection, text, request_id)
    head = await connection.head()
    elapsed_ms = None
    async for chunk in connection.chunks(head):
        if elapsed_ms is None and STAMP.search(chunk):
            elapsed_ms = (time.perf_counter() - began_at) * 1000
    assert elapsed_ms is not None, f"{door.name} answered {head.status} without a token"
    return elapsed_ms


async def first_tokens_ms(doors: list[Door], text: str, num_rounds: int) -> dict[str, list[float]]:
    """By door, of requests one after the other; who goes first changes."""
    connections = {door.name: await door.connect() for door in doors}
    found: dict[str, list[float]] = {door.name: [] for door in doors}
    for number in range(NUM_WARM_UPS + num_rounds):
        for door in doors if number % 2 else doors[::-1]:
            request_id = f"{len(text)}-{number}-{door.name}"
            elapsed_ms = await first_token_ms(door, connections[door.name], text, request_id)
            if number >= NUM_WARM_UPS:
                found[door.name].append(elapsed_ms)
    for connection in connections.values():
        connection.close()
    return found


@dataclass(frozen=True, slots=True)
class Flow:
    """Four streams together. `delays_ms` of all tokens; `last_ms` of each stream's last one; `late_ms`: how much later
    than its rate allows the slowest stream ended; `generator_late_ms`: how much of that is the engine's own."""

    cpu_share: float
    delays_ms: list[float]
    last_ms: list[float]
    late_ms: float
    generator_late_ms: float


async def stream_delays(door: Door, request_id: str) -> list[tuple[float, float]]:
    """When each token left the engine, and when it was here: seconds, one clock for both."""
    connection = await door.connect()
    door.ask(connection, "steadily", request_id)
    head = await connection.head()
    found: list[tuple[float, float]] = []
    async for chunk in connection.chunks(head):
        now = time.monotonic()
        found += [(float(stamp), now) for stamp in STAMP.findall(chunk)]
    connection.close()
    return found


async def flow_through(door: Door, num_events: int, tag: str) -> Flow:
    cpu = CpuShare(door.process)
    streams = await asyncio.gather(*(stream_delays(door, f"{tag}-{door.name}-{i}") for i in range(NUM_STREAMS)))
    share = cpu.share()
    assert all(len(stream) == num_events for stream in streams), [len(stream) for stream in streams]
    expected_s = (num_events - 1) / EVENTS_PER_S
    return Flow(
        cpu_share=share,
        delays_ms=[(here - left) * 1000 for stream in streams for left, here in stream],
        last_ms=[(stream[-1][1] - stream[-1][0]) * 1000 for stream in streams],
        late_ms=max(stream[-1][1] - stream[0][1] - expected_s for stream in streams) * 1000,
        generator_late_ms=max(stream[-1][0] - stream[0][0] - expected_s for stream in streams) * 1000,
    )


@contextmanager
def bare_relay(started: Gateway) -> Iterator[Door]:
    launch = started.engine_launch
    port = free_ports(1)[0]
    program = [sys.executable, str(ROOT / "benchmarks" / "gateway_relay.py"), str(port), str(launch.port)]
    child = subprocess.Popen([*program, launch.secret])
    try:
        wait_until(lambda: not is_free(port), "the bare relay")
        yield Door("relay", port, launch.secret, psutil.Process(child.pid))
    finally:
        child.kill()
        child.wait()


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    shares = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {name: round(ordered[int((len(ordered) - 1) * share)], 2) for name, share in shares.items()}


async def measure_doors(doors: list[Door], is_quick: bool, num_events: int) -> Measurement:
    load = load_average()
    direct, through, relay = doors
    short = await first_tokens_ms(doors, "at once", 60 if is_quick else 400)
    long_text = "at once" + " word" * LONG_PROMPT_WORDS
    long = await first_tokens_ms(doors, long_text, 10 if is_quick else 60)
    flows: dict[str, list[Flow]] = {door.name: [] for door in doors}
    for number in range(2 if is_quick else 4):
        for door in doors if number % 2 else doors[::-1]:
            flows[door.name].append(await flow_through(door, num_events, f"round{number}"))

    def added_ms(found: dict[str, list[float]], door: Door) -> float:
        return statistics.median(found[door.name]) - statistics.median(found[direct.name])

    def cpu(door: Door) -> float:
        return statistics.median(flow.cpu_share for flow in flows[door.name])

    gateway_flows = flows[through.name]
    goals = (
        Goal("first_byte_added_ms", added_ms(short, through), FIRST_BYTE_TARGET_MS, "lower"),
        Goal("cpu_share", cpu(through), CPU_TARGET_SHARE, "lower"),
        Goal("last_event_delay_ms", max(max(f.last_ms) for f in gateway_flows), BACKLOG_LIMIT_MS, "lower"),
        Goal("late_ms", max(f.late_ms - f.generator_late_ms for f in gateway_flows), BACKLOG_LIMIT_MS, "lower"),
    )
    detail: dict[str, Any] = {
        "streams": f"{NUM_STREAMS} x {EVENTS_PER_S} events/s, {num_events} events each",
        "first_byte_ms": {name: spread(values) for name, values in short.items()},
        "first_byte_added_by_bare_relay_ms": round(added_ms(short, relay), 2),
        "first_byte_added_to_long_prompt_ms": round(added_ms(long, through), 2),
        "first_byte_added_by_bare_relay_to_long_prompt_ms": round(added_ms(long, relay), 2),
        "long_prompt_bytes": len(long_text),
        "cpu_shares": {name: [round(flow.cpu_share, 3) for flow in each] for name, each in flows.items()},
        "cpu_of_bare_relay": round(cpu(relay), 3),
        "event_delay_ms": {
            name: spread([delay for flow in each for delay in flow.delays_ms]) for name, each in flows.items()
        },
        "load_average_before": load,
        "generator_late_ms": round(max(flow.generator_late_ms for each in flows.values() for flow in each), 1),
    }
    return Measurement(
        "gateway_overhead", goals[0].value, "ms", FIRST_BYTE_TARGET_MS, "lower", detail=detail, goals=goals
    )


def measure(is_quick: bool) -> Measurement:
    num_events = EVENTS_PER_S * (5 if is_quick else 20)
    with gateway([AT_ONCE, steadily(num_events)]) as started, bare_relay(started) as relay:
        launch = started.engine_launch
        engine = psutil.Process(started.stack.record("engine").pid)
        doors = [
            Door("direct", launch.port, launch.secret, engine),
            Door("gateway", started.api_port, started.key, started.control),
            relay,
        ]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(measure_doors(doors, is_quick, num_events))


if __name__ == "__main__":
    run(measure, __doc__ or "")
