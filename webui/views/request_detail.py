"""One request: where its time went, drawn to scale and as a table, and each of its numbers with a sentence.

It measures nothing: the figures are the row's own, and what follows from them alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from control.wire import ListedRequest, Overview, RequestRow
from webui import numbers
from webui.text import Text
from webui.views.outcomes import Ending, ending_of
from webui.views.request_columns import cached_share, class_word, cost, is_counted, when
from webui.views.shell import Shell

PhaseName = Literal["queue", "prefill", "decode", "rest"]

# Source: control.errors.
_WHY: Final[dict[str, str]] = {
    "client_gone": "request.why_client_gone",
    "context_length_exceeded": "request.why_context_length_exceeded",
    "engine_died": "request.why_engine_died",
    "engine_error": "request.why_engine_error",
    "engine_stopped": "request.why_engine_stopped",
    "gateway_restarts": "request.why_gateway_restarts",
    "internal_error": "request.why_internal_error",
    "invalid_request": "request.why_invalid_request",
    "key_limit_reached": "request.why_key_limit_reached",
    "model_changed": "request.why_model_changed",
    "no_model": "request.why_no_model",
    "quitting": "request.why_quitting",
    "rate_limit_exceeded": "request.why_rate_limit_exceeded",
    "request_cancelled": "request.why_request_cancelled",
    "waited_too_long": "request.why_waited_too_long",
}
_FINISHED: Final[dict[str, str]] = {
    "stop": "request.finished_stop",
    "length": "request.finished_length",
    "tool_calls": "request.finished_tool_calls",
}
# What is shorter has no place in a drawing, and is measured no better.
_LEAST_SHARE: Final = 0.002
# A shorter time is written as 0.00 s: an axis of it says nothing.
_LEAST_WHOLE_MS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Phase:
    """Percents are of the whole time. `cached_percent`: the width of the lighter part; None: nothing from the cache."""

    name: PhaseName
    label: str
    start_percent: float
    width_percent: float
    cached_percent: float | None
    from_: str
    lasted: str
    share: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """`first_token_percent` None: there was none. `ticks` are times at 0, ¼, ½, ¾ and the end."""

    phases: tuple[Phase, ...]
    first_token_percent: float | None
    first_token: str
    ticks: tuple[str, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Fact:
    label: str
    value: str
    sentence: str


@dataclass(frozen=True, slots=True)
class FactGroup:
    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class DetailPage:
    """`ending` None: it has not ended, and only `why` says what is known."""

    shell: Shell
    name: str
    key: str
    ending: Ending | None
    why: str
    timeline: Timeline | None
    groups: tuple[FactGroup, ...]


def detail_page(shell: Shell, listed: ListedRequest) -> DetailPage:
    text, row = shell.text, listed.row
    return DetailPage(
        shell=shell,
        name=f"#{row.number}",
        key=row.key,
        ending=ending_of(row, text),
        why=_why(row, text),
        timeline=_timeline(row, text),
        groups=(_tokens(row, text), _speeds(listed, text), _origin(row, text)),
    )


def running_page(shell: Shell, overview: Overview | None, request_id: str) -> DetailPage | None:
    """A request that has no row yet. None: it is in no slot, and does not wait."""
    if overview is None:
        return None
    text = shell.text
    for slot in overview.slots:
        if slot is not None and slot.id == request_id:
            return DetailPage(shell, f"#{slot.number}", slot.key, None, text("request.is_running"), None, ())
    for waiting in overview.waiting:
        if waiting.id == request_id:
            return DetailPage(shell, f"#{waiting.number}", waiting.key, None, text("request.is_waiting"), None, ())
    return None


def _why(row: RequestRow, text: Text) -> str:
    if row.error_code is not None:
        never_ran = text("request.never_ran") if row.queue_ms is None and row.prefill_ms is None else ""
        return text.join(_error_words(row, row.error_code, text), never_ran)
    if row.finish_reason in _FINISHED:
        return text(_FINISHED[row.finish_reason])
    return text("request.finished_other")


def _error_words(row: RequestRow, code: str, text: Text) -> str:
    if code == "quitting" and row.prefill_ms is not None:
        return text("request.why_quitting_cut")
    return text(_WHY[code]) if code in _WHY else text("request.why_other", code=code)


def _timeline(row: RequestRow, text: Text) -> Timeline | None:
    """None: it neither waited nor ran, or was over before a clock could tell anything.

    The phases stand one after the other; what is left of the whole time is the last one.

    Prefill and decode are on the engine's clock, the whole on control's: what is more than the whole is not drawn.
    """
    lasted: list[tuple[PhaseName, float]] = []
    for name, duration_ms in (("queue", row.queue_ms), ("prefill", row.prefill_ms), ("decode", row.decode_ms)):
        if duration_ms is not None:
            lasted.append((name, max(duration_ms, 0.0)))  # type: ignore[arg-type]  # the names above are phases
    known_ms = sum(duration_ms for _, duration_ms in lasted)
    whole_ms = row.total_ms if row.total_ms > 0 else known_ms
    if not lasted or whole_ms < _LEAST_WHOLE_MS:
        return None
    if (whole_ms - known_ms) / whole_ms > _LEAST_SHARE:
        lasted.append(("rest", whole_ms - known_ms))
    phases, start_ms = [], 0.0
    for name, duration_ms in lasted:
        phases.append(_phase(row, name, start_ms, duration_ms, whole_ms, text))
        start_ms += duration_ms
    return Timeline(
        phases=tuple(phases),
        first_token_percent=_percent(row.ttft_ms, whole_ms) if row.ttft_ms is not None else None,
        first_token=numbers.seconds(text, row.ttft_ms),
        ticks=tuple(numbers.seconds(text, whole_ms * quarter / 4) for quarter in range(5)),
        summary=text("request.timeline_summary", parts=" · ".join(_said(phase) for phase in phases)),
    )


def _said(phase: Phase) -> str:
    return f"{phase.label} {phase.lasted}"


def _phase(row: RequestRow, name: PhaseName, start_ms: float, duration_ms: float, whole_ms: float, text: Text) -> Phase:
    share = cached_share(row) if name == "prefill" else None
    start = _percent(start_ms, whole_ms)
    width = round(min(_percent(duration_ms, whole_ms), 100 - start), 2)
    return Phase(
        name=name,
        label=text(_PHASE_TEXT[name]),
        start_percent=start,
        width_percent=width,
        cached_percent=round(width * share, 2) if share else None,
        from_=numbers.seconds(text, start_ms),
        lasted=numbers.seconds(text, duration_ms),
        share=numbers.share(min(duration_ms / whole_ms, 1.0)),
        sentence=_SENTENCES[name](row, text),
    )


def _percent(part_ms: float, whole_ms: float) -> float:
    return round(min(part_ms / whole_ms, 1.0) * 100, 2)


_PHASE_TEXT: Final[dict[PhaseName, str]] = {
    "queue": "request.queue",
    "prefill": "request.prefill",
    "decode": "request.decode",
    "rest": "request.rest",
}


def _was_cut(row: RequestRow) -> bool:
    """It ended before its first token: its prompt may be read in part only, and nothing was handed over."""
    return row.outcome != "completed" and row.ttft_ms is None


def _queue_sentence(row: RequestRow, text: Text) -> str:
    return text("request.queue_cut" if _was_cut(row) and row.prefill_ms is None else "request.queue_sentence")


def _rest_sentence(row: RequestRow, text: Text) -> str:
    return text("request.rest_cut" if _was_cut(row) else "request.rest_sentence")


def _prefill_sentence(row: RequestRow, text: Text) -> str:
    if not is_counted(row):
        return text("request.prefill_sentence")
    return text(
        "request.prefill_cut" if _was_cut(row) else "request.prefill_tokens",
        computed=numbers.tokens(row.prompt_tokens - row.cached_tokens),
        cached=numbers.tokens(row.cached_tokens),
    )


def _decode_sentence(row: RequestRow, text: Text) -> str:
    gap = numbers.seconds(text, row.largest_gap_ms)
    return text.join(
        text.count("request.decode_tokens", row.completion_tokens),
        text("request.decode_gap", gap=gap) if row.largest_gap_ms is not None else "",
    )


_SENTENCES: Final[dict[PhaseName, Callable[[RequestRow, Text], str]]] = {
    "queue": _queue_sentence,
    "prefill": _prefill_sentence,
    "decode": _decode_sentence,
    "rest": _rest_sentence,
}


def _tokens(row: RequestRow, text: Text) -> FactGroup:
    def count(value: int) -> str:
        return f"{numbers.tokens(value)} {text('unit.tokens_short')}" if is_counted(row) else numbers.UNKNOWN

    share, was_cut = cached_share(row), _was_cut(row)
    prompt_sentence = text("request.prompt_cut" if was_cut else "request.prompt_sentence")
    computed_sentence = text("request.computed_cut" if was_cut else "request.computed_sentence")
    facts = [
        Fact(text("requests.prompt"), count(row.prompt_tokens), prompt_sentence),
        Fact(
            text("requests.cached"),
            f"{count(row.cached_tokens)} · {numbers.share(share)}" if share is not None else numbers.UNKNOWN,
            text("request.cached_sentence"),
        ),
        Fact(text("request.computed"), count(row.prompt_tokens - row.cached_tokens), computed_sentence),
        Fact(text("requests.output"), count(row.completion_tokens), text("request.output_sentence")),
        Fact(text("request.reasoning"), count(row.reasoning_tokens), text("request.reasoning_sentence")),
        Fact(text("request.first_tokens"), count(row.first_emission_tokens), text("request.first_tokens_sentence")),
    ]
    if row.drafted_tokens:
        accepted = f"{numbers.tokens(row.accepted_tokens)} / {numbers.tokens(row.drafted_tokens)}"
        rate = numbers.share(row.accepted_tokens / row.drafted_tokens)
        facts.append(Fact(text("request.drafted"), f"{accepted} · {rate}", text("request.drafted_sentence")))
    return FactGroup(text("request.tokens"), tuple(facts))


def _speeds(listed: ListedRequest, text: Text) -> FactGroup:
    row = listed.row
    computed = row.prompt_tokens - row.cached_tokens
    reading = computed * 1000 / row.prefill_ms if row.prefill_ms and computed > 0 else None
    return FactGroup(
        text("request.speed_and_cost"),
        (
            Fact(text("requests.ttft"), numbers.seconds(text, row.ttft_ms), text("requests.ttft_hint")),
            Fact(text("requests.total"), numbers.seconds(text, row.total_ms), text("requests.total_hint")),
            Fact(text("request.reading_speed"), _per_second(reading), text("request.reading_speed_sentence")),
            Fact(text("request.decode_speed"), _per_second(listed.tokens_per_second), text("requests.speed_hint")),
            Fact(text("request.gap"), numbers.seconds(text, row.largest_gap_ms), text("request.gap_sentence")),
            Fact(text("requests.cost"), cost(listed, text), text("requests.cost_hint")),
        ),
    )


def _per_second(speed: float | None) -> str:
    return numbers.UNKNOWN if speed is None else f"{numbers.speed(speed)} tok/s"


def _origin(row: RequestRow, text: Text) -> FactGroup:
    return FactGroup(
        text("request.origin"),
        (
            Fact(text("requests.started"), when(text, row.started_at_s), text("requests.started_hint")),
            Fact(text("requests.key"), row.key, text("requests.key_hint")),
            Fact(text("requests.model"), row.model, text("requests.model_hint")),
            Fact(text("requests.dialect"), row.dialect, text("requests.dialect_hint")),
            Fact(text("requests.class"), class_word(row, text), text("requests.class_hint")),
            Fact(
                text("request.delivery"),
                text("request.delivery_stream" if row.stream else "request.delivery_whole"),
                text("request.delivery_sentence"),
            ),
            Fact(text("request.id"), row.id, text("request.id_sentence")),
        ),
    )
