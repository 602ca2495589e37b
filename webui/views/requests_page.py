"""The page *Requests*: which requests are asked for, the list of them, and where each heading and arrow leads.

It sorts and filters nothing itself: control does. One request is `webui.views.request_detail`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, get_args
from urllib.parse import urlencode

from control.wire import Outcome, RequestChoices, RequestPage, RequestSort, SortDirection
from webui.text import Text
from webui.views.outcomes import OUTCOME_TEXT
from webui.views.request_columns import COLUMNS, Cell, Column, cell, chosen_columns, when
from webui.views.shell import Shell

PATH: Final = "/requests"
PAGE_SIZE: Final = 50
SORTS: Final[tuple[RequestSort, ...]] = get_args(RequestSort)
RANGE_TEXT: Final[Mapping[str, str]] = {
    "hour": "requests.range_hour",
    "day": "requests.range_day",
    "week": "requests.range_week",
    "month": "requests.range_month",
    "all": "requests.range_all",
}
# Rows that are sorted by time begin with the newest, all others with the largest.
_FIRST_WAY: Final[SortDirection] = "desc"
_ARIA: Final[Mapping[SortDirection, str]] = {"asc": "ascending", "desc": "descending"}
_ARROW: Final[Mapping[SortDirection, str]] = {"asc": "▲", "desc": "▼"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address asks for. Empty: whatever it is; `after` empty: the first page."""

    range: str = "all"
    key: str = ""
    model: str = ""
    outcome: str = ""
    dialect: str = ""
    sort: str = "started"
    direction: str = _FIRST_WAY
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        """Names that are none of these are left out; control says what is wrong with a value."""
        return cls(**{field.name: query[field.name] for field in fields(cls) if query.get(field.name)})

    def path(self, path: str = PATH, **more: str) -> str:
        """The address of exactly this, without what goes without saying."""
        query = more | {
            field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default
        }
        return f"{path}?{urlencode(query)}" if query else path

    def question(self) -> str:
        """The query that control is asked."""
        given = {field.name: value for field in fields(self) if (value := getattr(self, field.name))}
        return urlencode({"limit": PAGE_SIZE, **given})

    def export_question(self, form: str) -> str:
        names = ("range", "key", "model", "outcome", "dialect")
        return urlencode({"format": form, **{name: value for name in names if (value := getattr(self, name))}})

    @property
    def is_filtered(self) -> bool:
        return replace(self, sort="started", direction=_FIRST_WAY, after="") != Asked()

    @property
    def is_newest(self) -> bool:
        """The page on which new requests appear by themselves."""
        return (self.sort, self.direction, self.after) == ("started", _FIRST_WAY, "")


@dataclass(frozen=True, slots=True)
class Option:
    value: str
    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """A choice of the form. `options` begin with the one that lets everything through."""

    name: str
    label: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """`path` None: nobody sorts by it. `aria_sort` and `arrow` are empty unless the list is sorted by it."""

    name: str
    label: str
    hint: str
    path: str | None
    aria_sort: str
    arrow: str
    is_text: bool


@dataclass(frozen=True, slots=True)
class Line:
    id: str
    name: str
    path: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    name: str
    label: str
    hint: str
    is_shown: bool


@dataclass(frozen=True, slots=True)
class RequestsPage:
    """`live_path` None: the rows stay as they are. `problem` is a sentence when there are no rows to show."""

    shell: Shell
    filters: tuple[Filter, ...]
    sorted_by: Filter
    direction: str
    is_filtered: bool
    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    sorted_by_name: str
    column_choices: tuple[ColumnChoice, ...]
    newer_path: str | None
    older_path: str | None
    first_path: str | None
    is_by_time: bool
    live_path: str | None
    csv_path: str
    json_path: str
    note: str
    problem: str | None
    api_base: str


