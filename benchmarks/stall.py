"""A stream that decodes while a long prompt is prefilled: its speed against its own alone, its gaps, the price.

The peer is mlx-lm's BatchGenerator on the same model in the same process. It measures no text and no network.
"""

import gc
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from benchmarks import bare, models
from benchmarks.models import Kind
from benchmarks.report import Goal, Measurement
from benchmarks.streams import PATIENCE_S, Client, ask, running, wait_until
from benchmarks.workload import Workload, run_workload, say
from engine.gated_delta.install import install_gated_delta
from engine.promises import Promises
from engine.worker import Worker

STREAM_LEN = 512
SLICE_TARGET_MS = 400.0
LARGEST_GAP_MS = 1.25 * SLICE_TARGET_MS
PREFILL_TIMES = {0.5: 2.2, 0.25: 1.4}
AVERAGE_TARGETS = {0.5: 0.45, 0.25: None}
WINDOW_TARGET = 0.9
PEER_TARGET = 10.0
PEER_PATIENCE_S = 40.0  # a peer that takes longer is judged by what it did so far
SOLO_S = 4.0
PAUSE_TIMES = 3.0  # a gap of so many usual ones is a slice, not a step
ENDLESS = 1 << 18


@dataclass(frozen=True, slots=True)
class Stalled:
    """One stream during one prefill. Speeds in tokens a second."""

    solo: float
    average: float
    inside_windows: float
    largest_gap_ms: float
    prefill_s: float
    lone_prefill_s: float
    gap_violations: int
    share_violations: int


def speed(times: Sequence[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0])


def between(times: Sequence[float], start: float, end: float) -> list[float]:
    return [moment for moment in times if start <= moment <= end]


def solo_speed(client: Client, seconds: float) -> float:
    start = time.perf_counter()
    wait_until(lambda: time.perf_counter() - start > seconds and len(between(client.token_at, start, 1e300)) > 4)
    return speed(between(list(client.token_at), start, time.perf_counter()))


def stalled(worker: Worker, stream_prompt: tuple[int, ...], lone: tuple[int, ...], late: tuple[int, ...]) -> Stalled:
    """`lone` and `late` are as long as each other, and share nothing."""
    alone = ask(worker, "lone", lone, max_tokens=1)
    alone.wait()
    stream = ask(worker, "stream", stream_prompt, max_tokens=ENDLESS)
    stream.wait_for_tokens(8)
    before = solo_speed(stream, SOLO_S)
    intruder = ask(worker, "late", late, max_tokens=1)
    intruder.wait()
    solo = statistics.mean([before, solo_speed(stream, SOLO_S)])
    promised = worker.snapshot.promises
    worker.cancel("stream")
    stream.wait()
    times = between(stream.token_at, intruder.asked_at, intruder.token_at[0])
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    steps = [gap for gap in gaps if gap < PAUSE_TIMES / solo]
    return Stalled(
        solo=solo,
        average=len(times) / intruder.ttft_s,
        inside_windows=len(steps) / sum(steps) if steps else 0.0,
        largest_gap_ms=max(gaps) * 1000,
        prefill_s=intruder.ttft_s,
        lone_prefill_s=alone.ttft_s,
        gap_violations=promised.gap_violations if promised else 0,
        share_violations=promised.share_violations if promised else 0,
    )


def peer_share(model: object, workload: Workload, kind: Kind, length: int) -> float:
    """What BatchGenerator leaves of a stream's own speed while it prefills."""
    stream_prompt = workload.prompt(kind, STREAM_LEN, seed=1)
    caches = bare.prefilled(model, stream_prompt)
    with bare.as_mlx_lm_made_it(model):
        batch = bare.Batch(model, [stream_prompt], [caches])
        times: list[float] = []
        began_at = time.perf_counter()
        while time.perf_counter() - began_at < SOLO_S or len(times) < 16:
            if batch.advance():
                times.append(time.perf_counter())
        solo = speed(times[8:])
        late = batch.add(workload.prompt(kind, length, seed=4))
        began_at = now = time.perf_counter()
        count = 0
        while now - began_at < PEER_PATIENCE_S:
            came = batch.advance()
            now = time.perf_counter()
            count += batch.uids[0] in came
            if late in came:
                break
        batch.close()
    return count / (now - began_at) / solo


def compare(workload: Workload, kind: Kind) -> tuple[list[Goal], dict[str, object]]:
    model = models.build(kind, workload.size, say=say)
    install_gated_delta(model)
    length = workload.on(cpu=16384, gpu=61440) // (4 if workload.is_quick else 1)
    goals: list[Goal] = []
    detail: dict[str, object] = {"prompt_tokens": length}
    shares: dict[float, float] = {}
    for decode_share, prefill_target in PREFILL_TIMES.items():
        lone, late = (workload.prompt(kind, length, seed=seed) for seed in (2, 3))
        with running(model, promises=Promises(decode_share=decode_share)) as worker:
            warm = ask(worker, "warm", workload.prompt(kind, 4096, seed=5), max_tokens=4)
            warm.wait()
            found = stalled(worker, workload.prompt(kind, STREAM_LEN, seed=1), lone, late)
            wait_until(lambda: not worker.snapshot.requests, patience_s=PATIENCE_S)
        gc.collect()
        mx.clear_cache()
        shares[decode_share] = found.average / found.solo
        say(f"{kind} share {decode_share}: {found}")
        name = f"{kind}_{decode_share}"
        goals += [
            Goal(f"{name}_average", found.average / found.solo, AVERAGE_TARGETS[decode_share], "higher"),
            Goal(f"{name}_inside_windows", found.inside_windows / found.solo, WINDOW_TARGET, "higher"),
            Goal(f"{name}_largest_gap_ms", found.largest_gap_ms, LARGEST_GAP_MS, "lower"),
            Goal(f"{name}_prefill_times", found.prefill_s / found.lone_prefill_s, prefill_target, "lower"),
        ]
        detail[name] = {
            "solo_tokens_per_second": round(found.solo, 1),
            "lone_prefill_s": round(found.lone_prefill_s, 2),
            "gap_violations": found.gap_violations,
            "share_violations": found.share_violations,
        }
    theirs = peer_share(model, workload, kind, length)
    say(f"{kind}: mlx-lm's BatchGenerator leaves {theirs:.4f}")
    must_beat = kind == "hybrid" or not workload.is_gpu
    goals.append(Goal(f"{kind}_over_peer", shares[0.5] / theirs, PEER_TARGET if must_beat else None, "higher"))
    return goals, detail | {"peer_share": round(theirs, 4)}


def measure(workload: Workload) -> Measurement:
    goals: list[Goal] = []
    detail: dict[str, object] = {"slice_target_ms": SLICE_TARGET_MS, "peer": "mlx_lm BatchGenerator"}
    for kind in workload.kinds:
        more, detail[kind] = compare(workload, kind)
        goals += more
        gc.collect()
        mx.clear_cache()
    worst = min(goal.value for goal in goals if goal.name.endswith("0.5_average"))
    return Measurement("stall", worst, "of solo speed", AVERAGE_TARGETS[0.5], "higher", detail, tuple(goals))


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("dense", "hybrid"))
