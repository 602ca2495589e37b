"""Request rows as a file: CSV for a spreadsheet, JSON for a program; times in UTC, units in the names of the columns.

It asks nothing: it is given one page after the other.
"""

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Literal, get_args

import msgspec

from control.wire import ListedRequest, RequestRow

ExportFormat = Literal["csv", "json"]
FORMATS: Final[tuple[ExportFormat, ...]] = get_args(ExportFormat)
MEDIA_TYPES: Final[dict[ExportFormat, str]] = {"csv": "text/csv; charset=utf-8", "json": "application/json"}

COLUMNS: Final = (
    *("started_at_utc", *RequestRow.__struct_fields__),
    *("tokens_per_second", "cost", "currency"),
)
# A spreadsheet takes text that begins so for a formula, and would run it.
FORMULA_SIGNS: Final = ("=", "+", "-", "@", "\t", "\r")

Cell = str | int | float | bool | None


def beginning(chosen: ExportFormat) -> bytes:
    return _csv_lines([COLUMNS]) if chosen == "csv" else b"["


def middle(chosen: ExportFormat, requests: Iterable[ListedRequest], *, is_first: bool) -> bytes:
    """`is_first`: no request was written before."""
    rows = [_cells(listed) for listed in requests]
    if chosen == "csv":
        return _csv_lines([_safe(cell) for cell in row] for row in rows)
    lines = b",\n".join(msgspec.json.encode(dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return lines if is_first or not rows else b",\n" + lines


def end(chosen: ExportFormat) -> bytes:
    return b"" if chosen == "csv" else b"]\n"


def _cells(listed: ListedRequest) -> tuple[Cell, ...]:
    row = listed.row
    started = datetime.fromtimestamp(row.started_at_s, UTC).isoformat(timespec="milliseconds")
    fields: tuple[Cell, ...] = msgspec.structs.astuple(row)
    return (started.replace("+00:00", "Z"), *fields, listed.tokens_per_second, listed.cost, listed.currency)


def _safe(cell: Cell) -> Cell:
    """An apostrophe in front makes a spreadsheet show it as text."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_SIGNS) else cell


def _csv_lines(rows: Iterable[Iterable[Cell]]) -> bytes:
    lines = io.StringIO()
    csv.writer(lines).writerows(rows)
    return lines.getvalue().encode()
