"""The parts of the answer of GET /performance, and the arithmetic that the exact and the summed ones have in common.

It asks no database and reads no clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import date, datetime
from typing import Final

from control.metrics.local_day import local_day, local_midnight_s
from control.metrics.ranges import DAY_S, HOUR_S, since_s
from control.wire import ContextThroughput, Percentiles, Range, SpeedPoint, TtftPoint, WidthThroughput

# As many as a chart can tell apart on a small screen.
STEPS_LIMIT: Final = 120
# Of the ranges that are answered from rows, and from hours; longer ones have steps of whole days.
STEP_S: Final[Mapping[Range, int]] = {"hour": 60, "day": 900, "week": 2 * HOUR_S}


@dataclass(frozen=True, slots=True)
class Span:
    """What a question is about: from `begin_s` to `now_s` (Unix time), in steps of `step_s`; the day of `begin_s`."""

    begin_s: float
    now_s: float
    step_s: int
    first_day: str

    def step_of(self, at_s: float) -> float:
        """Unix time at which the step of `at_s` begins."""
        return float(at_s // self.step_s * self.step_s)

    def step_of_day(self, day: str) -> float:
        """The same for steps of whole days, which begin at local midnights."""
        first, num_days = date.fromisoformat(self.first_day), self.step_s // DAY_S
        passed = (date.fromisoformat(day) - first).days // num_days * num_days
        return datetime.fromordinal(first.toordinal() + passed).timestamp()


def span_of(chosen: Range, now_s: float, *, first_day: str | None) -> Span:
    """`first_day`: the first that there are sums of, None when there are none."""
    begin_s, step_s = since_s(chosen, now_s), STEP_S.get(chosen, DAY_S)
    if chosen == "week":
        # Whole hours, for those are summed.
        begin_s = float(math.ceil(begin_s / HOUR_S) * HOUR_S)
    elif chosen == "all":
        today_s = local_midnight_s(now_s)
        begin_s = today_s if first_day is None else min(datetime.fromisoformat(first_day).timestamp(), today_s)
        num_days = (date.fromisoformat(local_day(now_s)) - date.fromisoformat(local_day(begin_s))).days + 1
        step_s = math.ceil(num_days / STEPS_LIMIT) * DAY_S
    return Span(begin_s, now_s, step_s, local_day(begin_s))


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over requests but rejected ones."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))

    @property
    def hit_rate(self) -> float | None:
        return ratio(self.cached_tokens, self.prompt_tokens)

    @property
    def acceptance(self) -> float | None:
        return ratio(self.accepted_tokens, self.drafted_tokens)

    @property
    def tokens_per_draft(self) -> float | None:
        """Each draft is checked in one step, which gives what was accepted of it and one token more."""
        num_steps = self.completion_tokens - self.accepted_tokens
        return self.completion_tokens / num_steps if self.drafted_tokens and num_steps > 0 else None

    @property
    def input_output_ratio(self) -> float | None:
        return ratio(self.prompt_tokens, self.completion_tokens)


ByModel = Mapping[str, Counts]


def together(*parts: ByModel) -> dict[str, Counts]:
    """Models of which nothing is counted are left out."""
    found: dict[str, Counts] = {}
    for part in parts:
        for model, counts in part.items():
            if counts.requests:
                found[model] = found.get(model, Counts()) + counts
    return found


@dataclass(frozen=True, slots=True)
class Times:
    """Percentiles by measure (control.metrics.measures), and of the TTFT without queue by step of time."""

    by_measure: Mapping[str, Percentiles | None]
    ttfts: tuple[TtftPoint, ...]


@dataclass(slots=True)
class Decoded:
    """Sums over stretches. `ceiling_tokens` = ceiling * seconds, over `ceiling_seconds` of those that have one."""

    tokens: int = 0
    seconds: float = 0.0
    peak_tokens_per_second: float | None = None
    ceiling_tokens: float = 0.0
    ceiling_seconds: float = 0.0

    def add(self, other: "Decoded") -> None:
        """Sums over sums, never a mean of means."""
        self.tokens += other.tokens
        self.seconds += other.seconds
        self.ceiling_tokens += other.ceiling_tokens
        self.ceiling_seconds += other.ceiling_seconds
        if other.peak_tokens_per_second is not None:
            self.peak_tokens_per_second = max(self.peak_tokens_per_second or 0.0, other.peak_tokens_per_second)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


@dataclass(slots=True)
class DecodeFigures:
    """Throughput by width and context bucket, and by step of time and width. Filled by who reads stretches or sums."""

    models: set[str] = field(default_factory=set)
    by_context: dict[tuple[int, int], Decoded] = field(default_factory=dict)
    by_step: dict[tuple[float, int], Decoded] = field(default_factory=dict)

    def add_context(self, width: int, bucket: int, part: Decoded) -> None:
        if part.seconds > 0:
            self.by_context.setdefault((width, bucket), Decoded()).add(part)

    def add_step(self, at_s: float, width: int, part: Decoded) -> None:
        if part.seconds > 0:
            self.by_step.setdefault((at_s, width), Decoded()).add(part)

    @property
    def widths(self) -> tuple[WidthThroughput, ...]:
        sums: dict[int, Decoded] = {}
        for (width, _), part in self.by_context.items():
            sums.setdefault(width, Decoded()).add(part)
        return tuple(
            WidthThroughput(
                width=width,
                tokens=found.tokens,
                seconds=found.seconds,
                tokens_per_second=found.tokens_per_second,
                peak_tokens_per_second=found.peak_tokens_per_second,
                ceiling_tokens_per_second=ratio(found.ceiling_tokens, found.ceiling_seconds),
            )
            for width, found in sorted(sums.items())
        )

    @property
    def contexts(self) -> tuple[ContextThroughput, ...]:
        return tuple(
            ContextThroughput(
                width=width,
                context_tokens=bucket,
                tokens=found.tokens,
                seconds=found.seconds,
                tokens_per_second=found.tokens_per_second,
            )
            for (width, bucket), found in sorted(self.by_context.items())
        )

    @property
    def speeds(self) -> tuple[SpeedPoint, ...]:
        return tuple(
            SpeedPoint(at_s=at_s, width=width, tokens_per_second=found.tokens_per_second)
            for (at_s, width), found in sorted(self.by_step.items())
        )


def exact_percentiles(ordered: Sequence[float]) -> Percentiles | None:
    """Of sorted durations; None without any. The nearest-rank definition."""
    if not ordered:
        return None
    return Percentiles(p50_ms=_at(ordered, 0.5), p95_ms=_at(ordered, 0.95), count=len(ordered))


def ttft_points(by_step: Mapping[float, Percentiles | None]) -> tuple[TtftPoint, ...]:
    return tuple(
        TtftPoint(at_s=at_s, p50_ms=found.p50_ms, p95_ms=found.p95_ms)
        for at_s, found in sorted(by_step.items())
        if found is not None
    )


def ratio(part: float, whole: float) -> float | None:
    """None, never 0, where there is nothing to divide by."""
    return part / whole if whole else None


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1]
