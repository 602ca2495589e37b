"""Clients that come and go while the engine is killed again and again: one row and one outcome each, nothing left over.

Control and a scripted engine are real processes. Each client has a key of its own and sends one request at a time, so
that every row in SQLite is the row of a known request, even when its client left before it saw an id.
It measures no model.
"""

import asyncio
import bisect
import random
import re
import signal
import statistics
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx
import msgspec
import psutil
import uvloop

from benchmarks.gateway_client import DONE, Connection, Head
from benchmarks.gateway_stack import CHAT, MIB, Gateway, chat_body, gateway, load_average
from benchmarks.report import Goal, Measurement, run
from benchmarks.status import percentile
from control.wire import OVERVIEW, Overview, RequestRow
from engine.wire import STATUS, Status
from tests.story.stack import wait_until

NUM_REQUESTS: Final = 2000
NUM_QUICK_REQUESTS: Final = 200
NUM_CLIENTS: Final = 32
NUM_KILLS: Final = 5
# Five in two minutes and nobody starts it again; after this one, a person asks for the model.
KILL_BEFORE_A_LOAD: Final = 4
CANCEL_TARGET_S: Final = 1.0
LOOK_EVERY_S: Final = 0.05
SETTLE_LIMIT_S: Final = 30.0
# Connections that were in use at one of the two counts, and the files of a log that was turned.
SPARE_FDS: Final = 4
# A client that leaves so soon may be gone before its request was one.
ENTRY_LIMIT_S: Final = 0.25
UNKNOWN_PAUSE_S: Final = 0.1
TRACE_CHARACTERS: Final = 5000

# Who leaves asked for ten seconds of answer, so that one that nobody stopped would be seen.
NUM_WORDS: Final = {"stays": 15, "leaves": 2000}
SCRIPT: Final = [
    {
        "match": match,
        "steps": [{"prefill": {"duration_ms": 40}}, {"tokens": {"text": " word" * num_words, "per_second": 200}}],
    }
    for match, num_words in NUM_WORDS.items()
]

Phase = Literal["stays", "while it sends", "before an answer", "in the answer"]
Seen = Literal["whole", "error", "cut", "left"]


@dataclass(slots=True)
class Ask:
    """One request as its client saw it. Times are wall time: rows have no other."""

    client: int
    phase: Phase
    is_stream: bool
    asked_at_s: float = 0.0
    ended_at_s: float = 0.0
    seen: Seen = "cut"
    id: str | None = None
    """None: its client left before an answer began."""
    rows: list[RequestRow] = field(default_factory=list)

    @property
    def may_have_no_row(self) -> bool:
        """It was never whole, or gone before control took it up."""
        return self.phase == "while it sends" or (
            self.seen == "left" and self.ended_at_s - self.asked_at_s < ENTRY_LIMIT_S
        )

    @property
    def agrees(self) -> bool:
        """With its row. An answer that was complete when the client left is completed."""
        outcome = self.rows[0].outcome
        if self.seen == "whole":
            return outcome == "completed"
        if self.seen == "left":
            return outcome in ("cancelled", "completed", "failed")
        return self.seen == "error" and outcome == "failed"


@dataclass(slots=True)
class Watch:
    """When each request was last seen, by its id: in control's overview and in the engine."""

    in_control: dict[str, float] = field(default_factory=dict)
    in_engine: dict[str, float] = field(default_factory=dict)

    async def run(self, started: Gateway) -> None:
        secret = started.stack.home.admin_secret()
        async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
            while True:
                await self._look_at_control(started, http, secret)
                await self._look_at_engine(started, http)
                await asyncio.sleep(LOOK_EVERY_S)

    async def _look_at_control(self, started: Gateway, http: httpx.AsyncClient, secret: str) -> None:
        url = f"http://127.0.0.1:{started.stack.ports['admin']}{OVERVIEW}"
        answer = await http.get(url, headers={"authorization": f"Bearer {secret}"})
        overview = msgspec.json.decode(answer.content, type=Overview)
        slots = [slot.id for slot in overview.slots if slot is not None]
        self.in_control |= dict.fromkeys([*slots, *(each.id for each in overview.waiting)], overview.sampled_at_s)

    async def _look_at_engine(self, started: Gateway, http: httpx.AsyncClient) -> None:
        launch = started.engine_launch
        url = f"http://127.0.0.1:{launch.port}{STATUS}"
        try:
            answer = await http.get(url, headers={"authorization": f"Bearer {launch.secret}"})
            status = msgspec.json.decode(answer.content, type=Status)
        except (httpx.HTTPError, msgspec.MsgspecError):
            return  # killed, or a new one that is not there yet
        ids = [request.id.partition(".")[0] for request in status.requests]
        self.in_engine |= dict.fromkeys(ids, status.sampled_at_s)


