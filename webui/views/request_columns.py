"""The columns of the list of requests: what each is called, how its cells are written, and which of them are shown.

It knows no page and no order of rows; the number of a request is always there, and is no column to choose.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from control.wire import ListedRequest, RequestRow, RequestSort
from webui import numbers
from webui.text import Text
from webui.views.outcomes import ending_of
from webui.views.shell import Tone


@dataclass(frozen=True, slots=True)
class Column:
    """`label` and `hint` are keys of sentences; `sort` None: nobody would sort by it."""

    name: str
    label: str
    hint: str
    sort: RequestSort | None = None
    is_default: bool = True
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """`unit` is said where there is no heading; `note` is a smaller addition."""

    column: str
    value: str
    unit: str = ""
    note: str = ""
    title: str = ""
    sign: str = ""
    tone: Tone | None = None
    is_text: bool = False


COLUMNS: Final = (
    Column("key", "requests.key", "requests.key_hint", is_text=True),
    Column("model", "requests.model", "requests.model_hint", is_default=False, is_text=True),
    Column("dialect", "requests.dialect", "requests.dialect_hint", is_default=False, is_text=True),
    Column("class", "requests.class", "requests.class_hint", is_default=False, is_text=True),
    Column("started", "requests.started", "requests.started_hint", "started", is_text=True),
    Column("queue", "requests.queue", "requests.queue_hint", "queue"),
    Column("prefill", "requests.prefill", "requests.prefill_hint", "prefill"),
    Column("ttft", "requests.ttft", "requests.ttft_hint", "ttft"),
    Column("decode", "requests.decode", "requests.decode_hint", "decode"),
    Column("total", "requests.total", "requests.total_hint", "total", is_default=False),
    Column("prompt", "requests.prompt", "requests.prompt_hint", "prompt"),
    Column("cached", "requests.cached", "requests.cached_hint", "cached"),
    Column("output", "requests.output", "requests.output_hint", "output"),
    Column("speed", "requests.speed", "requests.speed_hint", "speed"),
    Column("cost", "requests.cost", "requests.cost_hint", "cost"),
    Column("outcome", "requests.outcome", "requests.outcome_hint", is_text=True),
)
DEFAULT: Final = tuple(column.name for column in COLUMNS if column.is_default)


def chosen_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """In their own order; the default ones when none of `names` is a column."""
    wanted = set(names)
    return tuple(column for column in COLUMNS if column.name in wanted) or tuple(
        column for column in COLUMNS if column.is_default
    )


def cell(column: Column, listed: ListedRequest, text: Text) -> Cell:
    return _CELLS[column.name](listed, text)


def is_counted(row: RequestRow) -> bool:
    """No prompt has 0 tokens: one with 0 was never counted, so nothing is known of its tokens."""
    return row.prompt_tokens > 0


def cached_share(row: RequestRow) -> float | None:
    return row.cached_tokens / row.prompt_tokens if is_counted(row) else None


def cost(listed: ListedRequest, text: Text) -> str:
    """What was turned away has cost nothing because there was nothing: that is not a price of 0."""
    is_known = is_counted(listed.row) and listed.row.outcome != "rejected"
    return numbers.money(text, listed.cost if is_known else None, listed.currency)


def class_word(row: RequestRow, text: Text) -> str:
    return text("keys.batch" if row.request_class == "batch" else "keys.interactive")


def _duration(name: str, value: Callable[[RequestRow], float | None]) -> Callable[[ListedRequest, Text], Cell]:
    def write(listed: ListedRequest, text: Text) -> Cell:
        duration_ms = value(listed.row)
        return Cell(name, numbers.seconds(text, duration_ms), title=numbers.long_seconds(text, duration_ms))

    return write


def _tokens(name: str, value: Callable[[RequestRow], int]) -> Callable[[ListedRequest, Text], Cell]:
    def write(listed: ListedRequest, text: Text) -> Cell:
        count = value(listed.row) if is_counted(listed.row) else None
        return Cell(name, numbers.tokens(count), unit=text("unit.tokens_short"))

    return write


def _word(name: str, value: Callable[[RequestRow], str]) -> Callable[[ListedRequest, Text], Cell]:
    return lambda listed, text: Cell(name, value(listed.row), title=value(listed.row), is_text=True)


def _started(listed: ListedRequest, text: Text) -> Cell:
    at_s = listed.row.started_at_s
    return Cell("started", text.local(at_s).strftime("%m-%d %H:%M:%S"), title=when(text, at_s), is_text=True)


def when(text: Text, unix_s: float) -> str:
    return text.local(unix_s).strftime("%Y-%m-%d %H:%M:%S")


def _cached(listed: ListedRequest, text: Text) -> Cell:
    row = listed.row
    share = cached_share(row)
    return Cell(
        "cached",
        numbers.tokens(row.cached_tokens if is_counted(row) else None),
        unit=text("unit.tokens_short"),
        note=numbers.share(share, digits=0) if share is not None else "",
    )


def _cost(listed: ListedRequest, text: Text) -> Cell:
    """The exact amount is behind the short one."""
    exact = cost(listed, text)
    if exact == numbers.UNKNOWN:
        return Cell("cost", exact)
    return Cell("cost", numbers.short_money(text, listed.cost, listed.currency), title=exact)


def _outcome(listed: ListedRequest, text: Text) -> Cell:
    ending = ending_of(listed.row, text)
    title = " · ".join(part for part in (ending.word, ending.reason, ending.code) if part)
    return Cell("outcome", ending.word, "", ending.reason, title, ending.sign, ending.tone, is_text=True)


_CELLS: Final[Mapping[str, Callable[[ListedRequest, Text], Cell]]] = {
    "key": _word("key", lambda row: row.key),
    "model": _word("model", lambda row: row.model),
    "dialect": _word("dialect", lambda row: row.dialect),
    "class": lambda listed, text: Cell("class", class_word(listed.row, text), is_text=True),
    "started": _started,
    "queue": _duration("queue", lambda row: row.queue_ms),
    "prefill": _duration("prefill", lambda row: row.prefill_ms),
    "ttft": _duration("ttft", lambda row: row.ttft_ms),
    "decode": _duration("decode", lambda row: row.decode_ms),
    "total": _duration("total", lambda row: row.total_ms),
    "prompt": _tokens("prompt", lambda row: row.prompt_tokens),
    "cached": _cached,
    "output": _tokens("output", lambda row: row.completion_tokens),
    "speed": lambda listed, text: Cell("speed", numbers.speed(listed.tokens_per_second), unit="tok/s"),
    "cost": _cost,
    "outcome": _outcome,
}
