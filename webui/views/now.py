"""The page *Now*: figures, the four slots, the line, memory, the model, recent requests, and what each order would do.

It turns one overview into ready sentences and numbers; the template only places them.
"""

from dataclasses import dataclass
from typing import Final

from control.wire import NUM_SLOTS, ModelOnDisk, Outcome, Overview, RequestRow, Slot, Waiting
from webui import numbers
from webui.text import Text
from webui.views.engine import EngineCard, Orders, engine_card, orders
from webui.views.memory import MemoryBar, memory_bar
from webui.views.shell import Shell, Tone
from webui.watch import Seen

_OUTCOME_TEXT: Final[dict[Outcome, str]] = {
    "completed": "outcome.completed",
    "cancelled": "outcome.cancelled",
    "failed": "outcome.failed",
    "rejected": "outcome.rejected",
}
_OUTCOME_TONE: Final[dict[Outcome, Tone]] = {
    "completed": "good",
    "cancelled": "idle",
    "failed": "bad",
    "rejected": "wait",
}
_OUTCOME_SIGN: Final[dict[Outcome, str]] = {"completed": "✓", "cancelled": "–", "failed": "✕", "rejected": "!"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One large number of the strip. `note` stands beside it, smaller."""

    name: str
    label: str
    value: str
    unit: str
    note: str
    hint: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class PrefillBar:
    """`cached_percent` and `computed_percent` are the two tones, drawn one after the other."""

    cached_percent: float
    computed_percent: float
    percent: int
    eta: str
    label: str


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One of the fixed rows. `id` is None where the slot is free; `bar` None unless it prefills."""

    slot: int
    id: str | None = None
    name: str = ""
    key: str = ""
    phase: str = ""
    is_decoding: bool = False
    bar: PrefillBar | None = None
    context: str = ""
    context_hint: str = ""
    speed: str = ""
    elapsed: str = ""
    cancel_label: str = ""
    cancel_effect: str = ""
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class WaitingRow:
    id: str
    position: int
    name: str
    key: str
    phase: str
    is_held: bool
    is_batch: bool
    prompt: str
    age: str
    cancel_label: str
    cancel_effect: str


@dataclass(frozen=True, slots=True)
class RecentRow:
    id: str
    name: str
    started: str
    key: str
    model: str
    queue: str
    prefill: str
    decode: str
    prompt: str
    cached: str
    output: str
    outcome: str
    outcome_sign: str
    outcome_tone: Tone


@dataclass(frozen=True, slots=True)
class NowPage:
    """`stale` is a sentence while control is silent, else None. `models` is filled for whole pages only."""

    shell: Shell
    stale: str | None
    figures: tuple[Figure, ...]
    slots: tuple[SlotRow, ...]
    waiting: tuple[WaitingRow, ...]
    num_waiting: str
    memory: MemoryBar | None
    engine: EngineCard
    orders: Orders
    recent: tuple[RecentRow, ...]
    api_base: str
    version: str
    models: tuple[ModelOnDisk, ...] = ()


def now_page(seen: Seen, shell: Shell, models: tuple[ModelOnDisk, ...] = ()) -> NowPage:
    text, overview = shell.text, seen.overview
    waiting = overview.waiting if overview is not None else ()
    return NowPage(
        shell=shell,
        stale=_stale(seen, text),
        figures=_figures(overview, text),
        slots=_slots(overview, text),
        waiting=tuple(_waiting_row(row, text) for row in waiting),
        num_waiting=numbers.tokens(len(waiting)),
        memory=memory_bar(overview.engine, text) if overview is not None else None,
        engine=engine_card(overview, text),
        orders=orders(seen, text),
        recent=tuple(_recent_row(row, text) for row in seen.recent),
        api_base=overview.api_base if overview is not None else "",
        version=overview.version if overview is not None else "",
        models=models,
    )


def _stale(seen: Seen, text: Text) -> str | None:
    if seen.is_current:
        return None
    if seen.overview is None:
        return text("stale.never")
    return text("stale.since", age=numbers.span(text, seen.age_s))


def _figures(overview: Overview | None, text: Text) -> tuple[Figure, ...]:
    known = overview is not None
    speed = overview.decode_tokens_per_second if overview is not None else None
    decoding = overview.decoding if overview is not None else 0
    today = overview.today if overview is not None else None
    num_waiting = len(overview.waiting) if overview is not None else None
    oldest_s = max((row.waited_s for row in overview.waiting), default=None) if overview is not None else None
    return (
        Figure(
            name="speed",
            label=text("figure.speed"),
            value=numbers.speed(speed),
            unit="tok/s",
            note=text.count("figure.streams", decoding) if known else "",
            hint=text("figure.speed_hint"),
            tone="good" if decoding else "idle",
        ),
        Figure(
            name="hit-rate",
            label=text("figure.hit_rate"),
            value=numbers.share(today.hit_rate if today is not None else None),
            unit="",
            note=text(
                "figure.hit_rate_note",
                cached=numbers.tokens(today.cached_tokens),
                prompt=numbers.tokens(today.prompt_tokens),
            )
            if today is not None and today.requests
            else "",
            hint=text("figure.hit_rate_hint"),
            tone="idle",
        ),
        Figure(
            name="waiting",
            label=text("figure.waiting"),
            value=numbers.tokens(num_waiting),
            unit="",
            note=text("figure.oldest", age=numbers.span(text, oldest_s)) if oldest_s is not None else "",
            hint=text("figure.waiting_hint"),
            tone="wait" if num_waiting else "idle",
        ),
        Figure(
            name="today",
            label=text("figure.today"),
            value=numbers.tokens(today.requests if today is not None else None),
            unit=text.count("figure.requests", today.requests) if today is not None else "",
            note=text("figure.generated", n=numbers.tokens(today.completion_tokens))
            if today is not None and today.requests
            else "",
            hint=text("figure.today_hint"),
            tone="idle",
        ),
    )


def _slots(overview: Overview | None, text: Text) -> tuple[SlotRow, ...]:
    if overview is None:
        return tuple(SlotRow(slot=n) for n in range(1, NUM_SLOTS + 1))
    return tuple(
        _slot_row(n, slot, text) if slot is not None else SlotRow(slot=n, is_closed=n > overview.concurrency)
        for n, slot in enumerate(overview.slots, start=1)
    )


def _slot_row(number: int, slot: Slot, text: Text) -> SlotRow:
    is_decoding = slot.phase == "decode"
    context = None if slot.prompt_tokens is None else slot.prompt_tokens + slot.output_tokens
    return SlotRow(
        slot=number,
        id=slot.id,
        name=f"#{slot.number}",
        key=slot.key,
        phase=text("phase.decode") if is_decoding else text("phase.prefill"),
        is_decoding=is_decoding,
        bar=None if is_decoding else _prefill_bar(slot, text),
        context=numbers.tokens(context),
        context_hint=text(
            "slot.context_hint",
            prompt=numbers.tokens(slot.prompt_tokens),
            cached=numbers.tokens(slot.cached_tokens),
            output=numbers.tokens(slot.output_tokens),
        ),
        speed=numbers.speed(slot.tokens_per_second),
        elapsed=numbers.clock(slot.elapsed_s),
        cancel_label=text("cancel.label", name=f"#{slot.number}"),
        cancel_effect=text(
            "cancel.running", name=f"#{slot.number}", key=slot.key, n=numbers.tokens(slot.output_tokens)
        ),
    )


def _prefill_bar(slot: Slot, text: Text) -> PrefillBar | None:
    if not slot.prompt_tokens:
        return None
    prefilled = min(slot.prefilled_tokens, slot.prompt_tokens)
    cached = min(slot.cached_tokens, prefilled)
    percent = prefilled * 100 // slot.prompt_tokens
    return PrefillBar(
        cached_percent=round(cached * 100 / slot.prompt_tokens, 2),
        computed_percent=round((prefilled - cached) * 100 / slot.prompt_tokens, 2),
        percent=percent,
        eta=text("slot.eta", span=numbers.span(text, slot.eta_s)) if slot.eta_s is not None else "",
        label=text(
            "slot.bar",
            name=f"#{slot.number}",
            percent=percent,
            cached=numbers.tokens(cached),
            computed=numbers.tokens(prefilled - cached),
            prompt=numbers.tokens(slot.prompt_tokens),
        ),
    )


def _waiting_row(row: Waiting, text: Text) -> WaitingRow:
    return WaitingRow(
        id=row.id,
        position=row.position,
        name=f"#{row.number}",
        key=row.key,
        phase=text("phase.held") if row.phase == "held" else text("phase.waiting"),
        is_held=row.phase == "held",
        is_batch=row.request_class == "batch",
        prompt=numbers.tokens(row.prompt_tokens),
        age=numbers.span(text, row.waited_s),
        cancel_label=text("cancel.label", name=f"#{row.number}"),
        cancel_effect=text("cancel.waiting", name=f"#{row.number}", key=row.key),
    )


def _recent_row(row: RequestRow, text: Text) -> RecentRow:
    outcome = text(_OUTCOME_TEXT[row.outcome])
    return RecentRow(
        id=row.id,
        name=f"#{row.number}",
        started=numbers.time_of_day(row.started_at_s),
        key=row.key,
        model=row.model,
        queue=numbers.milliseconds(row.queue_ms),
        prefill=numbers.milliseconds(row.prefill_ms),
        decode=numbers.milliseconds(row.decode_ms),
        prompt=numbers.tokens(row.prompt_tokens),
        cached=numbers.tokens(row.cached_tokens),
        output=numbers.tokens(row.completion_tokens),
        outcome=f"{outcome} · {row.error_code}" if row.error_code else outcome,
        outcome_sign=_OUTCOME_SIGN[row.outcome],
        outcome_tone=_OUTCOME_TONE[row.outcome],
    )
