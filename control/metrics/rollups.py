"""The sums that are kept for ever: what each request and each stretch adds to its hour and to its day.

They are made in memory for many rows at once and stored with one statement a table. It keeps no rows.
"""

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, func
from sqlalchemy.dialects.sqlite import Insert, insert

from control.metrics.buckets import bucket_of, context_bucket_of
from control.metrics.local_day import local_day
from control.metrics.measures import times_of
from control.metrics.stretch import Stretch
from control.metrics.tables import (
    daily_decode,
    daily_requests,
    daily_times,
    hourly_decode,
    hourly_requests,
    hourly_times,
)
from control.wire import RequestRow

HOUR_S: Final = 3600
SUM_TABLES: Final = (hourly_requests, daily_requests, hourly_decode, daily_decode, hourly_times, daily_times)
# All other columns add up.
PEAK: Final = "peak_tokens_per_second"
# Of requests in the order of the columns, after those that count outcomes.
TOKENS: Final = (
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "drafted_tokens",
    "accepted_tokens",
)
TIMES: Final = ("queue_ms", "prefill_ms", "decode_ms")
OUTCOMES: Final = ("completed", "cancelled", "failed")

_Key = tuple[Any, ...]
_Values = list[Any]


class Sums:
    """Of any number of requests and stretches, in any order."""

    def __init__(self) -> None:
        self._tables: dict[Table, dict[_Key, _Values]] = {table: {} for table in SUM_TABLES}

    def add(self, entry: RequestRow | Stretch) -> None:
        """Raises OverflowError or ValueError for numbers that no clock and no counter gives."""
        hour_s, day = int(entry.started_at_s // HOUR_S) * HOUR_S, local_day(entry.started_at_s)
        if isinstance(entry, Stretch):
            key: _Key = (entry.model, entry.width, context_bucket_of(entry.context_tokens))
            self._add(hourly_decode, (hour_s, *key), _of_stretch(entry))
            self._add(daily_decode, (day, *key), _of_stretch(entry))
            return
        self._add(hourly_requests, (hour_s, entry.model, entry.key), _of_request(entry))
        self._add(daily_requests, (day, entry.model, entry.key), _of_request(entry))
        for measure, duration_ms in times_of(entry):
            key = (entry.model, measure, bucket_of(duration_ms))
            self._add(hourly_times, (hour_s, *key), [1])
            self._add(daily_times, (day, *key), [1])

    def store(self, connection: Connection) -> None:
        """On top of the sums that are there."""
        self._execute(connection, _ADDING)

    def store_missing(self, connection: Connection) -> None:
        """Only where there is no such sum at all."""
        self._execute(connection, _FILLING)

    def _add(self, table: Table, key: _Key, values: _Values) -> None:
        sums = self._tables[table]
        found = sums.get(key)
        if found is None:
            sums[key] = values
        else:
            sums[key] = _both_stretches(found, values) if PEAK in table.columns else _both(found, values)

    def _execute(self, connection: Connection, statements: dict[Table, Insert]) -> None:
        for table, sums in self._tables.items():
            if sums:
                names = table.columns.keys()
                rows = [dict(zip(names, (*key, *values), strict=True)) for key, values in sums.items()]
                connection.execute(statements[table], rows)


def _of_request(row: RequestRow) -> _Values:
    if row.outcome == "rejected":
        return [0, 0, 0, 0, 1, *(0 for _ in TOKENS), *(0.0 for _ in TIMES)]
    outcomes = (int(row.outcome == outcome) for outcome in OUTCOMES)
    times = (getattr(row, name) or 0.0 for name in TIMES)
    return [1, *outcomes, 0, *(getattr(row, name) for name in TOKENS), *times]


def _of_stretch(stretch: Stretch) -> _Values:
    ceiling = stretch.ceiling_tokens_per_second
    ceiling_seconds = 0.0 if ceiling is None else stretch.seconds
    return [
        stretch.tokens,
        stretch.seconds,
        stretch.peak_tokens_per_second,
        (ceiling or 0.0) * ceiling_seconds,
        ceiling_seconds,
    ]


def _both(mine: _Values, others: _Values) -> _Values:
    return [one + other for one, other in zip(mine, others, strict=True)]


def _both_stretches(mine: _Values, others: _Values) -> _Values:
    return [
        max((peak for peak in (one, other) if peak is not None), default=None)
        if position == _PEAK_POSITION
        else one + other
        for position, (one, other) in enumerate(zip(mine, others, strict=True))
    ]


def _adding(table: Table) -> Insert:
    statement = insert(table)
    sums: dict[str, ColumnElement[Any]] = {}
    for column in table.columns:
        new = statement.excluded[column.name]
        if column.name == PEAK:
            # The one that is known; SQLite's max of two is NULL when one of them is.
            sums[column.name] = func.coalesce(func.max(column, new), column, new)
        elif not column.primary_key:
            sums[column.name] = column + new
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=sums)


_PEAK_POSITION: Final = [column.name for column in hourly_decode.columns if not column.primary_key].index(PEAK)
_ADDING: Final = {table: _adding(table) for table in SUM_TABLES}
_FILLING: Final = {table: insert(table).on_conflict_do_nothing() for table in SUM_TABLES}
