"""The charts of the page *Performance*: speed by streams, over time and against context, and time to first token.

Each comes with its table. It explains no causes: `webui.views.performance_words`.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time
from itertools import pairwise
from typing import Final

from control.wire import NUM_SLOTS, ContextThroughput, Performance, Range, WidthThroughput
from webui import numbers
from webui.text import Text
from webui.views.charts import UNKNOWN, Chart, ChartTable, Series, SeriesTone
from webui.views.performance_words import correlation_sentence, says_something

WIDTHS: Final = range(1, NUM_SLOTS + 1)
_WIDTH_TONES: Final[tuple[SeriesTone, ...]] = ("one", "two", "three", "four")
SPEED_UNIT: Final = "tok/s"
# The ranges that have a length; the rest begins where numbers begin.
_RANGE_S: Final[dict[Range, float]] = {"hour": 3600.0, "day": 86_400.0, "week": 7 * 86_400.0, "month": 30 * 86_400.0}
_DAY_S: Final = 86_400.0
# Times the largest bar; a higher ceiling is told in words only.
_CEILING_SHOWN_UP_TO: Final = 4
# Two steps are not neighbours when they are this many steps apart: local days have 23 to 25 hours.
_GAP_STEPS: Final = 1.5


def by_width(performance: Performance, text: Text) -> Chart:
    """Steady, peak and ceiling, by the number of streams that generate at once."""
    rows = [next((row for row in performance.widths if row.width == width), None) for width in WIDTHS]
    steady = [row.tokens_per_second if row is not None else None for row in rows]
    peak = [row.peak_tokens_per_second if row is not None else None for row in rows]
    ceiling = [row.ceiling_tokens_per_second if row is not None else None for row in rows]
    series = [
        Series(text("performance.width.steady"), _rounded(steady), "bars", "generating"),
        Series(text("performance.width.peak"), _rounded(peak), "bars", "two"),
    ]
    if not _is_dwarfed([*steady, *peak], ceiling):
        series.append(Series(text("performance.width.ceiling"), _rounded(ceiling), "bars", "neutral"))
    return Chart(
        id="by-width",
        title=text("performance.width.title"),
        hint=text("performance.width.hint"),
        summary=_widths_summary([row for row in rows if row is not None], [*steady, *peak], ceiling, text),
        empty=text("performance.empty_speed"),
        x_kind="category",
        x=tuple(float(at) for at in range(len(WIDTHS))),
        x_label="",
        y_unit=SPEED_UNIT,
        categories=tuple(_streams(width, text) for width in WIDTHS),
        series=tuple(series),
        table=ChartTable(
            headings=(
                text("performance.width.streams"),
                text("performance.width.steady_unit"),
                text("performance.width.peak_unit"),
                text("performance.width.ceiling_unit"),
                text("performance.width.reached"),
                text("performance.width.tokens"),
                text("performance.width.time"),
            ),
            rows=tuple(_width_row(width, row, text) for width, row in zip(WIDTHS, rows, strict=True)),
        ),
    )


def over_time(performance: Performance, text: Text) -> Chart:
    """Throughput of each step of time, a line for each number of streams."""
    known = {(point.at_s, point.width): point.tokens_per_second for point in performance.speeds}
    measured = sorted({point.at_s for point in performance.speeds})
    x = _with_gaps(measured, performance.step_s)
    widths = [width for width in WIDTHS if any(key[1] == width for key in known)]
    return Chart(
        id="over-time",
        title=text("performance.speed.title"),
        hint=text("performance.speed.hint"),
        summary=text("performance.speed.summary", step=_step(performance.step_s, text)),
        empty=text("performance.empty_speed"),
        x_kind="time",
        x=_drawn_at(performance, x),
        is_by_day=_is_by_day(performance),
        x_label="",
        y_unit=SPEED_UNIT,
        x_range=_range(performance),
        series=tuple(
            Series(
                _streams(width, text),
                _rounded([known.get((at_s, width)) for at_s in x]),
                "line",
                _WIDTH_TONES[width - 1],
            )
            for width in widths
        ),
        table=ChartTable(
            headings=(text("performance.speed.from"), *(f"{_streams(width, text)}, {SPEED_UNIT}" for width in widths)),
            rows=tuple(
                (
                    _moment(performance, at_s, text),
                    *(numbers.speed(known.get((at_s, width))) for width in widths),
                )
                for at_s in reversed(measured)
            ),
        ),
    )


def by_context(performance: Performance, text: Text) -> Chart:
    """A point for each stretch of a single stream, the line through them; the table is by bucket and all streams."""
    points = sorted(performance.points, key=lambda point: (point.context_tokens, point.tokens_per_second))
    line = performance.regression
    series = [
        Series(
            text("performance.context.stretch"), _rounded([p.tokens_per_second for p in points]), "points", "generating"
        ),
    ]
    if line is not None and points and says_something(line):
        fitted = [line.intercept + line.slope_per_1k * point.context_tokens / 1000 for point in points]
        series.append(Series(text("performance.context.line"), _rounded(fitted), "line", "three"))
    return Chart(
        id="by-context",
        title=text("performance.context.title"),
        hint=text("performance.context.hint"),
        summary=correlation_sentence(line, text),
        empty=text("performance.empty_context"),
        x_kind="number",
        x=tuple(float(point.context_tokens) for point in points),
        x_label=text("performance.context.axis"),
        y_unit=SPEED_UNIT,
        series=tuple(series),
        table=_context_table(performance.contexts, text),
    )


def first_token_over_time(performance: Performance, text: Text) -> Chart:
    """Median and 95th percentile, without the time in the queue, in seconds."""
    known = {point.at_s: point for point in performance.ttfts}
    measured = sorted(known)
    x = _with_gaps(measured, performance.step_s)
    p50 = [known[at_s].p50_ms / 1000 if at_s in known else None for at_s in x]
    p95 = [known[at_s].p95_ms / 1000 if at_s in known else None for at_s in x]
    return Chart(
        id="first-token",
        title=text("performance.first.title"),
        hint=text("performance.first.hint"),
        summary=text("performance.first.summary", step=_step(performance.step_s, text)),
        empty=text("performance.first.empty"),
        x_kind="time",
        x=_drawn_at(performance, x),
        is_by_day=_is_by_day(performance),
        x_label="",
        y_unit=text("shell.seconds"),
        x_range=_range(performance),
        series=(
            Series(text("performance.first.median"), _rounded(p50, 3), "line", "one"),
            Series(text("performance.first.slowest"), _rounded(p95, 3), "line", "two"),
        ),
        table=ChartTable(
            headings=(
                text("performance.speed.from"),
                text("performance.first.median"),
                text("performance.first.slowest"),
            ),
            rows=tuple(
                (
                    _moment(performance, at_s, text),
                    numbers.seconds(text, known[at_s].p50_ms),
                    numbers.seconds(text, known[at_s].p95_ms),
                )
                for at_s in reversed(measured)
            ),
        ),
    )


def share_of_ceiling(row: WidthThroughput) -> float | None:
    if not row.ceiling_tokens_per_second:
        return None
    return row.tokens_per_second / row.ceiling_tokens_per_second


def _is_dwarfed(measured: Sequence[float | None], ceiling: Sequence[float | None]) -> bool:
    """Bars of the ceiling would leave nothing to be seen of the others."""
    largest = max((value for value in measured if value is not None), default=0.0)
    return max((value for value in ceiling if value is not None), default=0.0) > _CEILING_SHOWN_UP_TO * largest


def _widths_summary(
    rows: Sequence[WidthThroughput],
    measured: Sequence[float | None],
    ceiling: Sequence[float | None],
    text: Text,
) -> str:
    reached = " · ".join(_width_summary(row, text) for row in rows)
    if not _is_dwarfed(measured, ceiling):
        return reached
    highest = max(value for value in ceiling if value is not None)
    return text.join(text("performance.width.ceiling_not_drawn", speed=numbers.speed(highest)), reached)


def _width_summary(row: WidthThroughput, text: Text) -> str:
    steady = text(
        "performance.width.summary", streams=_streams(row.width, text), speed=numbers.speed(row.tokens_per_second)
    )
    reached = share_of_ceiling(row)
    if reached is None:
        return steady
    return text("performance.width.summary_reached", steady=steady, share=numbers.share(reached, 0))


def _width_row(width: int, row: WidthThroughput | None, text: Text) -> tuple[str, ...]:
    if row is None:
        return (_streams(width, text), *(UNKNOWN,) * 6)
    return (
        _streams(width, text),
        numbers.speed(row.tokens_per_second),
        numbers.speed(row.peak_tokens_per_second),
        numbers.speed(row.ceiling_tokens_per_second),
        numbers.share(share_of_ceiling(row), 0),
        numbers.tokens(row.tokens),
        numbers.span(text, row.seconds),
    )


def _context_table(contexts: Sequence[ContextThroughput], text: Text) -> ChartTable:
    """Only the widths that were measured have columns; the time is that of a single stream."""
    cells = {(row.context_tokens, row.width): row for row in contexts}
    widths = [width for width in WIDTHS if any(key[1] == width for key in cells)]
    rows = []
    for bucket in sorted({row.context_tokens for row in contexts}):
        alone = cells.get((bucket, 1))
        rows.append(
            (
                text("performance.context.up_to", n=numbers.tokens(bucket)),
                *(
                    numbers.speed(cells[bucket, width].tokens_per_second) if (bucket, width) in cells else UNKNOWN
                    for width in widths
                ),
                numbers.span(text, alone.seconds) if alone is not None else UNKNOWN,
            )
        )
    return ChartTable(
        headings=(
            text("performance.context.bucket"),
            *(f"{_streams(width, text)}, {SPEED_UNIT}" for width in widths),
            text("performance.context.time"),
        ),
        rows=tuple(rows),
    )


def _streams(width: int, text: Text) -> str:
    return text.count("performance.width.of", width)


def _step(step_s: float, text: Text) -> str:
    """The length of a step in words: 5 min, 6 h, 1 day."""
    if step_s >= _DAY_S:
        return text.count("performance.speed.days", round(step_s / _DAY_S))
    if step_s >= 3600:
        return text("performance.speed.hours", n=f"{step_s / 3600:g}")
    return text("performance.speed.minutes", n=f"{step_s / 60:g}")


def _range(performance: Performance) -> tuple[float, float] | None:
    length_s = _RANGE_S.get(performance.range)
    if length_s is None:
        return None
    (since_s,) = _drawn_at(performance, (performance.since_s,))
    return since_s, since_s + length_s


def _is_by_day(performance: Performance) -> bool:
    return performance.step_s >= _DAY_S


def _date(at_s: float) -> date:
    """Of the machine's day that began then, or an hour before or after: this process is on the same machine."""
    return datetime.fromtimestamp(at_s + _DAY_S / 2).date()


def _moment(performance: Performance, at_s: float, text: Text) -> str:
    """A whole day has the date that it has on the page *Cost*, and not a time in the zone of who looks."""
    return _date(at_s).isoformat() if _is_by_day(performance) else numbers.date_and_time(text, at_s)


def _drawn_at(performance: Performance, times_s: Sequence[float]) -> tuple[float, ...]:
    """Where they are on the axis: of whole days, the midnights in UTC of their dates."""
    if not _is_by_day(performance):
        return tuple(times_s)
    return tuple(datetime.combine(_date(at_s), time(), UTC).timestamp() for at_s in times_s)


def _with_gaps(times_s: Sequence[float], step_s: float) -> tuple[float, ...]:
    """The same, and a time without a value after each step whose neighbour is missing: a line must end there."""
    if not times_s:
        return ()
    filled = [times_s[0]]
    for before_s, at_s in pairwise(times_s):
        if at_s - before_s > _GAP_STEPS * step_s:
            filled.append(before_s + step_s)
        filled.append(at_s)
    return tuple(filled)


def _rounded(values: Iterable[float | None], digits: int = 2) -> tuple[float | None, ...]:
    """More digits than a chart can show only make the page longer."""
    return tuple(None if value is None else round(value, digits) for value in values)