async def ask_once(started: Gateway, key: str, ask: Ask, draw: random.Random) -> None:
    connection = await Connection.open(started.api_port, key)
    body = chat_body("stays" if ask.phase == "stays" else "leaves", is_stream=ask.is_stream)
    ask.asked_at_s = time.time()
    try:
        if ask.phase == "while it sends":
            connection.send(CHAT, body[: draw.randrange(len(body))], announced_bytes=len(body))
            await asyncio.sleep(draw.uniform(0, 0.1))
            ask.seen = "left"
        elif ask.phase == "before an answer":
            connection.send(CHAT, body)
            await asyncio.sleep(draw.choice((0.0, draw.uniform(0, 0.1), draw.uniform(0, 1.5))))
            ask.seen = "left"
        else:
            connection.send(CHAT, body)
            num_words = draw.randrange(1, 15) if ask.phase == "in the answer" else None
            head = await connection.head()
            ask.id = head.headers["x-request-id"]
            ask.seen = await listen(connection, head, num_words)
    except (OSError, asyncio.IncompleteReadError):
        ask.seen = "cut"
    ask.ended_at_s = time.time()
    connection.close()
    if ask.id is None:
        # Or else its row could begin after the next request was sent.
        await asyncio.sleep(UNKNOWN_PAUSE_S)


async def listen(connection: Connection, head: Head, num_words: int | None) -> Seen:
    """To the end, or until `num_words` have come."""
    said = b""
    async for chunk in connection.chunks(head):
        said += chunk
        if num_words is not None and said.count(b" word") >= num_words:
            return "left"
    if head.status != 200 or b'"error":{' in said:
        return "error"
    return "whole" if DONE in said or b'"finish_reason":"stop"' in said else "cut"


async def be_a_client(started: Gateway, key: str, asks: list[Ask], done: list[Ask], draw: random.Random) -> None:
    for ask in asks:
        await ask_once(started, key, ask, draw)
        done.append(ask)


async def kill_engines(started: Gateway, done: list[Ask], num_requests: int) -> None:
    """Spread over all requests; the next engine is ready before the next is killed."""
    for kill in range(1, NUM_KILLS + 1):
        while len(done) < num_requests * kill / (NUM_KILLS + 1):  # noqa: ASYNC110  # many clients, no one event
            await asyncio.sleep(0.01)
        await asyncio.to_thread(started.wait_for_state, "ready")
        pid = (await asyncio.to_thread(started.stack.kill, "engine", signal.SIGKILL)).pid
        await asyncio.to_thread(wait_until, lambda pid=pid: started.stack.overview().engine.pid != pid, "a new engine")
        if kill == KILL_BEFORE_A_LOAD:
            await asyncio.to_thread(started.load)
        await asyncio.to_thread(started.wait_for_state, "ready")


async def warm_up(started: Gateway) -> None:
    """With a key that no client has."""
    for is_stream in (True, False):
        await ask_once(started, started.key, Ask(0, "stays", is_stream), random.Random(0))


