"""The times of the last day's requests, kept in memory: a busy day has 30,000 rows, and only the newest are not known.

It works out no percentile, and is used on the reading thread only.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Integer, case, func, literal_column, select

from control.metrics.measures import INTER_TOKEN, LARGEST_GAP, QUEUE, TTFT, TTFT_WITHOUT_QUEUE
from control.metrics.ranges import DAY_S
from control.metrics.tables import requests

# SQLite's own number of a row, which counts up; a request has none when it begins.
rowid: Final[ColumnElement[int]] = literal_column("requests.rowid", Integer)


# started_at_s, model, then the times as of `control.metrics.measures` in the order of `MEASURES`, None as far as the
# request did not get: tuples as the driver makes them, for there are tens of thousands.
TimesOfRow = tuple[Any, ...]
MEASURES: Final = (TTFT, TTFT_WITHOUT_QUEUE, QUEUE, INTER_TOKEN, LARGEST_GAP)


@dataclass(frozen=True, slots=True)
class _Newest:
    rowid: int
    id: str


class RecentTimes:
    def __init__(self) -> None:
        self._rows: list[TimesOfRow] = []
        self._newest: _Newest | None = None
        self._since_s = math.inf

    def rows(self, connection: Connection, now_s: float) -> list[TimesOfRow]:
        """Of all that began within a day before `now_s` and were not rejected."""
        since_s = now_s - DAY_S
        newest = _newest(connection)
        # A clock that was ahead and is right again looks further back than what was kept.
        if newest is None or since_s < self._since_s or not self._goes_on(connection):
            self._rows = _read(connection, requests.c.started_at_s >= since_s)
        else:
            assert self._newest is not None, "what goes on has begun"
            added = _read(connection, rowid > self._newest.rowid)
            self._rows = [row for row in (*self._rows, *added) if row[0] >= since_s]
        self._newest, self._since_s = newest, since_s
        return self._rows

    def _goes_on(self, connection: Connection) -> bool:
        """Whether the newest known row is where it was: another file has others, and VACUUM numbers them anew."""
        if self._newest is None:
            return False
        found = connection.execute(select(requests.c.id).where(rowid == self._newest.rowid)).scalar()
        return bool(found == self._newest.id)


def _newest(connection: Connection) -> _Newest | None:
    row = connection.execute(select(rowid, requests.c.id).order_by(rowid.desc()).limit(1)).first()
    return None if row is None else _Newest(*row)


def _read(connection: Connection, is_wanted: ColumnElement[bool]) -> list[TimesOfRow]:
    columns = requests.c
    later_tokens = columns.completion_tokens - func.max(columns.first_emission_tokens, 1)
    statement = select(
        columns.started_at_s,
        columns.model,
        columns.ttft_ms,
        func.max(columns.ttft_ms - columns.queue_ms, 0.0),
        func.min(columns.queue_ms, columns.ttft_ms),
        case((later_tokens > 0, columns.decode_ms / later_tokens)),
        columns.largest_gap_ms,
    ).where(is_wanted, columns.outcome != "rejected")
    # The driver's plain tuples: SQLAlchemy's rows take as long again as everything else.
    cursor: Any = connection.execute(statement).cursor
    found: list[TimesOfRow] = cursor.fetchall()
    return found
