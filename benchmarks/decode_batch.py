"""Four streams through the engine's worker against mlx-lm's BatchGenerator: equal lengths, and one long among short.

Steady decoding only: nobody joins or leaves in the measured window, and no prompt is prefilled in it.
"""

import gc
import statistics
from collections.abc import Sequence

import mlx.core as mx

from benchmarks import bare, models
from benchmarks.models import Kind
from benchmarks.report import Goal, Measurement
from benchmarks.streams import PATIENCE_S, ask, running, wait_until
from benchmarks.workload import Workload, run_workload, say
from engine.gated_delta.install import install_gated_delta
from engine.worker import Worker

EQUAL_LENGTHS = (512, 512, 512, 512)
MIXED_LENGTHS = (300, 300, 300, 8000)
EQUAL_TARGET = 0.95
MIXED_TARGETS: dict[Kind, float | None] = {"dense": 2.0, "hybrid": 1.2, "sliding": None}
SKIPPED_STEPS = 8
ENDLESS = 1 << 16


def steps_per_second(times: Sequence[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0])


def engine_speed(worker: Worker, prompts: Sequence[tuple[int, ...]], num_steps: int, round_name: str) -> float:
    """Steps a second while all of them decode."""
    clients = [
        ask(worker, f"{round_name}-{number}", prompt, max_tokens=ENDLESS) for number, prompt in enumerate(prompts)
    ]
    for client in clients:
        client.wait_for_tokens(SKIPPED_STEPS)
    start = len(clients[0].token_at)
    clients[0].wait_for_tokens(start + num_steps)
    for client in clients:
        assert client.request is not None
        worker.cancel(client.request.id)
    for client in clients:
        client.wait()
    wait_until(lambda: not worker.snapshot.requests, patience_s=PATIENCE_S)
    return steps_per_second(clients[0].token_at[start : start + num_steps])


def compare(workload: Workload, kind: Kind) -> list[tuple[Goal, dict[str, float]]]:
    model = models.build(kind, workload.size, say=say)
    install_gated_delta(model)
    num_rounds = 2 if workload.is_quick else workload.on(cpu=4, gpu=3)
    num_steps = workload.on(cpu=48, gpu=150)
    cases = (
        ("equal", EQUAL_LENGTHS, EQUAL_TARGET),
        ("mixed", MIXED_LENGTHS, MIXED_TARGETS[kind]),
    )
    found = []
    with running(model) as worker:
        for name, lengths, target in cases:
            prompts = [workload.prompt(kind, length, seed=seed) for seed, length in enumerate(lengths)]
            caches = [bare.prefilled(model, prompt) for prompt in prompts]
            theirs, ours = [], []
            for number in range(num_rounds + 1):
                with bare.as_mlx_lm_made_it(model):
                    times = bare.batch_times(model, prompts, caches, SKIPPED_STEPS + num_steps)
                gc.collect()
                mx.clear_cache()
                their_speed = steps_per_second(times[SKIPPED_STEPS:])
                our_speed = engine_speed(worker, prompts, num_steps, f"{name}-{number}")
                say(f"{kind} {name}: mlx-lm {their_speed:.2f}, engine {our_speed:.2f} steps/s")
                if number:  # the first round loads kernels and fills the prefix cache
                    theirs.append(their_speed)
                    ours.append(our_speed)
            ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
            speeds = {"mlx_lm": round(statistics.median(theirs), 2), "engine": round(statistics.median(ours), 2)}
            found.append((Goal(f"{kind}_{name}", ratio, target, "higher"), speeds))
            del caches
            gc.collect()
    return found


def measure(workload: Workload) -> Measurement:
    goals, speeds = [], {}
    for kind in workload.kinds:
        for goal, of in compare(workload, kind):
            goals.append(goal)
            speeds[goal.name] = of
        gc.collect()
        mx.clear_cache()
    decisive = min((goal for goal in goals if goal.name.endswith("equal")), key=lambda goal: goal.value)
    detail = {"steps_per_second": speeds, "equal_lengths": EQUAL_LENGTHS, "mixed_lengths": MIXED_LENGTHS}
    return Measurement(
        "decode_batch", decisive.value, "of mlx-lm's speed", EQUAL_TARGET, "higher", detail, tuple(goals)
    )


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("dense", "hybrid"))
