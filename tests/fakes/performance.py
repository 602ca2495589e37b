"""What control measured, as `GET /performance` and `GET /engine/misses` say it: a day with known figures.

Stretches of 50 to 118 tokens a second, whatever the context; four widths; a gap in the middle of the day.
"""

import math
from typing import Final

import msgspec

from control import wire

# A Monday noon in UTC.
BEGIN_S: Final = 1_795_003_200.0
STEP_S: Final = 1_800.0
NUM_STEPS: Final = 48
# Nothing was measured in these.
GAP: Final = range(20, 26)
NUM_POINTS: Final = 1_537


def performance(**changes: object) -> wire.Performance:
    steps = [number for number in range(NUM_STEPS) if number not in GAP]
    whole = wire.Performance(
        range="day",
        since_s=BEGIN_S,
        model=None,
        models=("Qwen3.8-27B-4bit",),
        widths=(
            width(1, tokens=373_320, seconds=3_600.0, peak=121.34, ceiling=119.2),
            width(2, tokens=121_000, seconds=660.0, peak=201.0, ceiling=214.0),
            width(4, tokens=61_000, seconds=200.0, peak=None, ceiling=None),
        ),
        contexts=(
            context(1, 4_096, tokens=104_000, seconds=1_000.0),
            context(1, 65_536, tokens=206_000, seconds=2_000.0),
            context(1, 262_144, tokens=63_320, seconds=600.0),
            context(2, 65_536, tokens=121_000, seconds=660.0),
        ),
        points=tuple(
            wire.ContextPoint(
                context_tokens=int(200_000 * (number / NUM_POINTS) ** 2) + 900,
                tokens_per_second=104 + 12 * math.sin(number * 1.7),
                seconds=4.0,
            )
            for number in range(NUM_POINTS)
        ),
        regression=wire.Regression(slope_per_1k=0.002, intercept=103.6, correlation=0.026, points=NUM_POINTS),
        step_s=STEP_S,
        speeds=tuple(
            wire.SpeedPoint(at_s=BEGIN_S + number * STEP_S, width=streams, tokens_per_second=speed)
            for number in steps
            for streams, speed in ((1, 103.7 + 4 * math.sin(number / 3)), (2, 182.0 + 9 * math.cos(number / 4)))
        ),
        ttfts=tuple(
            wire.TtftPoint(at_s=BEGIN_S + number * STEP_S, p50_ms=900.0 + 20 * number, p95_ms=4_100.0 + 60 * number)
            for number in steps
        ),
        ttft=wire.Percentiles(p50_ms=1_240.0, p95_ms=9_800.0, count=1_204),
        ttft_without_queue=wire.Percentiles(p50_ms=920.0, p95_ms=4_100.0, count=1_204),
        queue=wire.Percentiles(p50_ms=3.0, p95_ms=6_200.0, count=1_204),
        inter_token=wire.Percentiles(p50_ms=9.64, p95_ms=21.2, count=1_180),
        largest_gap=wire.Percentiles(p50_ms=48.0, p95_ms=412.0, count=1_180),
        requests=1_204,
        hit_rate=0.931,
        acceptance=0.704,
        tokens_per_draft=2.41,
        input_output_ratio=127.3,
        discarded={"prefill": 1_310, "membership": 702, "idle": 96, "gap": 0, "restart": 2},
    )
    return msgspec.structs.replace(whole, **changes)


def nothing_measured() -> wire.Performance:
    return performance(
        models=(),
        widths=(),
        contexts=(),
        points=(),
        regression=None,
        speeds=(),
        ttfts=(),
        ttft=None,
        ttft_without_queue=None,
        queue=None,
        inter_token=None,
        largest_gap=None,
        requests=0,
        hit_rate=None,
        acceptance=None,
        tokens_per_draft=None,
        input_output_ratio=None,
        discarded={},
    )


def width(streams: int, *, tokens: int, seconds: float, peak: float | None, ceiling: float | None):
    return wire.WidthThroughput(
        width=streams,
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=tokens / seconds,
        peak_tokens_per_second=peak,
        ceiling_tokens_per_second=ceiling,
    )


def context(streams: int, upto: int, *, tokens: int, seconds: float) -> wire.ContextThroughput:
    return wire.ContextThroughput(
        width=streams, context_tokens=upto, tokens=tokens, seconds=seconds, tokens_per_second=tokens / seconds
    )


def miss(cause: wire.MissCause = "never_taken", *, number: int = 0, **changes: object) -> wire.MissExplanation:
    explanation = wire.MissExplanation(
        id=f"r{number}",
        sampled_at_s=BEGIN_S + number,
        cause=cause,
        prompt_tokens=61_204,
        restored_tokens=49_208,
        matched_tokens=50_412,
        first_difference=50_412,
        distance_tokens=1_204,
    )
    return msgspec.structs.replace(explanation, **changes)


def misses() -> wire.MissList:
    cold = {"restored_tokens": 0, "matched_tokens": 0, "distance_tokens": 0, "first_difference": None}
    return wire.MissList(
        misses=(
            miss("cold", number=1, **cold),
            miss("never_taken", number=2),
            miss("evicted", number=3, restored_tokens=0, distance_tokens=50_412),
            miss("evicted", number=4, restored_tokens=20_480, distance_tokens=29_932),
        )
    )
