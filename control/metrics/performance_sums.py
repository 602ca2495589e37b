"""The figures of a week, a month and of all time, from the sums by the hour and by the day.

It reads no row of a request: times are counted in buckets, so percentiles are within 5%.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, func, select

from control.metrics.buckets import percentiles
from control.metrics.local_day import local_day
from control.metrics.measures import TTFT_WITHOUT_QUEUE
from control.metrics.performance_figures import (
    ByModel,
    Counts,
    Decoded,
    DecodeFigures,
    Span,
    Times,
    together,
    ttft_points,
)
from control.metrics.ranges import DAY_S
from control.metrics.tables import (
    daily_decode,
    daily_requests,
    daily_times,
    hourly_decode,
    hourly_requests,
    hourly_times,
)

# A request is added to the day that it began on when it ends: after at most a day in the line, and hours of running.
OPEN_DAYS: Final = 3


@dataclass(frozen=True, slots=True)
class Period:
    """The tables of hours, or those of days. `first`: the first of them in a span; `step_of`: where one lies in it."""

    requests: Table
    decode: Table
    times: Table
    first: Callable[[Span], int | str]
    step_of: Callable[[Span, Any], float]

    def when(self, table: Table) -> Column[Any]:
        return next(iter(table.primary_key.columns))

    def is_within(self, table: Table, span: Span) -> ColumnElement[bool]:
        return self.when(table) >= self.first(span)


HOURS: Final = Period(hourly_requests, hourly_decode, hourly_times, lambda span: int(span.begin_s), Span.step_of)
DAYS: Final = Period(daily_requests, daily_decode, daily_times, lambda span: span.first_day, Span.step_of_day)


def period_of(span: Span) -> Period:
    return DAYS if span.step_s % DAY_S == 0 else HOURS


def first_day(connection: Connection) -> str | None:
    """The first that there are sums of."""
    found = [connection.execute(select(func.min(table.c.day))).scalar() for table in (daily_requests, daily_decode)]
    return min((day for day in found if day is not None), default=None)


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


class ClosedDays:
    """Times of days that are over, kept in memory: of two years they are a quarter of a million rows.

    They are read again when the day, the steps or the sums of those days change. On the reading thread only.
    """

    def __init__(self) -> None:
        self._known: tuple[Any, ...] | None = None
        self._by_model: dict[str, TimeCounts] = {}

    def times(self, connection: Connection, span: Span, before: str) -> dict[str, TimeCounts]:
        """By model, of the days of the span that lie before `before`."""
        columns = daily_requests.c
        is_closed = and_(DAYS.is_within(daily_requests, span), columns.day < before)
        counted = connection.execute(select(func.sum(columns.requests), func.count()).where(is_closed)).one()
        known = (span.begin_s, span.step_s, before, *counted)
        if known != self._known:
            self._by_model = _read_times(connection, DAYS, span, until=before)
            self._known = known
        return self._by_model


def request_sums(table: Table) -> tuple[ColumnElement[int], ...]:
    """In the order of the fields of `Counts`, after the number of requests."""
    columns = table.c
    return (
        func.sum(columns.prompt_tokens),
        func.sum(columns.cached_tokens),
        func.sum(columns.completion_tokens),
        func.sum(columns.drafted_tokens),
        func.sum(columns.accepted_tokens),
    )


def counts(connection: Connection, span: Span) -> ByModel:
    period = period_of(span)
    columns = period.requests.c
    statement = select(columns.model, func.sum(columns.requests), *request_sums(period.requests))
    rows = connection.execute(statement.where(period.is_within(period.requests, span)).group_by(columns.model))
    return together({model: Counts(*sums) for model, *sums in rows})


def times(connection: Connection, span: Span, model: str | None, closed: ClosedDays) -> Times:
    period = period_of(span)
    if period is DAYS:
        before = local_day(span.now_s - OPEN_DAYS * DAY_S)
        parts = [closed.times(connection, span, before), _read_times(connection, DAYS, span, since=before)]
    else:
        parts = [_read_times(connection, period, span)]
    total = TimeCounts()
    for part in parts:
        for name, counted in part.items():
            if model in (None, name):
                total.add(counted)
    return Times(
        by_measure={measure: percentiles(buckets) for measure, buckets in total.by_measure.items()},
        ttfts=ttft_points({at_s: percentiles(buckets) for at_s, buckets in total.by_step.items()}),
    )


def decode_figures(connection: Connection, span: Span, model: str | None) -> DecodeFigures:
    period = period_of(span)
    columns, when = period.decode.c, period.when(period.decode)
    sums = (
        func.sum(columns.tokens),
        func.sum(columns.seconds),
        func.max(columns.peak_tokens_per_second),
        func.sum(columns.ceiling_tokens),
        func.sum(columns.ceiling_seconds),
    )
    is_within = period.is_within(period.decode, span)
    found = DecodeFigures()
    groups = (columns.model, columns.width, columns.context_bucket)
    for name, width, bucket, *part in connection.execute(select(*groups, *sums).where(is_within).group_by(*groups)):
        found.models.add(name)
        if model in (None, name):
            found.add_context(width, bucket, Decoded(*part))
    is_wanted = is_within if model is None else and_(is_within, columns.model == model)
    steps = select(when, columns.width, *sums).where(is_wanted).group_by(when, columns.width).order_by(when)
    step_of = _cached_steps(period, span)
    for at, width, *part in connection.execute(steps):
        found.add_step(step_of(at), width, Decoded(*part))
    return found


def _read_times(
    connection: Connection, period: Period, span: Span, *, since: str | None = None, until: str | None = None
) -> dict[str, TimeCounts]:
    """Of days: only those from `since` on, and those before `until`."""
    table = period.times
    when = period.when(table)
    wanted = [period.is_within(table, span)]
    wanted += [when >= since] if since is not None else []
    wanted += [when < until] if until is not None else []
    found: dict[str, TimeCounts] = {}
    columns = table.c
    groups = (columns.model, columns.measure, columns.bucket)
    totals = select(*groups, func.sum(columns["count"])).where(*wanted).group_by(*groups)
    for name, measure, bucket, count in connection.execute(totals):
        found.setdefault(name, TimeCounts()).by_measure.setdefault(measure, Counter())[bucket] = count
    steps = select(columns.model, when, columns.bucket, columns["count"])
    step_of = _cached_steps(period, span)
    for name, at, bucket, count in connection.execute(steps.where(*wanted, columns.measure == TTFT_WITHOUT_QUEUE)):
        by_step, step = found[name].by_step, step_of(at)
        counts = by_step.get(step)
        if counts is None:
            counts = by_step[step] = Counter()
        counts[bucket] += count
    return found


def _cached_steps(period: Period, span: Span) -> Callable[[Any], float]:
    """There are hundreds of rows to an hour or a day."""
    return cache(lambda at: period.step_of(span, at))
