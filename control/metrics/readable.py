"""Every row of a damaged splash.db that SQLite can still get at, past the pages that can't be read.

A table is a line: rowids, hours or days. It is read from both its ends as far as that goes, then what is left between
from its middle, the widest gap first. It judges no value (`salvage` does), and changes no row.
"""

import heapq
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import Integer, Table

from control.metrics.opened_file import has_log
from control.metrics.ranges import DAY_S, HOUR_S
from control.metrics.rollups import SUM_TABLES

# Of requests and of stretches, the newest.
ROWS_TAKEN_OVER: Final = 200_000
# Looks that find nothing: some tenths of a second of them for each table.
LOOKS_LIMIT: Final = 2_000
# A row takes more, so a file of n bytes has fewer than n / ROW_BYTES.
ROW_BYTES: Final = 48
# The newest row by time is not quite the last one by number.
ROWS_AFTER_NEWEST: Final = 100
# How long ago sums may begin, as far as anybody looks: four years.
DAYS_LIMIT: Final = 1_500
PAGE_BYTES: Final = 4096

_Order = Literal["ASC", "DESC"]
# The newest first.
_ORDERS: Final[tuple[_Order, ...]] = ("DESC", "ASC")


def open_damaged(path: Path) -> sqlite3.Connection:
    """Text comes as bytes: text that is none would end the reading of all that comes after it. Raises sqlite3.Error.

    A file that was cut is read as far as it goes; of one that is empty, what is beside it in its log.
    """
    if path.stat().st_size == 0 and has_log(path):
        # SQLite would remove the log of an empty file. Instead of a page of zeros it takes the log's.
        with path.open("r+b") as file:
            file.truncate(PAGE_BYTES)
    source = sqlite3.connect(path)
    source.text_factory = bytes
    # Else a file with fewer pages than its header says, or a damaged schema, is refused as a whole. Nothing is written.
    with suppress(sqlite3.Error):
        source.execute("PRAGMA writable_schema = ON")
    return source


