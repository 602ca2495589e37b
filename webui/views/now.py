"""The page *Now*: figures, the four slots, the line, memory, the model, recent requests, and what each order would do.

It turns one overview into ready sentences and numbers; the template only places them.
"""

from dataclasses import dataclass, replace
from typing import Final

from control.wire import DatabaseHealth, Money, Overview, Performance, Today
from webui import numbers
from webui.text import Text
from webui.views.charts import Chart
from webui.views.engine import EngineCard, Orders, engine_card, orders, stale
from webui.views.memory import MemoryBar, memory_bar
from webui.views.performance_charts import first_token_over_time, over_time
from webui.views.requests import RecentRow, SlotRow, WaitingRow, is_reading, recent_row, slot_rows, waiting_row
from webui.views.shell import Shell, Tone, is_in_trouble
from webui.watch import Seen

# Of the model's facts, those that the rest of this page does not say and a person looks for; /model has them all.
_CARD_FACTS: Final = (
    "fact.since",
    "fact.context",
    "fact.layout",
    "fact.warm",
    "fact.promises",
    "fact.tests",
    "fact.process",
    "fact.restarts",
)


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
class HourPage:
    """The last hour, which is asked for beside the page, and seldom: it takes a question to the database."""

    shell: Shell
    last_hour: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class NowPage:
    """`stale` is a sentence while control is silent, `trouble` while numbers are lost or late; else None.

    `as_of`: the time of day of the figures.
    """

    shell: Shell
    as_of: str
    stale: str | None
    trouble: str | None
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
    last_hour: tuple[Chart, ...] = ()
    """Empty: the page asks for it by itself (`HourPage`)."""


def now_page(seen: Seen, shell: Shell) -> NowPage:
    text, overview = shell.text, seen.overview
    waiting = overview.waiting if overview is not None else ()
    return NowPage(
        shell=shell,
        as_of=numbers.time_of_day(text, overview.sampled_at_s) if overview is not None else numbers.UNKNOWN,
        stale=stale(seen, shell),
        trouble=_trouble(overview.database, text)
        if overview is not None and is_in_trouble(overview.database)
        else None,
        figures=_figures(overview, text),
        slots=slot_rows(overview, text),
        waiting=tuple(waiting_row(row, text) for row in waiting),
        num_waiting=numbers.tokens(len(waiting)),
        memory=memory_bar(overview.engine, text) if overview is not None else None,
        engine=_card(engine_card(overview, text), text),
        orders=orders(seen, text),
        recent=tuple(recent_row(row, text) for row in seen.recent),
        api_base=overview.api_base if overview is not None else "",
        version=overview.version if overview is not None else "",
    )


def _card(engine: EngineCard, text: Text) -> EngineCard:
    shown = {text(key) for key in _CARD_FACTS}
    return replace(engine, facts=tuple(fact for fact in engine.facts if fact.label in shown))


def _figures(overview: Overview | None, text: Text) -> tuple[Figure, ...]:
    speed = overview.decode_tokens_per_second if overview is not None else None
    decoding = overview.decoding if overview is not None else 0
    is_any_read = overview is not None and any(is_reading(slot) for slot in overview.slots)
    today = overview.today if overview is not None else None
    saved = today.saved if today is not None else ()
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
            value=_money(saved[0], text) if saved else numbers.UNKNOWN,
            unit="",
            note=" · ".join(_also_today(today, text)) if today is not None else "",
            hint=text("figure.today_hint"),
            tone="idle",
        ),
    )


def _also_today(today: Today, text: Text) -> tuple[str, ...]:
    """What has no room in large: how many requests, and amounts in other currencies."""
    others = (f"+\u00a0{_money(amount, text)}" for amount in today.saved[1:])
    return (text.count("figure.requests", today.requests), *others)


def _money(amount: Money, text: Text) -> str:
    return numbers.money(text, amount.total, amount.currency)


def hour_page(performance: Performance, shell: Shell) -> HourPage:
    charts = (over_time(performance, shell.text), first_token_over_time(performance, shell.text))
    return HourPage(shell=shell, last_hour=charts)


def _trouble(database: DatabaseHealth, text: Text) -> str:
    """What is wrong with the numbers themselves: rows that wait or are lost, and a file that was damaged."""
    told = (
        text.count("database.waiting", database.waiting_rows) if database.waiting_rows else "",
        text("database.problem", reason=database.problem) if database.problem is not None else "",
        text.count("database.lost", database.lost_rows) if database.lost_rows else "",
        text("database.set_aside", file=database.set_aside) if database.set_aside is not None else "",
        text("database.from_copy") if database.from_copy else "",
    )
    return text.join(*told)


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
