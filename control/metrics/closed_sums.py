"""The sums of hours and days that are over, kept in memory: of two years they are a quarter of a million rows.

It knows no figure that is shown; `control.metrics.performance_sums` makes them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, func, select

from control.metrics.buckets import percentiles
from control.metrics.local_day import local_day
from control.metrics.measures import TTFT_WITHOUT_QUEUE
from control.metrics.performance_figures import Decoded, DecodeFigures, Span
from control.metrics.ranges import DAY_S, HOUR_S
from control.metrics.tables import (
    daily_decode,
    daily_requests,
    daily_times,
    hourly_decode,
    hourly_requests,
    hourly_times,
)
from control.wire import Percentiles

# A request is added to the day that it began on when it ends: after at most a day in the line, and hours of running.
OPEN_S: Final = 3 * DAY_S


@dataclass(frozen=True, slots=True)
class Period:
    """The tables of hours, or those of days. `first`, `last`: those of a span; `step_of`: where one lies in it.

    `first_open`: those from it on may still change.
    """

    requests: Table
    decode: Table
    times: Table
    first: Callable[[Span], int | str]
    last: Callable[[Span], int | str]
    first_open: Callable[[Span], int | str]
    step_of: Callable[[Span, Any], float]

    def when(self, table: Table) -> Column[Any]:
        return next(iter(table.primary_key.columns))

    def is_within(self, table: Table, span: Span) -> ColumnElement[bool]:
        return self._is_from(table, self.first(span), span)

    def is_closed(self, table: Table, span: Span) -> ColumnElement[bool]:
        return (self.when(table) >= self.first(span)) & (self.when(table) < self.first_open(span))

    def is_open(self, table: Table, span: Span) -> ColumnElement[bool]:
        # Of two lower bounds, SQLite would look up the first in the index, and read all that it lets through.
        return self._is_from(table, max(self.first(span), self.first_open(span)), span)

    def _is_from(self, table: Table, first: Any, span: Span) -> ColumnElement[bool]:
        # A clock that was ahead has left hours and days that are still to come.
        return and_(self.when(table) >= first, self.when(table) <= self.last(span))


HOURS: Final = Period(
    *(hourly_requests, hourly_decode, hourly_times),
    lambda span: int(span.begin_s),
    lambda span: int(span.now_s // HOUR_S * HOUR_S),
    lambda span: int((span.now_s - OPEN_S) // HOUR_S * HOUR_S),
    Span.step_of,
)
DAYS: Final = Period(
    *(daily_requests, daily_decode, daily_times),
    lambda span: span.first_day,
    lambda span: local_day(span.now_s),
    lambda span: local_day(span.now_s - OPEN_S),
    Span.step_of_day,
)


def period_of(span: Span) -> Period:
    return DAYS if span.step_s % DAY_S == 0 else HOURS


@dataclass(slots=True)
class TimeCounts:
    """How many requests had each time, by bucket: of all by measure, and the TTFT without queue by step. Of a model."""

    by_measure: dict[str, Counter[int]] = field(default_factory=dict)
    by_step: dict[float, Counter[int]] = field(default_factory=dict)

    def add(self, other: "TimeCounts") -> None:
        for measure, counts in other.by_measure.items():
            self.by_measure.setdefault(measure, Counter()).update(counts)
        for step, counts in other.by_step.items():
            self.by_step.setdefault(step, Counter()).update(counts)


@dataclass(frozen=True, slots=True)
class ClosedTimes:
    """Of one model, or of all. `ttfts`: the percentiles of each step of `counts`."""

    counts: TimeCounts
    ttfts: Mapping[float, Percentiles | None]


class SumsOfPart:
    """What the hours or days of a part of a span add up to, by model. On the reading thread only."""

    def __init__(
        self,
        connection: Connection,
        period: Period,
        span: Span,
        is_part: Callable[[Table, Span], ColumnElement[bool]],
    ) -> None:
        step_of = cache(lambda at: period.step_of(span, at))  # there are hundreds of rows to an hour or a day
        self._times = _read_times(connection, period, is_part(period.times, span), step_of)
        self._decode = _read_decode(connection, period, is_part(period.decode, span), step_of)
        self._totals: dict[str | None, ClosedTimes] = {}

    def times(self, model: str | None) -> TimeCounts:
        total = TimeCounts()
        for name, counted in self._times.items():
            if model in (None, name):
                total.add(counted)
        return total

    def closed_times(self, model: str | None) -> ClosedTimes:
        """The same, worked out once."""
        found = self._totals.get(model)
        if found is None:
            counts = self.times(model)
            ttfts = {step: percentiles(buckets) for step, buckets in counts.by_step.items()}
            found = self._totals[model] = ClosedTimes(counts, ttfts)
        return found

    def add_decode(self, figures: DecodeFigures, model: str | None) -> None:
        for name, decode in self._decode.items():
            figures.models.add(name)
            if model in (None, name):
                for (width, bucket), part in decode.by_context.items():
                    figures.add_context(width, bucket, part)
                for (step, width), part in decode.by_step.items():
                    figures.add_step(step, width, part)


class ClosedSums:
    """Read again when the day or hour, or the sums of those that are over, change. On the reading thread only."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[tuple[Any, ...], SumsOfPart]] = {}

    def of(self, connection: Connection, span: Span) -> SumsOfPart:
        """A range has its own length of step, and each of them its own place here."""
        period = period_of(span)
        state = (span.begin_s, period.first_open(span))
        for table, summed in ((period.requests, "requests"), (period.decode, "seconds")):
            totals = select(func.count(), func.sum(table.c[summed])).where(period.is_closed(table, span))
            state += tuple(connection.execute(totals).one())
        known, sums = self._kept.get(span.step_s, (None, None))
        if sums is None or known != state:
            sums = SumsOfPart(connection, period, span, period.is_closed)
            self._kept[span.step_s] = (state, sums)
        return sums


