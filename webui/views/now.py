"""The page *Now*: figures, the four slots, the line, memory, the model, recent requests, and what each order would do.

It turns one overview into ready sentences and numbers; the template only places them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from control.wire import CacheCleared, ModelOnDisk, Overview
from webui import numbers
from webui.text import Text
from webui.views.engine import EngineCard, Orders, engine_card, orders
from webui.views.load_form import LoadForm, load_form
from webui.views.memory import MemoryBar, memory_bar
from webui.views.requests import RecentRow, SlotRow, WaitingRow, is_reading, recent_row, slot_rows, waiting_row
from webui.views.shell import Shell, Tone
from webui.watch import Seen

_UNTOUCHED: Final[Mapping[str, str]] = MappingProxyType({})


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
    load: LoadForm
    recent: tuple[RecentRow, ...]
    api_base: str
    version: str
    models: tuple[ModelOnDisk, ...] = ()


def now_page(
    seen: Seen,
    shell: Shell,
    models: tuple[ModelOnDisk, ...] = (),
    *,
    form: Mapping[str, str] = _UNTOUCHED,
    wrong: Mapping[str, str] = _UNTOUCHED,
) -> NowPage:
    """`form` is the load form as it was filled in, `wrong` what is wrong with its fields, as keys of sentences."""
    text, overview = shell.text, seen.overview
    waiting = overview.waiting if overview is not None else ()
    return NowPage(
        shell=shell,
        stale=None if shell.ending != "no" else _stale(seen, text),
        figures=_figures(overview, text),
        slots=slot_rows(overview, text),
        waiting=tuple(waiting_row(row, text) for row in waiting),
        num_waiting=numbers.tokens(len(waiting)),
        memory=memory_bar(overview.engine, text) if overview is not None else None,
        engine=engine_card(overview, text),
        orders=orders(seen, text),
        load=load_form(overview.engine if overview is not None else None, text, form, wrong),
        recent=tuple(recent_row(row, text) for row in seen.recent),
        api_base=overview.api_base if overview is not None else "",
        version=overview.version if overview is not None else "",
        models=models,
    )


def cleared_notice(cleared: CacheCleared, text: Text) -> str:
    if not cleared.freed_bytes:
        return text("clear.nothing")
    return text(
        "clear.done",
        size=numbers.size(cleared.freed_bytes),
        blocks=numbers.tokens(cleared.blocks),
        snapshots=numbers.tokens(cleared.snapshots),
    )


def _stale(seen: Seen, text: Text) -> str | None:
    if seen.is_current:
        return None
    if seen.overview is None:
        return text("stale.never")
    return text("stale.since", age=numbers.span(text, seen.age_s))


def _figures(overview: Overview | None, text: Text) -> tuple[Figure, ...]:
    speed = overview.decode_tokens_per_second if overview is not None else None
    decoding = overview.decoding if overview is not None else 0
    is_any_read = overview is not None and any(is_reading(slot) for slot in overview.slots)
    today = overview.today if overview is not None else None
    num_waiting = len(overview.waiting) if overview is not None else None
    oldest_s = max((row.waited_s for row in overview.waiting), default=None) if overview is not None else None
    return (
        Figure(
            name="speed",
            label=text("figure.speed"),
            value=numbers.speed(speed),
            unit="tok/s",
            note=_now_at_work(overview, text) if overview is not None else "",
            hint=text("figure.speed_hint"),
            tone="good" if decoding else "busy" if is_any_read else "idle",
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


def _now_at_work(overview: Overview, text: Text) -> str:
    """Streams that generate, prompts that are read meanwhile, and requests that are paused.

    A machine that only reads is not idle.
    """
    reading = [slot for slot in overview.slots if slot is not None and is_reading(slot)]
    parts = []
    if overview.decoding or not reading:
        parts.append(text.count("figure.streams", overview.decoding))
    if reading:
        parts.append(text.count("figure.reading", len(reading)))
    if reading and not overview.decoding:
        speeds = [slot.tokens_per_second for slot in reading if slot.tokens_per_second is not None]
        parts.append(f"{numbers.speed(sum(speeds) if speeds else None)} tok/s")
    num_paused = sum(slot is not None and slot.is_suspended for slot in overview.slots)
    if num_paused:
        parts.append(text.count("figure.paused", num_paused))
    return " · ".join(parts)
