"""The page *Performance*: how fast, how soon, how steadily, in a range of time that is chosen; and why not faster.

It turns one answer of control into ready figures, charts and sentences; the template only places them.
"""

from dataclasses import dataclass
from typing import Final, get_args
from urllib.parse import urlencode

from control.wire import MissList, Percentiles, Performance, PromiseStatus, Range
from webui import numbers
from webui.text import Text
from webui.views.charts import Chart
from webui.views.now import Figure
from webui.views.performance_charts import (
    SPEED_UNIT,
    by_context,
    by_width,
    first_token_over_time,
    over_time,
    share_of_ceiling,
)
from webui.views.performance_words import (
    Miss,
    Promise,
    discarded_sentences,
    misses_explained,
    no_misses,
    promise_sentences,
    times_of_a_row,
)
from webui.views.shell import Shell

RANGES: Final[tuple[Range, ...]] = get_args(Range)
USUAL_RANGE: Final[Range] = "day"
PATH: Final = "/performance"
LIVE_PATH: Final = "/performance/live"
_RATIO_DIGITS_BELOW: Final = 100
_RANGE_TEXT: Final[dict[Range, str]] = {
    "hour": "performance.range.hour",
    "day": "performance.range.day",
    "week": "performance.range.week",
    "month": "performance.range.month",
    "all": "performance.range.all",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A link to the same page with another range or model."""

    label: str
    path: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """`name` stands for the row in the page; the times are ready text."""

    name: str
    label: str
    hint: str
    p50: str
    p95: str
    count: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What one answer of control says."""

    figures: tuple[Figure, ...]
    width: Chart
    speed: Chart
    context: Chart
    first_token: Chart
    latencies: tuple[LatencyRow, ...]
    note: str
    discarded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PerformancePage:
    """`problem`: why `measured` is None, one sentence; `is_refused`: in control's own words, else it is silent.

    `no_misses` is what is said where `misses` is empty. `as_of`: time of day of the answer.
    """

    shell: Shell
    live_path: str
    ranges: tuple[Choice, ...]
    models: tuple[Choice, ...]
    problem: str
    is_refused: bool
    as_of: str
    measured: Measured | None
    promises: tuple[Promise, ...]
    misses: tuple[Miss, ...]
    no_misses: str


def performance_page(
    shell: Shell,
    *,
    chosen_range: Range,
    chosen_model: str | None,
    performance: Performance | None,
    refusal: str | None = None,
    promises: PromiseStatus | None = None,
    misses: MissList | None = None,
    now_s: float,
) -> PerformancePage:
    text = shell.text
    return PerformancePage(
        shell=shell,
        live_path=_path(LIVE_PATH, chosen_range, chosen_model),
        ranges=tuple(
            Choice(text(_RANGE_TEXT[each]), _path(PATH, each, chosen_model), each == chosen_range) for each in RANGES
        ),
        models=_model_choices(performance, chosen_range, chosen_model, text),
        problem=refusal if refusal is not None else text("stale.never"),
        is_refused=refusal is not None,
        as_of=text("performance.as_of", at=numbers.time_of_day(text, now_s)),
        measured=_measured(performance, text) if performance is not None else None,
        promises=promise_sentences(promises, text),
        misses=() if misses is None else misses_explained(misses.misses, text),
        no_misses=no_misses(misses, text),
    )


def _path(path: str, chosen_range: Range, model: str | None) -> str:
    query = {"range": chosen_range} | ({"model": model} if model is not None else {})
    return f"{path}?{urlencode(query)}"


def _model_choices(
    performance: Performance | None, chosen_range: Range, chosen_model: str | None, text: Text
) -> tuple[Choice, ...]:
    """All together, and each one; nothing to choose from when there is but one."""
    known = performance.models if performance is not None else ()
    names = sorted({*known, *((chosen_model,) if chosen_model is not None else ())})
    if len(names) < 2 and chosen_model is None:
        return ()
    together = Choice(text("performance.all_models"), _path(PATH, chosen_range, None), chosen_model is None)
    return (together, *(Choice(name, _path(PATH, chosen_range, name), name == chosen_model) for name in names))


def _measured(performance: Performance, text: Text) -> Measured:
    return Measured(
        figures=_figures(performance, text),
        width=by_width(performance, text),
        speed=over_time(performance, text),
        context=by_context(performance, text),
        first_token=first_token_over_time(performance, text),
        latencies=_latencies(performance, text),
        note=text.count("performance.latency.of", performance.requests) if performance.requests else "",
        discarded=discarded_sentences(performance.discarded, text),
    )


def _figures(performance: Performance, text: Text) -> tuple[Figure, ...]:
    return (
        _speed_figure(performance, text),
        _ttft_figure(performance, text),
        Figure(
            name="hit-rate",
            label=text("performance.hit_rate"),
            value=numbers.share(performance.hit_rate),
            unit="",
            note=text("performance.ratio", ratio=_ratio(performance.input_output_ratio))
            if performance.input_output_ratio is not None
            else "",
            hint=text("performance.hit_rate_hint"),
            tone="idle",
        ),
        Figure(
            name="acceptance",
            label=text("performance.acceptance"),
            value=numbers.share(performance.acceptance),
            unit="",
            note=text("performance.per_draft", n=f"{performance.tokens_per_draft:.2f}")
            if performance.tokens_per_draft is not None
            else text("performance.no_drafts"),
            hint=text("performance.acceptance_hint"),
            tone="idle",
        ),
    )


def _ratio(ratio: float) -> str:
    return f"{ratio:,.1f}" if ratio < _RATIO_DIGITS_BELOW else f"{ratio:,.0f}"


def _speed_figure(performance: Performance, text: Text) -> Figure:
    alone = next((row for row in performance.widths if row.width == 1), None)
    notes = []
    if alone is not None and alone.peak_tokens_per_second is not None:
        notes.append(text("performance.peak", speed=numbers.speed(alone.peak_tokens_per_second)))
    reached = share_of_ceiling(alone) if alone is not None else None
    if reached is not None:
        notes.append(text("performance.of_ceiling", share=numbers.share(reached, 0)))
    return Figure(
        name="steady",
        label=text("performance.speed"),
        value=numbers.speed(alone.tokens_per_second if alone is not None else None),
        unit=SPEED_UNIT,
        note=" · ".join(notes),
        hint=text("performance.speed_hint"),
        tone="idle",
    )


def _ttft_figure(performance: Performance, text: Text) -> Figure:
    ttft = performance.ttft_without_queue
    return Figure(
        name="ttft",
        label=text("performance.ttft"),
        value=numbers.bare_seconds(ttft.p50_ms if ttft is not None else None),
        unit=text("shell.seconds"),
        note=text("performance.ttft_note", p95=numbers.seconds(text, ttft.p95_ms)) if ttft is not None else "",
        hint=text("performance.ttft_hint"),
        tone="idle",
    )


def _latencies(performance: Performance, text: Text) -> tuple[LatencyRow, ...]:
    """What a person waits for, then what passes between two tokens."""

    def row(name: str, label: str, hint: str, times: Percentiles | None) -> LatencyRow:
        p50, p95 = times_of_a_row((times.p50_ms, times.p95_ms), text) if times else (numbers.UNKNOWN,) * 2
        return LatencyRow(
            name=name,
            label=label,
            hint=hint,
            p50=p50,
            p95=p95,
            count=numbers.tokens(times.count if times is not None else None),
        )

    return (
        row("ttft", text("performance.latency.ttft"), text("performance.latency.ttft_hint"), performance.ttft),
        row("queue", text("performance.latency.queue"), text("performance.latency.queue_hint"), performance.queue),
        row(
            "alone",
            text("performance.latency.alone"),
            text("performance.latency.alone_hint"),
            performance.ttft_without_queue,
        ),
        row(
            "token",
            text("performance.latency.token"),
            text("performance.latency.token_hint"),
            performance.inter_token,
        ),
        row(
            "gap",
            text("performance.latency.gap"),
            text("performance.latency.gap_hint"),
            performance.largest_gap,
        ),
    )