def requests_page(
    shell: Shell,
    asked: Asked,
    column_names: Iterable[str],
    page: RequestPage | None,
    *,
    choices: RequestChoices | None = None,
    problem: str | None = None,
    api_base: str = "",
) -> RequestsPage:
    """`page` None: control did not give one, and `problem` says why."""
    text, columns = shell.text, chosen_columns(column_names)
    page = page or RequestPage(requests=())
    return RequestsPage(
        shell=shell,
        filters=_filters(asked, choices or RequestChoices(keys=(), models=(), dialects=()), text),
        sorted_by=_sorted_by(asked, text),
        direction=asked.direction,
        is_filtered=asked.is_filtered,
        headings=tuple(_heading(column, asked, text) for column in columns),
        lines=tuple(
            Line(
                id=listed.row.id,
                name=f"#{listed.row.number}",
                path=f"{PATH}/{listed.row.id}",
                cells=tuple(cell(column, listed, text) for column in columns),
            )
            for listed in page.requests
        ),
        sorted_by_name=asked.sort,
        column_choices=tuple(
            ColumnChoice(column.name, text(column.label), text(column.hint), column in columns) for column in COLUMNS
        ),
        newer_path=replace(asked, after=page.previous).path() if page.previous else None,
        older_path=replace(asked, after=page.next).path() if page.next else None,
        first_path=replace(asked, after="").path() if asked.after else None,
        is_by_time=asked.sort == "started" and asked.direction == _FIRST_WAY,
        live_path=asked.path(f"{PATH}/live") if asked.is_newest else None,
        csv_path=f"{PATH}/export?{asked.export_question('csv')}",
        json_path=f"{PATH}/export?{asked.export_question('json')}",
        note=text("requests.sorted_since", at=when(text, page.sorted_since_s)) if page.sorted_since_s else "",
        problem=problem,
        api_base=api_base,
    )


def _filters(asked: Asked, choices: RequestChoices, text: Text) -> tuple[Filter, ...]:
    outcomes: tuple[Outcome, ...] = get_args(Outcome)
    ranges = tuple(Option(name, text(label), name == asked.range) for name, label in RANGE_TEXT.items())
    return (
        Filter("range", text("requests.range"), ranges[::-1]),
        _filter("key", text("requests.key"), asked.key, {each: each for each in choices.keys}, text),
        _filter("model", text("requests.model"), asked.model, {each: each for each in choices.models}, text),
        _filter(
            "outcome",
            text("requests.outcome"),
            asked.outcome,
            {each: text(OUTCOME_TEXT[each]) for each in outcomes},
            text,
        ),
        _filter("dialect", text("requests.dialect"), asked.dialect, {each: each for each in choices.dialects}, text),
    )


def _filter(name: str, label: str, chosen: str, choices: Mapping[str, str], text: Text) -> Filter:
    """What is asked for can be chosen, too, when nothing of it is left."""
    offered = {chosen: chosen, **choices} if chosen and chosen not in choices else choices
    options = (Option(value, shown, value == chosen) for value, shown in offered.items())
    return Filter(name, label, (Option("", text("requests.any"), not chosen), *options))


def _sorted_by(asked: Asked, text: Text) -> Filter:
    """For a screen that has no room for headings."""
    labels = {column.sort: column.label for column in COLUMNS if column.sort is not None}
    options = tuple(Option(sort, text(labels[sort]), sort == asked.sort) for sort in SORTS)
    return Filter("sort", text("requests.sorted_by"), options)


def _heading(column: Column, asked: Asked, text: Text) -> Heading:
    is_sorted = column.sort is not None and column.sort == asked.sort
    way: SortDirection = "asc" if asked.direction == "asc" else "desc"
    turned: SortDirection = "asc" if is_sorted and way == "desc" else _FIRST_WAY
    return Heading(
        name=column.name,
        label=text(column.label),
        hint=text(column.hint),
        path=replace(asked, sort=column.sort, direction=turned, after="").path() if column.sort is not None else None,
        aria_sort=_ARIA[way] if is_sorted else "",
        arrow=_ARROW[way] if is_sorted else "",
        is_text=column.is_text,
    )
