"""Five hundred requests of eight agents in two tenants, traced, replayed, and swept over 25 budgets.

Every lookup of the replay must restore what it restored live. Agents go on with their conversations, rewrite a tag,
compact, cancel, and ask siblings at once; four run together, and the pool is too small. Tokens are random.
"""

import queue
import random
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks import models
from benchmarks.models import Kind
from benchmarks.report import Goal, Measurement
from benchmarks.streams import PATIENCE_S, Client, ask, bytes_of_layers, memory_plan, running, wait_until
from benchmarks.workload import Workload, run_workload, say
from engine.replay.replay import replay
from engine.replay.sweep import Identity, Outcome, pools_of, sweep
from engine.replay.trace import Trace
from engine.request import PromptMarks
from engine.wire import Finished, TraceStatus
from engine.worker import Worker

NUM_AGENTS: Final = 8
NUM_TENANTS: Final = 2
MOST_OPEN: Final = 6
TAG_LEN: Final = 14
GENERATION_LEN: Final = 6
NUM_BUDGETS: Final = 25
SWEEP_LIMIT_S: Final = 60.0
CANCELLED_SHARE: Final = 0.12
COMPACTED_SHARE: Final = 0.06
SIBLINGS_SHARE: Final = 0.08

Tokens = tuple[int, ...]


@dataclass
class Agent:
    """A conversation on a tenant's tools. `asked`: what it waits for, and what it said with it."""

    name: str
    tools: Tokens
    history: list[Tokens] = field(default_factory=list)
    asked: tuple[Client, Tokens | None] | None = None

    def prompt(self, newest: Tokens, tag: Tokens, generation: Tokens) -> tuple[Tokens, PromptMarks]:
        parts = [self.tools, *self.history]
        starts = [sum(map(len, parts[: index + 1])) for index in range(len(parts))]
        prompt = tuple(token for part in (*parts, tag, newest, generation) for token in part)
        return prompt, PromptMarks(len(self.tools), tuple(starts[-3:]), len(generation))


class Office:
    """Plays until `num_requests` were asked. The seed decides everything but the time it takes."""

    def __init__(self, workload: Workload, kind: Kind, worker: Worker) -> None:
        self._workload, self._kind, self._worker = workload, kind, worker
        self._source = random.Random(3)
        self._num_drawn = self.num_asked = self.num_cancelled = 0
        on = workload.on
        tools = [self._draw(on(cpu=640, gpu=8_192)) for _ in range(NUM_TENANTS)]
        self._agents = [Agent(f"agent{n}", tools[n % NUM_TENANTS]) for n in range(NUM_AGENTS)]
        self._siblings: list[Client] = []
        self._cancel_at: dict[str, float] = {}
        self._usual_s = 0.5

    def play(self, num_requests: int) -> None:
        while self.num_asked < num_requests:
            self._collect()
            free = [agent for agent in self._agents if agent.asked is None]
            if free and self._num_open < MOST_OPEN:
                self._turn(self._source.choice(free))
            for name in [name for name, moment in self._cancel_at.items() if moment < time.monotonic()]:
                del self._cancel_at[name]
                self.num_cancelled += self._worker.cancel(name)
            time.sleep(0.005)
        wait_until(lambda: not self._worker.snapshot.requests, patience_s=PATIENCE_S)

    @property
    def _num_open(self) -> int:
        self._siblings = [client for client in self._siblings if not client.ended.is_set()]
        return sum(agent.asked is not None for agent in self._agents) + len(self._siblings)

    def _turn(self, agent: Agent) -> None:
        on, chance = self._workload.on, self._source.random()
        generation = self._draw(GENERATION_LEN, seed=7)
        if chance < COMPACTED_SHARE and len(agent.history) > 6:
            prompt, marks = agent.prompt(self._draw(on(cpu=40, gpu=200)), (), generation)
            agent.history = [self._draw(on(cpu=60, gpu=400))]
            agent.asked = (self._ask(prompt, marks, on(cpu=12, gpu=64)), None)
            return
        newest = self._draw(self._source.randrange(20, on(cpu=90, gpu=600)))
        prompt, marks = agent.prompt(newest, self._draw(TAG_LEN), generation)
        if chance > 1 - SIBLINGS_SHARE:
            for number in range(2):
                tail = self._draw(24 + number)
                self._siblings.append(self._ask(prompt[: -len(generation)] + tail, marks, on(cpu=4, gpu=16)))
        agent.asked = (self._ask(prompt, marks, self._source.randrange(4, on(cpu=20, gpu=64))), newest)

    def _ask(self, prompt: Tokens, marks: PromptMarks, max_tokens: int) -> Client:
        self.num_asked += 1
        name = f"request-{self.num_asked}"
        if self._source.random() < CANCELLED_SHARE:
            self._cancel_at[name] = time.monotonic() + self._source.uniform(0, 1.5 * self._usual_s)
        return ask(self._worker, name, prompt, max_tokens=max_tokens, marks=marks)

    def _collect(self) -> None:
        for agent in self._agents:
            if agent.asked is None or not agent.asked[0].ended.is_set():
                continue
            client, newest = agent.asked
            agent.asked = None
            ending = client.ending
            if newest is not None and isinstance(ending, Finished) and ending.reason != "cancelled":
                agent.history += [newest, client.output]
                self._usual_s += (time.perf_counter() - client.asked_at - self._usual_s) / 8

    def _draw(self, length: int, seed: int | None = None) -> Tokens:
        self._num_drawn += 1
        return self._workload.prompt(self._kind, length, seed=50_000 + self._num_drawn if seed is None else seed)


