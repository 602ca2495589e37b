"""How fast one stream decodes through the engine's worker, over bare mlx-lm's speed on the same model and prompt.

It joins, prefills and samples nothing that is measured: greedy, in a steady stream, in rounds that alternate.
"""

import gc
import statistics
from collections.abc import Sequence
from itertools import pairwise

import mlx.core as mx

from benchmarks import bare, models
from benchmarks.models import Kind
from benchmarks.report import Goal, Measurement
from benchmarks.streams import ask, running
from benchmarks.workload import Workload, run_workload, say
from engine.gated_delta.install import install_gated_delta

TARGET = 0.95
CONTEXTS = (512, 8192)
SKIPPED_TOKENS = 8  # while caches and kernels warm up


def tokens_per_second(times: Sequence[float]) -> float:
    kept = times[SKIPPED_TOKENS:]
    return (len(kept) - 1) / (kept[-1] - kept[0])


def usual_gap_s(times: Sequence[float]) -> float:
    """The lower quartile of the gaps between tokens: what a step takes when nothing else has the machine."""
    return statistics.quantiles([later - earlier for earlier, later in pairwise(times[SKIPPED_TOKENS:])], n=4)[0]


def compare(workload: Workload, kind: Kind) -> list[tuple[str, float, dict[str, float]]]:
    """Per context: its name, the engine's share of bare speed (the median round), and both speeds."""
    model = models.build(kind, workload.size, say=say)
    install_gated_delta(model)
    num_rounds = 2 if workload.is_quick else workload.on(cpu=7, gpu=4)
    num_tokens = workload.on(cpu=64, gpu=200)
    found = []
    with running(model) as worker:
        for context in CONTEXTS:
            prompt = workload.prompt(kind, context)
            caches = bare.prefilled(model, prompt)
            bare_speeds, our_speeds = [], []
            bare_gaps, our_gaps = [], []
            for number in range(num_rounds + 1):
                with bare.as_mlx_lm_made_it(model):
                    bare_times = bare.one_stream(model, prompt, caches, num_tokens)
                client = ask(worker, f"{context}-{number}", prompt, max_tokens=num_tokens)
                client.wait()
                bare_speed, our_speed = tokens_per_second(bare_times), tokens_per_second(client.token_at)
                if number:  # the first round loads kernels, and fills the prefix cache
                    bare_speeds.append(bare_speed)
                    our_speeds.append(our_speed)
                    bare_gaps.append(usual_gap_s(bare_times))
                    our_gaps.append(usual_gap_s(client.token_at))
                say(f"{kind} {context}: bare {bare_speed:.1f}, engine {our_speed:.1f} tok/s")
            share = statistics.median(ours / bare for ours, bare in zip(our_speeds, bare_speeds, strict=True))
            speeds = {"bare": statistics.median(bare_speeds), "engine": statistics.median(our_speeds)}
            figures = {name: round(speed, 1) for name, speed in speeds.items()}
            # Tells a slow engine from a busy machine: it leaves out what happens in fewer than a quarter of the steps.
            figures["share_of_undisturbed_steps"] = round(min(bare_gaps) / min(our_gaps), 3)
            found.append((f"{kind}_{context}", share, figures))
            del caches
            gc.collect()
    return found


def measure(workload: Workload) -> Measurement:
    goals, speeds = [], {}
    for kind in workload.kinds:
        for name, share, of in compare(workload, kind):
            goals.append(Goal(name, share, TARGET, "higher"))
            speeds[name] = of
        gc.collect()
        mx.clear_cache()
    worst = min(goal.value for goal in goals)
    detail = {"tokens_per_second": speeds, "against": "mlx_lm.generate_step, without a tokenizer on either side"}
    return Measurement("decode_overhead", worst, "of bare speed", TARGET, "higher", detail, tuple(goals))


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("dense", "hybrid", "sliding"))
