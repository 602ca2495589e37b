"""Puts ended requests and stretches into their tables and into the sums, all in the transaction of the caller.

It opens and commits nothing. An id counts once for as long as its row is kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, insert, select

from control.metrics.rollups import Sums
from control.metrics.stretch import Stretch
from control.metrics.tables import requests, stretches
from control.wire import RequestRow

Entry = RequestRow | Stretch

# Below the number of values that a statement of SQLite can have.
IDS_AT_ONCE: Final = 500
# Made once: with one row a transaction, to make them would take as long as SQLite does.
_ROWS: Final = insert(requests)
_STRETCHES: Final = insert(stretches)
_KNOWN: Final = select(requests.c.id).where(requests.c.id.in_(bindparam("ids", expanding=True)))


def record(connection: Connection, entries: Sequence[Entry]) -> None:
    """Of rows with the same id the first one stands."""
    rows = _new_rows(connection, [entry for entry in entries if isinstance(entry, RequestRow)])
    spans = [entry for entry in entries if isinstance(entry, Stretch)]
    sums = Sums()
    new: list[Entry] = [*rows, *spans]
    for entry in new:
        sums.add(entry)
    if rows:
        connection.execute(_ROWS, [msgspec.structs.asdict(row) for row in rows])
    if spans:
        connection.execute(_STRETCHES, [asdict(stretch) for stretch in spans])
    sums.store(connection)


def _new_rows(connection: Connection, rows: Iterable[RequestRow]) -> list[RequestRow]:
    by_id: dict[str, RequestRow] = {}
    for row in rows:
        by_id.setdefault(row.id, row)
    ids = list(by_id)
    for first in range(0, len(ids), IDS_AT_ONCE):
        for found in connection.execute(_KNOWN, {"ids": ids[first : first + IDS_AT_ONCE]}).scalars():
            del by_id[found]
    return list(by_id.values())
