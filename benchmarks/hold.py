"""A full line of streams held across an unload and a slow load: nobody lost, nobody twice, in order, and kept alive.

Control and a scripted engine are real processes. Four streams run when the unload is asked for and must finish; 256
more come one after the other, wait, and are answered by the next engine. It measures no model.
"""

import asyncio
import itertools
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop

from benchmarks.gateway_client import DONE, Connection
from benchmarks.gateway_stack import CHAT, MIB, Gateway, chat_body, gateway, load_average
from benchmarks.report import Goal, Measurement, command_line, show
from control.delivery import YIELD_LIMIT_S
from control.fifo import MAXIMUM_CONCURRENCY, WAITING_LIMIT
from control.relay import GRACE_S, HEARTBEAT_S

HOLD_S: Final = 60.0
QUICK_HOLD_S: Final = 5.0
RSS_GROWTH_TARGET_MIB: Final = 60.0
HEARTBEAT_TARGET_S: Final = 1.0
"""How far from its time a heartbeat may be."""
LOOK_EVERY_S: Final = 0.25
END_LIMIT_S: Final = 120.0
NUM_WARM_UPS: Final = 8

ANSWER: Final = re.compile(rb'"content":"\s*(\d+)"')
RUNNING: Final = {
    "match": "running",
    "steps": [{"prefill": {}}, {"tokens": {"text": " 0" * 100, "per_second": 50}}],
}


@dataclass(slots=True)
class Held:
    """What one stream got. `said` is its own number and the engine's count of requests when it began to play it."""

    number: int
    asked_at: float = 0.0
    beats_at: list[float] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    num_ends: int = 0
    broke_off: str = ""

    @property
    def is_whole(self) -> bool:
        return self.num_ends == 1 and len(self.said) == 2 and self.said[0] == self.number and not self.broke_off


async def hold_one(started: Gateway, held: Held) -> None:
    """Ask, and listen to the end."""
    connection = await Connection.open(started.api_port, started.key)
    held.asked_at = time.monotonic()
    connection.send(CHAT, chat_body(f"{held.number} <serial>"))
    try:
        head = await connection.head()
        async for chunk in connection.chunks(head):
            if chunk.startswith(b":"):
                held.beats_at.append(time.monotonic())
            held.said += [int(number) for number in ANSWER.findall(chunk)]
            held.num_ends += chunk.count(DONE)
    except (OSError, asyncio.IncompleteReadError) as error:
        held.broke_off = type(error).__name__
    connection.close()


async def run_through(started: Gateway, text: str) -> bytes:
    connection = await Connection.open(started.api_port, started.key)
    connection.send(CHAT, chat_body(text))
    body = await connection.body()
    connection.close()
    return body


class PeakMemory:
    """Of control, looked at a few times a second."""

    def __init__(self, started: Gateway) -> None:
        self._control = started.control
        self.before_bytes = self.peak_bytes = self.now_bytes

    @property
    def now_bytes(self) -> int:
        return int(self._control.memory_info().rss)

    async def watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, self.now_bytes)
            await asyncio.sleep(LOOK_EVERY_S)


async def num_waiting(started: Gateway) -> int:
    return len((await asyncio.to_thread(started.stack.overview)).waiting)


async def fill_the_line(started: Gateway, group: asyncio.TaskGroup) -> list[Held]:
    """Each comes when the one before it is in line, so that there is an order of arrival."""
    everybody = []
    for number in range(1, WAITING_LIMIT + 1):
        held = Held(number)
        everybody.append(held)
        group.create_task(hold_one(started, held))
        while await num_waiting(started) < number:
            pass
    return everybody