def traced(worker: Worker, is_on: bool) -> TraceStatus:
    answers: queue.SimpleQueue[TraceStatus] = queue.SimpleQueue()
    pool_bytes = worker.snapshot.memory_plan.pool_bytes if worker.snapshot.memory_plan else 0

    def do(execution: Any) -> None:
        answers.put(
            execution.start_trace(model="benchmark", pool_bytes=pool_bytes) if is_on else execution.stop_trace()
        )

    worker.order(do)
    return answers.get(timeout=PATIENCE_S)


def measured(workload: Workload, kind: Kind, num_requests: int, folder: Path) -> tuple[list[Goal], dict[str, Any]]:
    model = models.build(kind, workload.size, say=say)
    kv_bytes, state_bytes = bytes_of_layers(model)
    row_bytes = workload.on(cpu=1_800, gpu=16_384) * kv_bytes + 2 * state_bytes
    pool_bytes = 4 * row_bytes + workload.on(cpu=6_000, gpu=60_000) * kv_bytes + 30 * state_bytes
    with running(model, plan=memory_plan(model, pool_bytes=pool_bytes), traces=folder) as worker:
        begun = traced(worker, True)
        office = Office(workload, kind, worker)
        office.play(num_requests)
        ended = traced(worker, False)
        cache = worker.snapshot.cache
        suspensions = worker.snapshot.scheduler.suspensions
    file = folder / (begun.file or "")
    trace = Trace.read(file)
    identity = Identity.of(replay(trace))
    pools = pools_of(trace)
    pools = tuple(pools[index * (len(pools) - 1) // (NUM_BUDGETS - 1)] for index in range(NUM_BUDGETS))
    began_at = time.perf_counter()
    outcomes = sweep(file, pools)
    sweep_s = time.perf_counter() - began_at
    falls = [
        (one.pool_bytes, one.hit_rate - two.hit_rate) for one, two in pairwise(outcomes) if two.hit_rate < one.hit_rate
    ]
    say(
        f"{kind}: {identity.num_equal} of {identity.num_lookups} lookups equal, {len(pools)} budgets in {sweep_s:.1f} s"
    )
    goals = [
        Goal(f"identical_{kind}", identity.num_equal / max(1, identity.num_lookups), 1.0, "higher"),
        Goal(f"lookups_{kind}", identity.num_lookups, None if workload.is_quick else 500, "higher"),
        Goal(f"sweep_s_{kind}", sweep_s, SWEEP_LIMIT_S, "lower"),
        Goal(f"largest_fall_{kind}", max((fall for _, fall in falls), default=0.0), None, "lower"),
    ]
    return goals, {
        "first_difference": None if identity.first is None else str(identity.first),
        "cancelled": office.num_cancelled,
        "suspensions": suspensions,
        "hit_rate_live": round(cache.hit_rate, 4) if cache else None,
        "blocks_evicted": cache.blocks_evicted if cache else None,
        "snapshots_evicted": cache.snapshots_evicted if cache else None,
        "trace_bytes": ended.num_bytes,
        "trace_bytes_a_block": round(ended.num_bytes / max(1, trace.num_blocks), 1),
        "falls": falls,
        "curve": [row(outcome) for outcome in outcomes],
    }


def row(outcome: Outcome) -> dict[str, float]:
    return {
        "pool_bytes": outcome.pool_bytes,
        "hit_rate": round(outcome.hit_rate, 4),
        "uncached_tokens": outcome.uncached_tokens,
        "prefill_s": round(outcome.prefill_s, 2),
    }


def measure(workload: Workload) -> Measurement:
    goals: list[Goal] = []
    detail: dict[str, Any] = {}
    num_requests = 60 if workload.is_quick else 520
    with tempfile.TemporaryDirectory(prefix="splash-replay-") as folder:
        for kind in workload.kinds:
            some, detail[kind] = measured(workload, kind, num_requests, Path(folder))
            goals += some
    worst = min(goal.value for goal in goals if goal.name.startswith("identical"))
    return Measurement("replay_identity", worst, "of lookups identical", 1.0, "higher", detail, tuple(goals))


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("dense", "hybrid", "sliding"))
