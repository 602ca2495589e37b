"""What GET /performance asks of splash.db: throughput, context, times to first token, and ratios, of one range of time.

It measures nothing. Definitions and traps of every figure: docs/metrics.md.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

from sqlalchemy import Connection

from control.metrics import performance_rows, performance_sums
from control.metrics.closed_sums import ClosedSums
from control.metrics.context_decay import context_points, context_regression
from control.metrics.measures import INTER_TOKEN, LARGEST_GAP, QUEUE, TTFT, TTFT_WITHOUT_QUEUE
from control.metrics.performance_figures import Counts, span_of
from control.metrics.questions import Questions
from control.metrics.recent_times import RecentTimes
from control.wire import Performance, Range

# Short enough to be answered from the rows themselves.
FROM_ROWS: Final[tuple[Range, ...]] = ("hour", "day")


class PerformanceQuestions:
    """`discarded`: windows that did not count, by reason. Raises SQLAlchemyError or TimeoutError."""

    def __init__(
        self,
        questions: Questions,
        *,
        discarded: Callable[[], Mapping[str, int]],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._questions = questions
        self._discarded = discarded
        self._wall = wall
        self._closed = ClosedSums()
        self._recent = RecentTimes()

    async def performance(self, chosen: Range, model: str | None) -> Performance:
        """`model` None: all of them together."""
        now_s, discarded = self._wall(), dict(self._discarded())
        return await self._questions.ask(
            lambda connection: self._performance(connection, chosen, model, now_s, discarded)
        )

    def _performance(
        self, connection: Connection, chosen: Range, model: str | None, now_s: float, discarded: dict[str, int]
    ) -> Performance:
        first_day = performance_sums.first_day(connection) if chosen == "all" else None
        span = span_of(chosen, now_s, first_day=first_day)
        if chosen in FROM_ROWS:
            by_model = performance_rows.counts(connection, span)
            times = performance_rows.times(connection, span, model, self._recent)
            decode = performance_rows.decode_figures(connection, span, model)
        else:
            by_model = performance_sums.counts(connection, span)
            summed = performance_sums.summed(connection, span, self._closed)
            times, decode = summed.times(model), summed.decode_figures(model)
        asked = sum((counts for name, counts in by_model.items() if model in (None, name)), Counts())
        return Performance(
            range=chosen,
            since_s=span.begin_s,
            model=model,
            models=tuple(sorted(by_model.keys() | decode.models)),
            widths=decode.widths,
            contexts=decode.contexts,
            points=context_points(connection, since_s=span.begin_s, until_s=now_s, model=model),
            regression=context_regression(connection, since_s=span.begin_s, until_s=now_s, model=model),
            step_s=span.step_s,
            speeds=decode.speeds,
            ttfts=times.ttfts,
            ttft=times.by_measure.get(TTFT),
            ttft_without_queue=times.by_measure.get(TTFT_WITHOUT_QUEUE),
            queue=times.by_measure.get(QUEUE),
            inter_token=times.by_measure.get(INTER_TOKEN),
            largest_gap=times.by_measure.get(LARGEST_GAP),
            requests=asked.requests,
            hit_rate=asked.hit_rate,
            acceptance=asked.acceptance,
            tokens_per_draft=asked.tokens_per_draft,
            input_output_ratio=asked.input_output_ratio,
            discarded=discarded,
        )
