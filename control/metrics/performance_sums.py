"""The figures of a week, a month and of all time, from the sums by the hour and by the day.

It reads no row of a request: times are counted in buckets, so percentiles are within 5%.
"""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Table, func, select

from control.metrics.buckets import percentiles
from control.metrics.closed_sums import ClosedSums, SumsOfPart, period_of
from control.metrics.performance_figures import ByModel, Counts, DecodeFigures, Span, Times, together, ttft_points
from control.metrics.tables import daily_decode, daily_requests


def first_day(connection: Connection) -> str | None:
    """The first that there are sums of."""
    found = [connection.execute(select(func.min(table.c.day))).scalar() for table in (daily_requests, daily_decode)]
    return min((day for day in found if day is not None), default=None)


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


@dataclass(frozen=True, slots=True)
class Summed:
    """Times and throughput of a span, of what is `over` and of what may still change."""

    over: SumsOfPart
    open: SumsOfPart

    def times(self, model: str | None) -> Times:
        closed, newer = self.over.closed_times(model), self.open.times(model)
        measured = closed.counts.by_measure.keys() | newer.by_measure.keys()
        changed = {
            step: percentiles(counts + closed.counts.by_step.get(step, Counter()))
            for step, counts in newer.by_step.items()
        }
        return Times(
            by_measure={
                measure: percentiles(
                    closed.counts.by_measure.get(measure, Counter()) + newer.by_measure.get(measure, Counter())
                )
                for measure in measured
            },
            ttfts=ttft_points({**closed.ttfts, **changed}),
        )

    def decode_figures(self, model: str | None) -> DecodeFigures:
        found = DecodeFigures()
        for part in (self.over, self.open):
            part.add_decode(found, model)
        return found


def summed(connection: Connection, span: Span, closed: ClosedSums) -> Summed:
    period = period_of(span)
    return Summed(closed.of(connection, span), SumsOfPart(connection, period, span, period.is_open))
