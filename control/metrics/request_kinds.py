"""Kinds of requests: what can be filtered by, taken together, and found without reading the rows.

There are hundreds at most among a million rows, and `requests_kind` holds each one's rows in the order of time: so a
filter that few rows match, or none, is answered as fast as any other. It asks for no rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

# The first columns of the index requests_kind, in its order.
COLUMNS: Final = ("key", "model", "dialect", "outcome", "request_class")


@dataclass(frozen=True, slots=True)
class Kind:
    key: str
    model: str
    dialect: str
    outcome: str
    request_class: str

    def values(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in COLUMNS)


@dataclass(frozen=True, slots=True)
class KindFilter:
    """None: whatever it is."""

    key: str | None = None
    model: str | None = None
    dialect: str | None = None
    outcome: str | None = None
    request_class: str | None = None

    @property
    def takes_all(self) -> bool:
        return self == KindFilter()


def kinds(connection: Connection, wanted: KindFilter) -> list[Kind]:
    """Those that match and of which there are rows."""
    return [Kind(*values) for values in _below((), connection, wanted)]


def _below(prefix: Sequence[str], connection: Connection, wanted: KindFilter) -> Iterator[Sequence[str]]:
    if len(prefix) == len(COLUMNS):
        yield prefix
        return
    for value in _values(prefix, connection, getattr(wanted, COLUMNS[len(prefix)])):
        yield from _below((*prefix, value), connection, wanted)


def _values(prefix: Sequence[str], connection: Connection, only: str | None) -> Iterator[str]:
    """Of the column after `prefix`: each is one step in the index, however many rows have it."""
    column = COLUMNS[len(prefix)]
    fixed = "".join(f"{name} = ? AND " for name in COLUMNS[: len(prefix)])
    least = f"SELECT min({column}) FROM requests INDEXED BY requests_kind WHERE {fixed}{column}"
    if only is not None:
        if connection.exec_driver_sql(f"{least} = ?", (*prefix, only)).scalar() is not None:
            yield only
        return
    value = connection.exec_driver_sql(f"{least} >= ?", (*prefix, "")).scalar()
    while value is not None:
        yield value
        value = connection.exec_driver_sql(f"{least} > ?", (*prefix, value)).scalar()