async def hold_everybody(started: Gateway, hold_s: float) -> tuple[list[Held], list[bytes], PeakMemory, float]:
    for _ in range(NUM_WARM_UPS):
        await run_through(started, "hello")
    memory = PeakMemory(started)
    async with asyncio.timeout(hold_s + END_LIMIT_S), asyncio.TaskGroup() as group:
        watching = group.create_task(memory.watch())
        running = [group.create_task(run_through(started, "running")) for _ in range(MAXIMUM_CONCURRENCY)]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(started.unload)
        async with asyncio.TaskGroup() as streams:
            everybody = await fill_the_line(started, streams)
            await asyncio.to_thread(started.wait_for_state, "unloaded")
            started.write_script([{"slow_load_ms": hold_s * 1000}])
            held_at = time.monotonic()
            await asyncio.to_thread(started.load)
        ended_s = time.monotonic() - held_at
        answers = [await task for task in running]
        watching.cancel()
    return everybody, answers, memory, ended_s


def worst_beat_s(everybody: list[Held]) -> tuple[float, int]:
    """How far the worst heartbeat was from its time, and how many there were."""
    off = [abs(held.beats_at[0] - held.asked_at - GRACE_S) for held in everybody if held.beats_at]
    gaps = [later - earlier for held in everybody for earlier, later in itertools.pairwise(held.beats_at)]
    return max(off + [abs(gap - HEARTBEAT_S) for gap in gaps]), len(off) + len(gaps)


def measure(is_quick: bool, hold_s: float) -> Measurement:
    load = load_average()
    with gateway([RUNNING]) as started, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        everybody, answers, memory, ended_s = runner.run(hold_everybody(started, hold_s))
        num_requests = len(everybody) + len(answers) + NUM_WARM_UPS
        rows = started.rows(at_least=num_requests)
        after_bytes = memory.now_bytes
    num_lost = sum(not held.is_whole for held in everybody) + sum(DONE not in answer for answer in answers)
    serials = Counter(held.said[1] for held in everybody if len(held.said) > 1)
    num_doubled = sum(held.num_ends > 1 for held in everybody) + sum(n - 1 for n in serials.values())
    num_doubled += max(0, max(serials, default=0) - len(everybody))
    # Four go together, and whose connection the engine reads first among them is chance.
    displaced = [abs(held.said[1] - held.number) for held in everybody if held.is_whole]
    num_out_of_order = sum(places >= MAXIMUM_CONCURRENCY for places in displaced)
    worst_s, num_beats = worst_beat_s(everybody)
    num_silent = sum(len(held.beats_at) < 1 + int((hold_s - GRACE_S) / HEARTBEAT_S) for held in everybody)
    growth_mib = (memory.peak_bytes - memory.before_bytes) / MIB
    num_rows_wrong = abs(len(rows) - num_requests)
    goals = (
        Goal("lost", num_lost, 0, "lower"),
        Goal("doubled", num_doubled, 0, "lower"),
        Goal("out_of_order", num_out_of_order, 0, "lower"),
        Goal("rss_growth_mib", growth_mib, RSS_GROWTH_TARGET_MIB, "lower"),
        Goal("heartbeat_off_s", worst_s, HEARTBEAT_TARGET_S, "lower"),
        Goal("streams_with_too_few_heartbeats", num_silent, 0, "lower"),
        Goal("rows_missing_or_too_many", num_rows_wrong, 0, "lower"),
    )
    detail: dict[str, Any] = {
        "held_streams": len(everybody),
        "running_streams_at_the_unload": len(answers),
        "hold_s": hold_s,
        "all_answered_after_s": round(ended_s, 2),
        "heartbeats": num_beats,
        "largest_displacement": max(displaced, default=0),
        "rss_mib": {
            "before": round(memory.before_bytes / MIB, 1),
            "peak": round(memory.peak_bytes / MIB, 1),
            "after": round(after_bytes / MIB, 1),
        },
        "yield_limit_s": YIELD_LIMIT_S,
        "load_average_before": load,
        "is_quick": is_quick,
    }
    return Measurement("hold", growth_mib, "MiB", RSS_GROWTH_TARGET_MIB, "lower", detail=detail, goals=goals)


if __name__ == "__main__":
    parser = command_line(__doc__ or "")
    parser.add_argument("--seconds", type=float, help="that the load takes; 60, or 5 with --quick")
    asked = parser.parse_args()
    show(measure(asked.quick, asked.seconds or (QUICK_HOLD_S if asked.quick else HOLD_S)), is_json=asked.json)
