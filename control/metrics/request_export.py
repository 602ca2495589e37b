"""Request rows as a file: CSV for a spreadsheet, JSON for a program; times in UTC, units in the names of the columns.

Numbers are as exact as they are measured (`_DECIMALS`), whatever digits their floats have. It asks nothing: it is given
one page after the other.
"""

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
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
# A spreadsheet takes text that begins so for a formula, and would run it. Source: OWASP, CSV Injection; those of full
# width become the narrow ones where Chinese or Japanese is written, and ASVS 1.2.10 has the NUL.
FORMULA_SIGNS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")

# Of a millisecond a tenth; of a second a millisecond; of an amount what a single token costs at usual prices.
_DECIMALS: Final = {
    **{name: 1 for name in COLUMNS if name.endswith("_ms")},
    "started_at_s": 3,
    "tokens_per_second": 2,
    "cost": 8,
}

Cell = str | int | float | bool | None


def beginning(chosen: ExportFormat) -> bytes:
    return _csv_lines([COLUMNS]) if chosen == "csv" else b"["


def middle(chosen: ExportFormat, requests: Iterable[ListedRequest], *, is_first: bool) -> bytes:
    """`is_first`: no request was written before."""
    rows = [_cells(listed) for listed in requests]
    if chosen == "csv":
        return _csv_lines([_written(cell) for cell in row] for row in rows)
    lines = b",\n".join(msgspec.json.encode(dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return lines if is_first or not rows else b",\n" + lines


def end(chosen: ExportFormat) -> bytes:
    return b"" if chosen == "csv" else b"]\n"


def _cells(listed: ListedRequest) -> tuple[Cell, ...]:
    row = listed.row
    started = datetime.fromtimestamp(row.started_at_s, UTC).isoformat(timespec="milliseconds")
    fields: tuple[Cell, ...] = msgspec.structs.astuple(row)
    cells = (started.replace("+00:00", "Z"), *fields, listed.tokens_per_second, listed.cost, listed.currency)
    return tuple(_rounded(name, cell) for name, cell in zip(COLUMNS, cells, strict=True))


def _rounded(name: str, cell: Cell) -> Cell:
    return round(cell, _DECIMALS[name]) if isinstance(cell, float) else cell


def _written(cell: Cell) -> Cell:
    """As JSON writes it, without exponents; an apostrophe in front makes a spreadsheet show text as text."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return f"{Decimal(repr(cell)):f}"
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_SIGNS) else cell


def _csv_lines(rows: Iterable[Iterable[Cell]]) -> bytes:
    lines = io.StringIO()
    csv.writer(lines).writerows(rows)
    return lines.getvalue().encode()
