"""Requests on the page *Now*: in a slot, in the line, and ended; each with what cancelling it would do.

It counts nothing: figures of the whole system are `webui.views.now`.
"""

from dataclasses import dataclass

from control.wire import NUM_SLOTS, Overview, RequestRow, Slot, Waiting
from webui import numbers
from webui.text import Text
from webui.views.outcomes import ending_of
from webui.views.shell import Tone


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
    """One of the fixed rows. `id` is None where the slot is free; `bar` None unless its prompt is being read."""

    slot: int
    id: str | None = None
    name: str = ""
    key: str = ""
    phase: str = ""
    is_decoding: bool = False
    is_next: bool = False
    is_paused: bool = False
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
    """`reason` is a word for `code`, which a program would see; both are empty when there is nothing to say."""

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
    reason: str
    code: str
    outcome_sign: str
    outcome_tone: Tone


def is_reading(slot: Slot | None) -> bool:
    """The engine reads the prompt of this one now; it reads one prompt at a time."""
    return slot is not None and slot.phase == "prefill" and not slot.is_suspended and not _is_unread(slot)


def eta_words(slot: Slot, text: Text) -> str:
    """Empty while nobody can tell."""
    return text("slot.eta", span=numbers.rough_span(text, slot.eta_s)) if slot.eta_s is not None else ""


def slot_rows(overview: Overview | None, text: Text) -> tuple[SlotRow, ...]:
    if overview is None:
        return tuple(SlotRow(slot=n) for n in range(1, NUM_SLOTS + 1))
    is_anyone_read = any(is_reading(slot) for slot in overview.slots)
    return tuple(
        _slot_row(n, slot, text, is_next=is_anyone_read and slot.phase == "prefill" and _is_unread(slot))
        if slot is not None
        else SlotRow(slot=n, is_closed=n > overview.concurrency)
        for n, slot in enumerate(overview.slots, start=1)
    )


def waiting_row(row: Waiting, text: Text) -> WaitingRow:
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


def recent_row(row: RequestRow, text: Text) -> RecentRow:
    # No prompt has 0 tokens: this one was never counted, so nothing is known of it.
    is_counted = row.prompt_tokens > 0
    ending = ending_of(row, text)
    return RecentRow(
        id=row.id,
        name=f"#{row.number}",
        started=numbers.time_of_day(text, row.started_at_s),
        key=row.key,
        model=row.model,
        queue=numbers.seconds(text, row.queue_ms),
        prefill=numbers.seconds(text, row.prefill_ms),
        decode=numbers.seconds(text, row.decode_ms),
        prompt=numbers.tokens(row.prompt_tokens if is_counted else None),
        cached=numbers.tokens(row.cached_tokens if is_counted else None),
        output=numbers.tokens(row.completion_tokens if is_counted else None),
        outcome=ending.word,
        reason=ending.reason,
        code=ending.code,
        outcome_sign=ending.sign,
        outcome_tone=ending.tone,
    )


def _is_unread(slot: Slot) -> bool:
    return slot.prefilled_tokens == 0 and slot.tokens_per_second is None


def _slot_row(number: int, slot: Slot, text: Text, *, is_next: bool) -> SlotRow:
    is_paused = slot.is_suspended
    is_decoding = slot.phase == "decode" and not is_paused
    is_next = is_next and not is_paused
    context = None if slot.prompt_tokens is None else slot.prompt_tokens + slot.output_tokens
    return SlotRow(
        slot=number,
        id=slot.id,
        name=f"#{slot.number}",
        key=slot.key,
        phase=_phase(text, is_decoding=is_decoding, is_next=is_next, is_paused=is_paused),
        is_decoding=is_decoding,
        is_next=is_next,
        is_paused=is_paused,
        bar=None if is_decoding or is_next or is_paused else _prefill_bar(slot, text),
        context=numbers.tokens(context),
        context_hint=text(
            "slot.context_hint",
            prompt=numbers.tokens(slot.prompt_tokens),
            cached=numbers.tokens(slot.cached_tokens),
            output=numbers.tokens(slot.output_tokens),
        ),
        speed=numbers.speed(slot.tokens_per_second),
        elapsed=numbers.span(text, slot.elapsed_s),
        cancel_label=text("cancel.label", name=f"#{slot.number}"),
        cancel_effect=_cancel_effect(slot, text),
    )


def _phase(text: Text, *, is_decoding: bool, is_next: bool, is_paused: bool) -> str:
    if is_paused:
        return text("phase.paused")
    if is_decoding:
        return text("phase.decode")
    return text("phase.next") if is_next else text("phase.prefill")


def _cancel_effect(slot: Slot, text: Text) -> str:
    names = {"name": f"#{slot.number}", "key": slot.key}
    if not slot.output_tokens:
        return text("cancel.reading", **names)
    return text.count("cancel.streaming" if slot.stream else "cancel.whole", slot.output_tokens, **names)


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
        eta=eta_words(slot, text),
        label=text(
            "slot.bar",
            name=f"#{slot.number}",
            percent=percent,
            cached=numbers.tokens(cached),
            computed=numbers.tokens(prefilled - cached),
            prompt=numbers.tokens(slot.prompt_tokens),
        ),
    )
