"""What one decision costs: of the engine's scheduler, and of control's line, with 4 running and 252 waiting.

It measures policy alone: no device, no cache (what is restorable is a look-up in a table), no network.
"""

import gc
import itertools
import statistics
import time
from collections.abc import Callable

from benchmarks.report import Measurement, run
from control.fifo import Line, Ticket
from engine.blocks import TokenBlocks
from engine.request import Request, SamplingParameters
from engine.scheduler import Decode, Idle, Join, Prefill, Refuse, Scheduler, Start, Suspend

TARGET_US = 50.0
NUM_RUNNING = 4
NUM_WAITING = 252
SHARED_TOKENS = 1024
STEP_MS = 20.0


class NoOutput:
    """A request needs a text side; nothing is said here."""

    finish = None
    reasoning_tokens = 0

    def push(self, token):
        return []

    def close(self, reason):
        raise AssertionError("nothing ends here")


def a_request(number: int, *, alike: bool) -> Request:
    """Alike: all begin with the same 1,024 tokens. Else no two share a block."""
    tokens = ((1,) if alike else (number + 2,)) * SHARED_TOKENS + (number + 2,) * (100 if number % 4 else 8000)
    return Request(
        id=str(number),
        prompt=tokens,
        sampling=SamplingParameters(),
        max_tokens=100,
        request_class="batch" if number % 3 == 0 else "interactive",
        output=NoOutput(),
        deliver=lambda events: None,
        arrived_at=0.0,
        blocks=TokenBlocks(tokens),
    )


def microseconds(work: Callable[[], object]) -> float:
    began_at = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - began_at) / 1000


def scheduler_decisions_us(count: int, *, alike: bool) -> list[float]:
    """Each `next_action` of a full engine in simulated time. Who said its 20 tokens leaves, and another one comes."""
    scheduler = Scheduler(max_streams=NUM_RUNNING, restorable=lambda request: 0, needs_snapshots=True)
    coming = (a_request(number, alike=alike) for number in itertools.count())
    for _ in range(NUM_RUNNING + NUM_WAITING):
        scheduler.enter(next(coming))
    taken_us, now = [], 0.0
    while len(taken_us) < count:
        began_at = time.thread_time_ns()
        action = scheduler.next_action(now)
        taken_us.append((time.thread_time_ns() - began_at) / 1000)
        match action:
            case Start():
                scheduler.observe_pause(5.0)
            case Prefill(request, num_tokens):
                scheduler.observe_prefill(request, num_tokens, num_tokens * 1.0)
                scheduler.prefix_changed()
                now += num_tokens / 1000
            case Join():
                scheduler.observe_pause(1.0)
            case Decode():
                for request in list(scheduler.decoding):
                    request.tokens.append(1)
                    if len(request.tokens) == 20:
                        scheduler.remove(request)
                        scheduler.enter(next(coming))
                scheduler.observe_decode(STEP_MS)
                now += STEP_MS / 1000
            case Suspend() | Refuse() | Idle():
                raise AssertionError(action)
    return taken_us


def line_operations_us(count: int) -> list[float]:
    """Each arrival, departure and question for a place of a full line in control."""
    line = Line(NUM_RUNNING, limit=NUM_WAITING + 1)
    line.open()
    tickets = (Ticket(str(i), "batch" if i % 3 == 0 else "interactive") for i in itertools.count())
    for _ in range(NUM_RUNNING + NUM_WAITING):
        line.join(next(tickets))
    taken_us: list[float] = []
    for ticket in itertools.islice(tickets, count // 3):
        leaving = line.running[0]
        taken_us.append(microseconds(lambda ticket=ticket: line.join(ticket)))
        taken_us.append(microseconds(lambda leaving=leaving: line.leave(leaving)))
        taken_us.append(microseconds(lambda ticket=ticket: line.position(ticket)))
    return taken_us


def summary(taken_us: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(taken_us, n=100)
    figures = {"mean_us": statistics.fmean(taken_us), "p50_us": cuts[49], "p99_us": cuts[98], "max_us": max(taken_us)}
    return {name: round(value, 1) for name, value in figures.items()}


def measure(is_quick: bool) -> Measurement:
    count = 3000 if is_quick else 30_000
    gc.freeze()  # a collection walks over the 256 prompts of this program, which no engine would do per decision
    found = {
        "scheduler_alike": summary(scheduler_decisions_us(count, alike=True)),
        "scheduler_unlike": summary(scheduler_decisions_us(count, alike=False)),
        "control_line": summary(line_operations_us(count)),
    }
    slowest_us = max(figures["mean_us"] for figures in found.values())
    detail = found | {"num_running": NUM_RUNNING, "num_waiting": NUM_WAITING, "num_decisions": count}
    return Measurement("scheduler", slowest_us, "us", TARGET_US, "lower", detail)


if __name__ == "__main__":
    run(measure, __doc__ or "")
