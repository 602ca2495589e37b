"""The figures of an hour and of a day: exact, from the rows of requests and stretches themselves.

It sums nothing that is kept; longer ranges are answered by `control.metrics.performance_sums`.
"""

import math
from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, and_, func, select

from control.metrics.buckets import context_bucket_of
from control.metrics.performance_figures import (
    ByModel,
    Counts,
    Decoded,
    DecodeFigures,
    Span,
    Times,
    exact_percentiles,
    together,
    ttft_points,
)
from control.metrics.performance_sums import request_sums
from control.metrics.ranges import HOUR_S
from control.metrics.recent_times import MEASURES, RecentTimes, TimesOfRow
from control.metrics.tables import hourly_requests, requests, stretches


def counts(connection: Connection, span: Span) -> ByModel:
    """By model. Whole hours are summed already; of the one that the span begins in, the rows are."""
    columns = requests.c
    first_whole_hour_s = math.ceil(span.begin_s / HOUR_S) * HOUR_S
    is_at_the_edge = and_(_is_within(span), columns.started_at_s < first_whole_hour_s)
    edge = connection.execute(
        select(columns.model, func.count(), *request_sums(requests)).where(is_at_the_edge).group_by(columns.model)
    )
    hours = hourly_requests.c
    whole = connection.execute(
        select(hours.model, func.sum(hours.requests), *request_sums(hourly_requests))
        .where(hours.hour_s >= first_whole_hour_s, hours.hour_s <= span.now_s)
        .group_by(hours.model)
    )
    return together(*({model: Counts(*sums)} for model, *sums in (*edge, *whole)))


def times(connection: Connection, span: Span, model: str | None, recent: RecentTimes) -> Times:
    begin_s, now_s = span.begin_s, span.now_s
    rows = [row for row in recent.rows(connection, now_s) if begin_s <= row[0] <= now_s and model in (None, row[1])]
    by_step = _by_step(span, rows)
    ordered = {
        measure: sorted([value for value in (row[place] for row in rows) if value is not None])
        for place, measure in enumerate(MEASURES, start=2)
    }
    return Times(
        by_measure={measure: exact_percentiles(values) for measure, values in ordered.items()},
        ttfts=ttft_points({at_s: exact_percentiles(sorted(values)) for at_s, values in by_step.items()}),
    )


def decode_figures(connection: Connection, span: Span, model: str | None) -> DecodeFigures:
    found = DecodeFigures()
    is_within = and_(stretches.c.started_at_s >= span.begin_s, stretches.c.started_at_s <= span.now_s)
    for row in connection.execute(select(stretches).where(is_within)):
        found.models.add(row.model)
        if model in (None, row.model):
            ceiling = row.ceiling_tokens_per_second
            part = Decoded(
                tokens=row.tokens,
                seconds=row.seconds,
                peak_tokens_per_second=row.peak_tokens_per_second,
                ceiling_tokens=(ceiling or 0.0) * row.seconds,
                ceiling_seconds=0.0 if ceiling is None else row.seconds,
            )
            found.add_context(row.width, context_bucket_of(row.context_tokens), part)
            found.add_step(span.step_of(row.started_at_s), row.width, part)
    return found


def _is_within(span: Span) -> ColumnElement[bool]:
    started_at_s = requests.c.started_at_s
    return and_(started_at_s >= span.begin_s, started_at_s <= span.now_s, requests.c.outcome != "rejected")


def _by_step(span: Span, rows: Iterable[TimesOfRow]) -> dict[float, list[float]]:
    """The TTFT without queue, by the step in which the request began."""
    found: dict[float, list[float]] = {}
    step_s = span.step_s
    for started_at_s, _, _, ttft_ms, _, _, _ in rows:
        if ttft_ms is not None:
            at_s = started_at_s // step_s * step_s
            values = found.get(at_s)
            if values is None:
                found[at_s] = [ttft_ms]
            else:
                values.append(ttft_ms)
    return found
