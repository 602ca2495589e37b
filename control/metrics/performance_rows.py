"""The figures of an hour and of a day: exact, from the rows of requests and stretches themselves.

It sums nothing that is kept; longer ranges are answered by `control.metrics.performance_sums`.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, case, cast, func, select

from control.metrics.buckets import context_bucket_of
from control.metrics.measures import INTER_TOKEN, LARGEST_GAP, QUEUE, TTFT, TTFT_WITHOUT_QUEUE
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
        .where(hours.hour_s >= first_whole_hour_s)
        .group_by(hours.model)
    )
    return together(*({model: Counts(*sums)} for model, *sums in (*edge, *whole)))


def times(connection: Connection, span: Span, model: str | None) -> Times:
    """The same as those of `control.metrics.measures`, worked out by SQLite: a day can have 100,000 rows."""
    columns = requests.c
    later_tokens = columns.completion_tokens - func.max(columns.first_emission_tokens, 1)
    statement = select(
        cast(columns.started_at_s / span.step_s, Integer) * span.step_s,
        columns.ttft_ms,
        func.max(columns.ttft_ms - columns.queue_ms, 0.0),
        columns.queue_ms,
        case((later_tokens > 0, columns.decode_ms / later_tokens)),
        columns.largest_gap_ms,
    ).where(_is_within(span))
    if model is not None:
        statement = statement.where(columns.model == model)
    rows: Sequence[Any] = connection.execute(statement).all()
    steps, ttfts, waits, queues, gaps, largest = zip(*rows, strict=True) if rows else ((),) * 6
    by_step = _by_step(steps, waits)
    ordered = {
        TTFT: _sorted(ttfts),
        # In runs that are sorted already, which makes sorting them together quick.
        TTFT_WITHOUT_QUEUE: sorted([ttft_ms for values in by_step.values() for ttft_ms in values]),
        QUEUE: _sorted(queues),
        INTER_TOKEN: _sorted(gaps),
        LARGEST_GAP: _sorted(largest),
    }
    return Times(
        by_measure={measure: exact_percentiles(values) for measure, values in ordered.items()},
        ttfts=ttft_points({at_s: exact_percentiles(values) for at_s, values in by_step.items()}),
    )


def decode_figures(connection: Connection, span: Span, model: str | None) -> DecodeFigures:
    found = DecodeFigures()
    for row in connection.execute(select(stretches).where(stretches.c.started_at_s >= span.begin_s)):
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
    return and_(requests.c.started_at_s >= span.begin_s, requests.c.outcome != "rejected")


def _by_step(steps: Sequence[float], values: Sequence[float | None]) -> dict[float, list[float]]:
    """Sorted, by the step in which the request began."""
    found: dict[float, list[float]] = {}
    for at_s, value in zip(steps, values, strict=True):
        if value is not None:
            known = found.get(at_s)
            if known is None:
                found[at_s] = [value]
            else:
                known.append(value)
    for known in found.values():
        known.sort()
    return found


def _sorted(values: Iterable[float | None]) -> list[float]:
    return sorted([value for value in values if value is not None])
