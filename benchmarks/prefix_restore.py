"""Time to the first token of a prompt that is known but for its last 50 tokens, over the time of the same prompt cold.

It measures no transport and no template; the first token is the one that the worker hands to the client.
"""

import gc
import statistics

import mlx.core as mx

from benchmarks import models
from benchmarks.models import Kind
from benchmarks.report import Goal, Measurement
from benchmarks.streams import PATIENCE_S, ask, running, wait_until
from benchmarks.workload import Workload, run_workload, say

NEW_TOKENS = 50
CPU_TARGET = 0.03
GPU_TARGET = 0.015


def compare(workload: Workload, kind: Kind) -> tuple[float, dict[str, object]]:
    """The warm share of the cold TTFT, the median of several prompts; and what was seen."""
    model = models.build(kind, workload.size, say=say)
    length = workload.on(cpu=8192, gpu=32768)
    num_rounds = 1 if workload.is_quick else 3
    shares, colds, warms, restored = [], [], [], []
    with running(model) as worker:
        warm_up = workload.prompt(kind, 2048, seed=99)
        for number in range(2):  # once computed, once restored: kernels of both ways are loaded
            ask(worker, f"warm-up-{number}", warm_up + workload.prompt(kind, NEW_TOKENS), max_tokens=4).wait()
        for number in range(num_rounds):
            prompt = workload.prompt(kind, length, seed=number + 1)
            cold = ask(worker, f"cold-{number}", prompt, max_tokens=4)
            cold.wait()
            wait_until(lambda: not worker.snapshot.requests, patience_s=PATIENCE_S)
            longer = prompt + workload.prompt(kind, NEW_TOKENS, seed=1000 + number)
            warm = ask(worker, f"warm-{number}", longer, max_tokens=4)
            restored.append(warm.cached_tokens)
            shares.append(warm.ttft_s / cold.ttft_s)
            colds.append(cold.ttft_s)
            warms.append(warm.ttft_s)
            say(f"{kind}: cold {cold.ttft_s:.3f} s, warm {warm.ttft_s:.4f} s, {restored[-1]} tokens restored")
        cache = worker.snapshot.cache
    detail: dict[str, object] = {
        "prompt_tokens": length,
        "restored_tokens": restored,
        "cold_ttft_s": round(statistics.median(colds), 3),
        "warm_ttft_s": round(statistics.median(warms), 4),
        "cache_bytes": cache.used_bytes if cache else None,
        "publish_ms": round(cache.publish_ms, 1) if cache else None,
        "restore_ms": round(cache.restore_ms, 1) if cache else None,
    }
    return statistics.median(shares), detail


def measure(workload: Workload) -> Measurement:
    target = GPU_TARGET if workload.is_gpu else CPU_TARGET
    goals: list[Goal] = []
    detail: dict[str, object] = {}
    for kind in workload.kinds:
        share, detail[kind] = compare(workload, kind)
        goals.append(Goal(kind, share, target, "lower"))
        gc.collect()
        mx.clear_cache()
    worst = max(goal.value for goal in goals)
    return Measurement("prefix_restore", worst, "of cold TTFT", target, "lower", detail, tuple(goals))


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("dense", "hybrid"))
