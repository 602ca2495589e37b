"""Four requests at once that share a cold prefix: how much is prefilled for all of them, over what one alone needs.

Nothing tells the engine where the prefix ends: it has to see that the requests begin alike.
"""

import gc
import time

import mlx.core as mx

from benchmarks import models
from benchmarks.models import Kind
from benchmarks.report import Goal, Measurement
from benchmarks.streams import PATIENCE_S, ask, running, wait_until
from benchmarks.workload import Workload, run_workload, say
from engine.worker import Worker

TARGET = 1.15
PREFIX_LEN = 8192
TAIL_LEN = 64
NUM_SIBLINGS = 4


def prefill(worker: Worker, prompts: list[tuple[int, ...]], name: str) -> tuple[int, float]:
    """All at once; returns tokens prefilled, and seconds until the last first token."""
    before = worker.snapshot.scheduler.prefill_rows
    began_at = time.perf_counter()
    clients = [ask(worker, f"{name}-{number}", prompt, max_tokens=1) for number, prompt in enumerate(prompts)]
    for client in clients:
        client.wait()
    wait_until(lambda: not worker.snapshot.requests, patience_s=PATIENCE_S)
    last_at = max(client.token_at[0] for client in clients)
    return worker.snapshot.scheduler.prefill_rows - before, last_at - began_at


def compare(workload: Workload, kind: Kind) -> tuple[list[Goal], dict[str, object]]:
    model = models.build(kind, workload.size, say=say)
    with running(model, max_streams=NUM_SIBLINGS) as worker:
        ask(worker, "warm-up", workload.prompt(kind, 2048, seed=99), max_tokens=4).wait()

        def asked(prefix_seed: int, number: int) -> tuple[int, ...]:
            prefix = workload.prompt(kind, PREFIX_LEN, seed=prefix_seed)
            return prefix + workload.prompt(kind, TAIL_LEN, seed=prefix_seed * 100 + number)

        one_tokens, one_s = prefill(worker, [asked(1, 0)], "one")
        all_tokens, all_s = prefill(worker, [asked(2, number) for number in range(NUM_SIBLINGS)], "all")
        one_again_s = prefill(worker, [asked(3, 0)], "one-again")[1]
        waits = worker.snapshot.scheduler.prefix_waits
    one_s = (one_s + one_again_s) / 2
    say(f"{kind}: one {one_tokens} tokens in {one_s:.2f} s, {NUM_SIBLINGS} {all_tokens} tokens in {all_s:.2f} s")
    goals = [
        Goal(f"{kind}_tokens", all_tokens / one_tokens, TARGET, "lower"),
        Goal(f"{kind}_time", all_s / one_s, TARGET, "lower"),
    ]
    return goals, {"one_s": round(one_s, 3), "all_s": round(all_s, 3), "prefix_waits": waits}


def measure(workload: Workload) -> Measurement:
    goals: list[Goal] = []
    detail: dict[str, object] = {"prefix_tokens": PREFIX_LEN, "requests": NUM_SIBLINGS}
    for kind in workload.kinds:
        more, detail[kind] = compare(workload, kind)
        goals += more
        gc.collect()
        mx.clear_cache()
    worst = max(goal.value for goal in goals)
    return Measurement("siblings", worst, "of one prefill", TARGET, "lower", detail, tuple(goals))


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("dense", "hybrid"))