def draw_asks(num_requests: int, draw: random.Random) -> list[list[Ask]]:
    """By client. A third leave: of these, half in the answer, a third before it, the others while they still send."""
    leaving: list[Phase] = ["in the answer", "before an answer", "in the answer", "before an answer", "while it sends"]
    phases: list[Phase] = [leaving[n // 3 % len(leaving)] if n % 3 == 0 else "stays" for n in range(num_requests)]
    draw.shuffle(phases)
    asks = [Ask(n % NUM_CLIENTS, phase, is_stream=draw.random() < 0.75) for n, phase in enumerate(phases)]
    for ask in asks:
        # An answer that is no stream comes at once: nobody can leave in the middle.
        ask.is_stream = ask.is_stream or ask.phase == "in the answer"
    return [asks[client::NUM_CLIENTS] for client in range(NUM_CLIENTS)]


async def churn(started: Gateway, keys: list[str], asks: list[list[Ask]], draw: random.Random) -> Watch:
    watch, done = Watch(), []
    num_requests = sum(len(each) for each in asks)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run(started))
        async with asyncio.TaskGroup() as clients:
            clients.create_task(kill_engines(started, done, num_requests))
            for key, own in zip(keys, asks, strict=True):
                clients.create_task(be_a_client(started, key, own, done, random.Random(draw.random())))
        await asyncio.sleep(1.5 * CANCEL_TARGET_S)
        watching.cancel()
    return watch


def give_rows(rows: list[RequestRow], asks: list[list[Ask]]) -> int:
    """Each to the request with its id; else to the last one without an id that its client had sent by then.

    Return how many rows nobody sent.
    """
    by_id = {ask.id: ask for own in asks for ask in own if ask.id is not None}
    unknown = {f"client-{number}": [ask for ask in own if ask.id is None] for number, own in enumerate(asks)}
    num_strange = 0
    for row in rows:
        ask = by_id.get(row.id) or last_before(unknown[row.key], row.started_at_s)
        if ask is None:
            num_strange += 1
        else:
            ask.rows.append(row)
    return num_strange


def last_before(asks: list[Ask], wall_s: float) -> Ask | None:
    at = bisect.bisect_right([ask.asked_at_s for ask in asks], wall_s)
    return asks[at - 1] if at else None


@dataclass(frozen=True, slots=True)
class Usage:
    """What control holds: open files and sockets, and threads. A task that leaks holds its socket."""

    num_fds: int
    num_threads: int
    rss_bytes: int

    @classmethod
    def of(cls, process: psutil.Process) -> "Usage":
        return cls(process.num_fds(), process.num_threads(), process.memory_info().rss)


def settled(started: Gateway, before: Usage | None = None) -> Usage:
    """Once nobody is in a slot or in the line; with `before`, once no more is held than then, or after a patience."""
    wait_until(lambda: is_empty(started.stack.overview()), "an empty line", SETTLE_LIMIT_S)
    deadline = time.monotonic() + SETTLE_LIMIT_S
    usage = Usage.of(started.control)
    while before is not None and usage.num_fds > before.num_fds and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        usage = Usage.of(started.control)
    return usage


def is_empty(overview: Overview) -> bool:
    return not overview.waiting and not any(overview.slots)


def logged_ends(log: str) -> Counter[str]:
    """How often control logged the end of each request."""
    return Counter(re.findall(r"control\.relay request (?:completed|cancelled|failed|rejected) id=(\w+)", log))


def gone_after_s(asks: list[Ask], watch: Watch) -> dict[str, list[float]]:
    """Of each cancelled request: how long after its client left it was over, and was last seen. 0: never seen again."""
    found: dict[str, list[float]] = defaultdict(list)
    for ask in asks:
        if ask.seen == "left" and ask.rows and ask.rows[0].outcome == "cancelled":
            row = ask.rows[0]
            found["row"].append(max(0.0, row.started_at_s + row.total_ms / 1000 - ask.ended_at_s))
            for name, seen in (("overview", watch.in_control), ("engine", watch.in_engine)):
                found[name].append(max(0.0, seen.get(row.id, 0.0) - ask.ended_at_s))
    return found


def measure(is_quick: bool) -> Measurement:
    load, draw = load_average(), random.Random(0)
    asks = draw_asks(NUM_QUICK_REQUESTS if is_quick else NUM_REQUESTS, draw)
    with gateway(SCRIPT) as started:
        keys = [started.new_key(f"client-{number}") for number in range(NUM_CLIENTS)]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            # Threads and files that are made once, with the first requests, are no leak.
            runner.run(warm_up(started))
            before = settled(started)
            began_at = time.monotonic()
            watch = runner.run(churn(started, keys, asks, draw))
        elapsed_s = time.monotonic() - began_at
        after = settled(started, before)
        restarts = started.stack.overview().engine.restarts
        log = started.stack.home.log_file("control").read_text()
        rows = started.rows(at_least=len(logged_ends(log)))
    facts = {"seconds": round(elapsed_s, 1), "restarts": restarts, "load_average_before": load}
    if "Traceback" in log:
        print(f"# from control's log: {log[log.index('Traceback') - 200 :][:TRACE_CHARACTERS]}", file=sys.stderr)
    return judged(asks, rows, log, watch, before, after, facts)


def judged(
    asks: list[list[Ask]],
    rows: list[RequestRow],
    log: str,
    watch: Watch,
    before: Usage,
    after: Usage,
    detail: dict[str, Any],
) -> Measurement:
    everybody, ends = [ask for own in asks for ask in own], logged_ends(log)
    num_strange = give_rows([row for row in rows if row.key.startswith("client-")], asks)
    without = [ask for ask in everybody if not ask.rows and not ask.may_have_no_row]
    doubled = [ask for ask in everybody if len(ask.rows) > 1]
    disagree = [ask for ask in everybody if ask.rows and not ask.agrees]
    numbers = [row.number for row in rows]
    num_gaps = (max(numbers) - min(numbers) + 1 - len(set(numbers))) if numbers else 0
    unequal_ends = sum(count != 1 for count in ends.values()) + len(set(ends) ^ {row.id for row in rows})
    gone = gone_after_s(everybody, watch)
    goals = (
        Goal("requests_without_a_row", len(without) + num_gaps, 0, "lower"),
        Goal("requests_with_two_rows", len(doubled) + num_strange + len(numbers) - len(set(numbers)), 0, "lower"),
        Goal("rows_that_disagree_with_the_client", len(disagree), 0, "lower"),
        Goal("ends_not_logged_once", unequal_ends, 0, "lower"),
        Goal("tracebacks_in_the_log", log.count("Traceback"), 0, "lower"),
        Goal("slowest_cancel_in_row_s", max(gone["row"], default=0), CANCEL_TARGET_S, "lower"),
        Goal("slowest_cancel_in_overview_s", max(gone["overview"], default=0), CANCEL_TARGET_S, "lower"),
        Goal("slowest_cancel_in_engine_s", max(gone["engine"], default=0), CANCEL_TARGET_S, "lower"),
        Goal("fds_left_over", max(0, after.num_fds - before.num_fds), SPARE_FDS, "lower"),
        Goal("threads_left_over", max(0, after.num_threads - before.num_threads), SPARE_FDS, "lower"),
    )
    detail |= {
        "requests": len(everybody),
        "kills": NUM_KILLS,
        "rows": len(rows),
        "left_before_they_were_requests": sum(not ask.rows for ask in everybody),
        "seen": dict(Counter(ask.seen for ask in everybody)),
        "outcomes": dict(Counter(f"{row.outcome} {row.error_code or ''}".strip() for row in rows)),
        "disagreements": [f"{ask.phase}: saw {ask.seen}, row {ask.rows[0].outcome}" for ask in disagree[:5]],
        "cancel_s": {
            name: {"p50": round(statistics.median(values), 3), "p99": round(percentile(values, 0.99), 3)}
            for name, values in gone.items()
        },
        "num_cancels": len(gone["row"]),
        "fds": [before.num_fds, after.num_fds],
        "threads": [before.num_threads, after.num_threads],
        "rss_mib": [round(usage.rss_bytes / MIB, 1) for usage in (before, after)],
    }
    failed = sum(goal.value for goal in goals if not goal.ok)
    return Measurement("churn", failed, "broken promises", 0, "lower", detail=detail, goals=goals)


if __name__ == "__main__":
    run(measure, __doc__ or "")