def readable_rows(
    source: sqlite3.Connection, table: Table, columns: Sequence[str], is_late: Callable[[], bool]
) -> Iterator[Sequence[Any]]:
    """The newest first, as far as it can be; of requests and stretches ROWS_TAKEN_OVER, each once; of sums some twice.

    `is_late` ends the search where nothing can be read.
    """
    if table.dialect_options["sqlite"]["with_rowid"]:
        axis: _Axis = _Axis("rowid", ("rowid",), is_unique=True)
        after, before = _rowids(source, table)
    else:
        axis = _axis_of(table)
        after, before = _ends_of_sums(source, axis)
    return _read(
        source,
        f"SELECT {axis.name}, {', '.join(columns)} FROM {table.name} NOT INDEXED",
        axis,
        (after, before),
        is_late,
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """A column that comes first in the table's own order, as whole numbers. `is_unique`: no two rows have the same."""

    name: str
    order_by: tuple[str, ...]
    is_unique: bool

    def value_of(self, position: int) -> int | str:
        return position

    def position_of(self, value: Any) -> int:
        """Raises ValueError."""
        if not isinstance(value, int):
            raise ValueError
        return value

    def sorted_by(self, order: _Order) -> str:
        return ", ".join(f"{name} {order}" for name in self.order_by)


class _Hours(_Axis):
    __slots__ = ()

    def value_of(self, position: int) -> int | str:
        return position * HOUR_S

    def position_of(self, value: Any) -> int:
        return _Axis.position_of(self, value) // HOUR_S

    def time_of(self, position: int) -> float:
        return position * HOUR_S

    def position_at(self, at_s: float) -> int:
        return int(at_s // HOUR_S)


class _Days(_Axis):
    __slots__ = ()

    def value_of(self, position: int) -> int | str:
        return date.fromordinal(min(max(position, 1), date.max.toordinal())).isoformat()

    def position_of(self, value: Any) -> int:
        if not isinstance(value, bytes):
            raise ValueError
        return date.fromisoformat(value.decode()).toordinal()

    def time_of(self, position: int) -> float:
        return datetime.fromordinal(position).timestamp()

    def position_at(self, at_s: float) -> int:
        return date.fromtimestamp(at_s).toordinal()


def _axis_of(table: Table) -> _Hours | _Days:
    """Of a table of sums."""
    first, *_ = names = tuple(column.name for column in table.primary_key)
    made = _Hours if isinstance(table.columns[first].type, Integer) else _Days
    return made(first, names, is_unique=False)


def _read(
    source: sqlite3.Connection, statement: str, axis: _Axis, whole: tuple[int, int], is_late: Callable[[], bool]
) -> Iterator[Sequence[Any]]:
    """Where several rows have the same position, its first may be read, and its last not: then both ends are in."""
    above, below = (">", "<") if axis.is_unique else (">=", "<=")
    between = f"{statement} WHERE {axis.name} {above} ? AND {axis.name} {below} ? ORDER BY"
    gaps, num_looks = [(-1, *whole)], 0
    while gaps and num_looks < LOOKS_LIMIT and not is_late():
        _, after, before = heapq.heappop(gaps)
        for order in _ORDERS:
            query = f"{between} {axis.sorted_by(order)}"
            rows = _Rows(source, query, (axis.value_of(after), axis.value_of(before)))
            for value, *values in rows:
                with suppress(ValueError):
                    reached = axis.position_of(value)
                    if axis.is_unique and not after < reached < before:
                        continue  # A page that is there in part has rows that never were, and out of order.
                    after, before = (after, reached) if order == "DESC" else (reached, before)
                yield values
            if rows.is_all and (order == "ASC" or not _goes_on(source, query, axis, (after, before))):
                break
            # A page before `before`, or behind `after`, can't be read.
            num_looks += 1
        else:
            if before - after > 1:
                middle = (after + before) // 2
                for part in ((after, middle + axis.is_unique), (middle, before)):
                    if part[1] - part[0] > axis.is_unique:
                        heapq.heappush(gaps, (part[0] - part[1], *part))


def _goes_on(source: sqlite3.Connection, query: str, axis: _Axis, between: tuple[int, int]) -> bool:
    """Whether rows are left, or may be, after the way down has come to an end: a row out of order ends it, too."""
    if not axis.is_unique:
        return False
    with suppress(sqlite3.Error):
        upwards = query.removesuffix(axis.sorted_by("DESC")) + axis.sorted_by("ASC")
        return source.execute(f"{upwards} LIMIT 1", between).fetchone() is not None
    return True


class _Rows:
    """Of a query, up to the first that can't be read. `is_all`, afterwards: there was none such."""

    def __init__(self, source: sqlite3.Connection, query: str, bounds: tuple[int | str, int | str]) -> None:
        self.is_all = False
        self._source, self._query, self._bounds = source, query, bounds

    def __iter__(self) -> Iterator[Sequence[Any]]:
        count = 0
        try:
            for row in self._source.execute(self._query, self._bounds):
                count += 1
                yield row
            self.is_all = True
        except sqlite3.Error:
            # Python reads one row ahead, and keeps back the one before that which can't be read.
            with suppress(sqlite3.Error):
                yield from self._source.execute(f"{self._query} LIMIT 1 OFFSET {count}", self._bounds)


def _rowids(source: sqlite3.Connection, table: Table) -> tuple[int, int]:
    """Between which rowids the newest rows are, both not included, as far as the ends can be found."""
    first, last = (_end(source, f"{table.name} NOT INDEXED ORDER BY rowid {order}") for order in ("ASC", "DESC"))
    most = _most_rows(source)
    if first is None or last is None or not 0 <= last - first <= most:
        # An index has rowids, too; a table that was taken over once before has them in another order.
        known = [
            _end(source, f"{table.name} INDEXED BY {index.name} ORDER BY {', '.join(index.columns.keys())} {order}")
            for index in table.indexes
            for order in ("ASC", "DESC")
        ]
        # What a page that is there in part says may be anything.
        found = sorted(rowid for rowid in (first, last, *known) if rowid is not None and rowid > 0)
        first = found[0] if first is not None and found else max((found or [1])[0] - most, 1)
        last = max(found[-1] + ROWS_AFTER_NEWEST if found and found[-1] - first <= most else 0, first + most)
    return max(first - 1, last - ROWS_TAKEN_OVER), last + 1


def _end(source: sqlite3.Connection, rows: str) -> int | None:
    with suppress(sqlite3.Error):
        for (rowid,) in source.execute(f"SELECT rowid FROM {rows} LIMIT 1"):
            return int(rowid)
    return None


def _most_rows(source: sqlite3.Connection) -> int:
    """As many as the file has room for."""
    try:
        (num_pages,) = source.execute("PRAGMA page_count").fetchone()
    except sqlite3.Error:
        return ROWS_TAKEN_OVER
    return int(num_pages) * PAGE_BYTES // ROW_BYTES


def _ends_of_sums(source: sqlite3.Connection, axis: "_Hours | _Days") -> tuple[int, int]:
    """Both included: since the first hour or day of any table of sums, until now. Where none can be read, long ago."""
    known_s: list[float] = [time.time()]
    for table in SUM_TABLES:
        other = _axis_of(table)
        for order in _ORDERS:
            with suppress(sqlite3.Error, ValueError):
                statement = f"SELECT {other.name} FROM {table.name} ORDER BY {other.sorted_by(order)} LIMIT 1"
                known_s += [other.time_of(other.position_of(value)) for (value,) in source.execute(statement)]
    begin_s = min(known_s) if len(known_s) > 1 else known_s[0] - DAYS_LIMIT * DAY_S
    # A day and an hour of the same moment may be a day apart.
    return axis.position_at(begin_s - DAY_S), axis.position_at(max(known_s) + DAY_S)
