"""Takes over what can still be read of a damaged splash.db, table by table and row by row.

It changes no row in the damaged file. A row whose values can't be what they say is left where it is.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Boolean, Column, Connection, Float, Integer, LargeBinary, String, Table
from sqlalchemy.dialects.sqlite import insert

from control.metrics.recording import Entry
from control.metrics.rollups import SUM_TABLES, Sums
from control.metrics.stretch import Stretch
from control.metrics.tables import keys, requests, settings, stretches
from control.wire import RequestRow

# Control must answer 20 s after it was started, and everybody waits meanwhile.
LIMIT_S: Final = 8.0
# Of requests and of stretches, the newest.
ROWS_TAKEN_OVER: Final = 200_000
AT_ONCE: Final = 1000

KEYS_AND_SETTINGS: Final = (keys, settings)
# What is worth most and takes least comes first.
NUMBERS: Final = (*sorted(SUM_TABLES, key=lambda table: table.name.startswith("hourly")), requests, stretches)

_Row = dict[str, Any]
_ENTRIES: Final[dict[Table, type[Entry]]] = {requests: RequestRow, stretches: Stretch}
_KINDS: Final[dict[type, type | tuple[type, ...]]] = {
    Boolean: int,
    Integer: int,
    Float: (float, int),
    String: str,
    LargeBinary: bytes,
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
    with closing(sqlite3.connect(damaged)) as source:
        # Text that is none would end the reading of all that comes after it.
        source.text_factory = bytes
        for table in tables:
            # One that contradicts another (a second key with the same text) is left out.
            statement = insert(table).on_conflict_do_nothing()
            rows = _sound_rows(source, table, sums)
            counts[table.name] = 0
            while monotonic() < until and (some := list(islice(rows, AT_ONCE))):
                counts[table.name] += max(connection.execute(statement, some).rowcount, 0)
    sums.store_missing(connection)
    return counts


def _sound_rows(source: sqlite3.Connection, table: Table, sums: Sums) -> Iterator[_Row]:
    """Each of the right kinds. A file of an earlier Splash may lack columns. Requests and stretches are summed up."""
    try:
        found = {bytes(name).decode() for _, name, *_ in source.execute(f"PRAGMA table_info({table.name})")}
    except (sqlite3.Error, UnicodeDecodeError):
        return
    # The new file numbers its stretches itself.
    columns = [column for column in table.columns if column.name in found and column is not stretches.c.id]
    if not columns:
        return
    has_rowid = table.dialect_options["sqlite"]["with_rowid"]
    for values in _by_rowid(source, table, columns) if has_rowid else _by_key(source, table, columns):
        try:
            # SQLAlchemy's names are not quite str, and msgspec asks for that.
            row = {str(column.name): _sound(value, column) for column, value in zip(columns, values, strict=True)}
            if table in _ENTRIES:
                sums.add(msgspec.convert(row, _ENTRIES[table]))
        except (ValueError, OverflowError):
            continue
        yield row


def _sound(value: Any, column: Column[Any]) -> Any:
    """Raises ValueError."""
    if value is None:
        if column.nullable:
            return None
        raise _Unsound
    kind = type(column.type)
    if kind is String and isinstance(value, bytes):
        value = value.decode()
    if not isinstance(value, _KINDS[kind]):
        raise _Unsound
    return bool(value) if kind is Boolean else value


def _by_rowid(source: sqlite3.Connection, table: Table, columns: Sequence[Column[Any]]) -> Iterator[Sequence[Any]]:
    """The newest ROWS_TAKEN_OVER, oldest first. Where a page can't be read, the search goes on behind it."""
    last = after = _before_newest(source, table)
    step = 1
    names = ", ".join(column.name for column in columns)
    onwards = f"SELECT rowid, {names} FROM {table.name} WHERE rowid > ? ORDER BY rowid"
    back = f"SELECT {names} FROM {table.name} WHERE rowid > ? AND rowid < ? ORDER BY rowid DESC"
    # The step doubles, and a rowid has 63 bits at most.
    while step.bit_length() < 62:
        try:
            for rowid, *values in source.execute(onwards, (after,)):
                if step > 1:
                    # Some that can be read were jumped over.
                    yield from _until_unreadable(source, back, (last, rowid))
                last, step = rowid, 1
                yield values
            return
        except sqlite3.Error:
            after = max(after, last) + step
            step *= 2


def _until_unreadable(source: sqlite3.Connection, statement: str, between: tuple[int, int]) -> Iterator[Sequence[Any]]:
    with suppress(sqlite3.Error):
        yield from source.execute(statement, between)


def _before_newest(source: sqlite3.Connection, table: Table) -> int:
    try:
        (newest,) = source.execute(f"SELECT max(rowid) FROM {table.name}").fetchone()
    except sqlite3.Error:
        return 0
    return max((newest or 0) - ROWS_TAKEN_OVER, 0)


def _by_key(source: sqlite3.Connection, table: Table, columns: Sequence[Column[Any]]) -> Iterator[Sequence[Any]]:
    """Newest first; where a page can't be read, from the other end up to there."""
    names = ", ".join(column.name for column in columns)
    keys_of_table = [column.name for column in table.primary_key]
    for order in ("DESC", "ASC"):
        sorted_by = ", ".join(f"{name} {order}" for name in keys_of_table)
        try:
            yield from source.execute(f"SELECT {names} FROM {table.name} ORDER BY {sorted_by}")
        except sqlite3.Error:
            # What both ends give is the same row, and is put in once.
            continue
        return
