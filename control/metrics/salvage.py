"""Takes over what can still be read of a damaged splash.db, table by table and row by row.

It changes no row in the damaged file. A row whose values can't be what they say is left where it is. How one gets past
a page that can't be read is `readable`'s.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Boolean, Connection, Float, Integer, LargeBinary, String, Table

from control.metrics.plausible import is_plausible
from control.metrics.readable import open_damaged, readable_rows
from control.metrics.recording import Entry
from control.metrics.rollups import SUM_TABLES, Sums
from control.metrics.stretch import Stretch
from control.metrics.tables import keys, requests, settings, stretches
from control.wire import RequestRow

# Control must answer 20 s after it was started, and everybody waits meanwhile.
LIMIT_S: Final = 8.0
AT_ONCE: Final = 1000

KEYS_AND_SETTINGS: Final = (keys, settings)
# What is worth most and takes least comes first.
NUMBERS: Final = (*sorted(SUM_TABLES, key=lambda table: table.name.startswith("hourly")), requests, stretches)

_ENTRIES: Final[dict[Table, type[Entry]]] = {requests: RequestRow, stretches: Stretch}
_KINDS: Final[dict[type, tuple[type, ...]]] = {
    Boolean: (int,),
    Integer: (int,),
    Float: (float, int),
    String: (str,),
    LargeBinary: (bytes,),
}


class _Unsound(ValueError):
    """A value that its column can't have."""


def salvage(
    damaged: Path, connection: Connection, tables: Sequence[Table], *, monotonic: Callable[[], float] = time.monotonic
) -> dict[str, int]:
    """Into a new database, in the transaction of `connection`; how many rows of each table.

    Sums that can't be read are made again of the rows that can. Raises what the new database raises.
    """
    until = monotonic() + LIMIT_S
    counts: dict[str, int] = {}
    sums = Sums()
    with closing(open_damaged(damaged)) as source:
        for table in tables:
            counts[table.name] = 0
            cells = _cells(source, table)
            if not cells:
                continue
            # One that contradicts another (a second key with the same text), or lacks a value, is left out.
            names, marks = ", ".join(cell.name for cell in cells), ", ".join("?" for _ in cells)
            statement = f"INSERT OR IGNORE INTO {table.name} ({names}) VALUES ({marks})"
            rows = _sound_rows(source, table, cells, sums, lambda: monotonic() >= until)
            while monotonic() < until and (some := list(islice(rows, AT_ONCE))):
                counts[table.name] += max(connection.exec_driver_sql(statement, some).rowcount, 0)
    sums.store_missing(connection)
    return counts


@dataclass(frozen=True, slots=True)
class _Cell:
    """What a value of a column can be. Of text the bytes come."""

    name: str
    kinds: tuple[type, ...]
    is_text: bool
    is_nullable: bool

    def sound(self, value: Any) -> Any:
        """Raises ValueError."""
        if value is None and self.is_nullable:
            return None
        if self.is_text and isinstance(value, bytes):
            return value.decode()
        if not isinstance(value, self.kinds):
            raise _Unsound
        return value


def _cells(source: sqlite3.Connection, table: Table) -> list[_Cell]:
    """Of the columns that are there: a file of an earlier Splash may lack some."""
    try:
        found = {bytes(name).decode() for _, name, *_ in source.execute(f"PRAGMA table_info({table.name})")}
    except (sqlite3.Error, UnicodeDecodeError):
        return []
    # The new file numbers its stretches itself. SQLAlchemy's names are not quite str, and msgspec asks for that.
    return [
        _Cell(str(column.name), _KINDS[kind], is_text=kind is String, is_nullable=bool(column.nullable))
        for column in table.columns
        if column.name in found and column is not stretches.c.id and (kind := type(column.type))
    ]


def _sound_rows(
    source: sqlite3.Connection, table: Table, cells: Sequence[_Cell], sums: Sums, is_late: Callable[[], bool]
) -> Iterator[tuple[Any, ...]]:
    """Each with values of the right kinds. Requests and stretches are summed up."""
    names, made = [cell.name for cell in cells], _ENTRIES.get(table)
    sound = [cell.sound for cell in cells]
    for values in readable_rows(source, table, names, is_late):
        try:
            row = tuple([check(value) for check, value in zip(sound, values, strict=True)])
            if made is not None:
                # SQLite has no booleans.
                entry = msgspec.convert(dict(zip(names, row, strict=True)), made, strict=False)
                if not is_plausible(entry):
                    continue
                sums.add(entry)
        except (ValueError, OverflowError):
            continue
        yield row