def _read_times(
    connection: Connection, period: Period, is_wanted: ColumnElement[bool], step_of: Callable[[Any], float]
) -> dict[str, TimeCounts]:
    found: dict[str, TimeCounts] = {}
    columns = period.times.c
    groups = (columns.model, columns.measure, columns.bucket)
    totals = select(*groups, func.sum(columns["count"])).where(is_wanted).group_by(*groups)
    for name, measure, bucket, count in connection.execute(totals):
        found.setdefault(name, TimeCounts()).by_measure.setdefault(measure, Counter())[bucket] = count
    steps = select(columns.model, period.when(period.times), columns.bucket, columns["count"])
    for name, at, bucket, count in connection.execute(steps.where(is_wanted, columns.measure == TTFT_WITHOUT_QUEUE)):
        by_step, step = found[name].by_step, step_of(at)
        counts = by_step.get(step)
        if counts is None:
            counts = by_step[step] = Counter()
        counts[bucket] += count
    return found


def _read_decode(
    connection: Connection, period: Period, is_wanted: ColumnElement[bool], step_of: Callable[[Any], float]
) -> dict[str, DecodeFigures]:
    columns, when = period.decode.c, period.when(period.decode)
    sums = (
        func.sum(columns.tokens),
        func.sum(columns.seconds),
        func.max(columns.peak_tokens_per_second),
        func.sum(columns.ceiling_tokens),
        func.sum(columns.ceiling_seconds),
    )
    found: dict[str, DecodeFigures] = {}
    contexts = (columns.model, columns.width, columns.context_bucket)
    for name, width, bucket, *part in connection.execute(select(*contexts, *sums).where(is_wanted).group_by(*contexts)):
        found.setdefault(name, DecodeFigures()).add_context(width, bucket, Decoded(*part))
    steps = (when, columns.model, columns.width)
    for at, name, width, *part in connection.execute(select(*steps, *sums).where(is_wanted).group_by(*steps)):
        found[name].add_step(step_of(at), width, Decoded(*part))
    return found
