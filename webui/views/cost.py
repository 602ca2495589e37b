"""The page *Cost*: what the tokens would have cost elsewhere, by kind, day, month, key and model, and the prices.

It reckons no amounts: control does. It adds up tokens only.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from control.wire import CostLine, CostReport, Money, Range
from webui import numbers
from webui.text import Text
from webui.views.charts import Chart
from webui.views.cost_chart import charts_of
from webui.views.prices import PricePanel, Refused, price_panel
from webui.views.shell import Shell

_RANGE_TEXT: Final[dict[Range, str]] = {
    "hour": "cost.hour",
    "day": "cost.day",
    "week": "cost.week",
    "month": "cost.month",
    "all": "cost.all",
}
_MILLION: Final = 1_000_000
# So many characters of a figure's usual size have no room on a phone.
_LONG: Final = 10


@dataclass(frozen=True, slots=True)
class RangeLink:
    label: str
    path: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    label: str
    value: str
    unit: str
    note: str
    hint: str

    @property
    def is_long(self) -> bool:
        return len(self.value) >= _LONG


@dataclass(frozen=True, slots=True)
class KindRow:
    """One of the three kinds of tokens that have a price."""

    kind: str
    label: str
    hint: str
    tokens: str
    share: str
    money: str


@dataclass(frozen=True, slots=True)
class LineTable:
    """Lines of one sort: months, keys or models. `empty` is said when there are none."""

    id: str
    title: str
    hint: str
    heading: str
    rows: tuple["LineRow", ...]
    empty: str


@dataclass(frozen=True, slots=True)
class LineRow:
    label: str
    requests: str
    prompt: str
    prompt_exact: str
    cached_share: str
    completion: str
    completion_exact: str
    money: str


@dataclass(frozen=True, slots=True)
class CostPage:
    """`problem` replaces everything while the amounts are not known; `is_new`: there was no request ever."""

    shell: Shell
    ranges: tuple[RangeLink, ...]
    range_label: str
    live_path: str
    problem: str | None
    is_new: bool = False
    figures: tuple[Figure, ...] = ()
    charts_by_day: tuple[Chart, ...] = ()
    kinds: tuple[KindRow, ...] = ()
    tables: tuple[LineTable, ...] = ()
    prices: PricePanel | None = None


def cost_page(shell: Shell, report: CostReport, *, refused: Refused | None = None) -> CostPage:
    text, used = shell.text, _Used.of(report.keys)
    return CostPage(
        shell=shell,
        ranges=_ranges(text, report.range),
        range_label=text(_RANGE_TEXT[report.range]),
        live_path=f"/cost/live?range={report.range}",
        problem=None,
        is_new=not report.months,
        figures=_figures(report, used, text),
        charts_by_day=charts_of(report, text),
        kinds=_kinds(report, used, text),
        tables=_tables(report, text),
        prices=price_panel(
            report.prices, text, report.range, tuple(sorted(line.label for line in report.models)), refused
        ),
    )


def cost_unknown(shell: Shell, chosen: Range, problem: str) -> CostPage:
    return CostPage(
        shell=shell,
        ranges=_ranges(shell.text, chosen),
        range_label=shell.text(_RANGE_TEXT[chosen]),
        live_path=f"/cost/live?range={chosen}",
        problem=problem,
    )


@dataclass(frozen=True, slots=True)
class _Used:
    """Tokens of the whole range: every request belongs to one key."""

    requests: int
    prompt: int
    cached: int
    completion: int

    @classmethod
    def of(cls, lines: Iterable[CostLine]) -> "_Used":
        lines = tuple(lines)
        return cls(
            requests=sum(line.requests for line in lines),
            prompt=sum(line.prompt_tokens for line in lines),
            cached=sum(line.cached_tokens for line in lines),
            completion=sum(line.completion_tokens for line in lines),
        )


def amounts(text: Text, each: Iterable[tuple[float, str]]) -> str:
    """Amounts of several currencies beside one another; a dash without any."""
    return " + ".join(numbers.money(text, amount, currency) for amount, currency in each) or numbers.UNKNOWN


def _ranges(text: Text, chosen: Range) -> tuple[RangeLink, ...]:
    return tuple(
        RangeLink(text(label), f"/cost?range={each}", is_chosen=each == chosen) for each, label in _RANGE_TEXT.items()
    )


def _figures(report: CostReport, used: _Used, text: Text) -> tuple[Figure, ...]:
    saving = tuple((money.cache_saving, money.currency) for money in report.total)
    cached_share = numbers.share(used.cached / used.prompt if used.prompt else None)
    return (
        _money_figure(text, "saved", ((money.total, money.currency) for money in report.total)),
        _money_figure(text, "cache", saving),
        _token_figure(text, "prompt", used.prompt, text("cost.cached_share", share=cached_share)),
        _token_figure(text, "output", used.completion, text.count("cost.requests", used.requests)),
    )


_FIGURE_TEXT: Final = {
    "saved": ("cost.saved", "cost.saved_hint"),
    "cache": ("cost.cache", "cost.cache_hint"),
    "prompt": ("cost.prompt", "cost.prompt_hint"),
    "output": ("cost.output", "cost.output_hint"),
}


def _money_figure(text: Text, name: str, each: Iterable[tuple[float, str]]) -> Figure:
    """The first currency large, the others below it."""
    first, *others = [amounts(text, (amount,)) for amount in each] or [numbers.UNKNOWN]
    label, hint = _FIGURE_TEXT[name]
    return Figure(name, text(label), first, "", " ".join(f"+ {other}" for other in others), text(hint))


def _token_figure(text: Text, name: str, count: int, note: str) -> Figure:
    """In millions, as prices are; the exact numbers are in the table of kinds."""
    label, hint = _FIGURE_TEXT[name]
    if count < _MILLION:
        return Figure(name, text(label), f"{count:,}", text("cost.tokens"), note, text(hint))
    return Figure(name, text(label), numbers.millions(count), text("cost.million_tokens"), note, text(hint))


def _short(text: Text, count: int) -> str:
    """Exact below a million."""
    return f"{count:,}" if count < _MILLION else text("cost.millions", n=numbers.millions(count))


def _kinds(report: CostReport, used: _Used, text: Text) -> tuple[KindRow, ...]:
    def row(kind: str, label: str, hint: str, tokens: int, each: Iterable[tuple[float, str]]) -> KindRow:
        share = numbers.share(tokens / (used.prompt + used.completion) if used.prompt + used.completion else None)
        return KindRow(kind, text(label), text(hint), numbers.tokens(tokens), share, amounts(text, each))

    total = report.total
    return (
        row(
            "computed",
            "cost.computed",
            "prices.miss_hint",
            used.prompt - used.cached,
            ((money.miss, money.currency) for money in total),
        ),
        row("cached", "cost.cached", "prices.hit_hint", used.cached, ((money.hit, money.currency) for money in total)),
        row(
            "generated",
            "cost.generated",
            "prices.output_hint",
            used.completion,
            ((money.output, money.currency) for money in total),
        ),
    )


def _tables(report: CostReport, text: Text) -> tuple[LineTable, ...]:
    def table(name: str, title: str, hint: str, heading: str, lines: Iterable[CostLine]) -> LineTable:
        rows = tuple(_row(line, text) for line in lines)
        return LineTable(f"by-{name}", text(title), text(hint), text(heading), rows, text("cost.empty"))

    months = reversed(report.months)
    return (
        table("month", "cost.by_month", "cost.by_month_hint", "cost.month_heading", months),
        table("key", "cost.by_key", "cost.by_key_hint", "cost.key_heading", report.keys),
        table("model", "cost.by_model", "cost.by_model_hint", "cost.model_heading", report.models),
    )


def _row(line: CostLine, text: Text) -> LineRow:
    share = line.cached_tokens / line.prompt_tokens if line.prompt_tokens else None
    return LineRow(
        label=line.label,
        requests=f"{line.requests:,}",
        prompt=_short(text, line.prompt_tokens),
        prompt_exact=numbers.tokens(line.prompt_tokens),
        cached_share=numbers.share(share),
        completion=_short(text, line.completion_tokens),
        completion_exact=numbers.tokens(line.completion_tokens),
        money=amounts(text, _totals(line.money)),
    )


def _totals(each: Iterable[Money]) -> Iterable[tuple[float, str]]:
    return ((money.total, money.currency) for money in each)
