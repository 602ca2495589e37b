"""A page of the list of requests, in SQL: whatever is asked, only a bounded number of rows is read.

By time, the rows of each kind that matches (`request_kinds`) are walked side by side, from where the page begins. By
anything else, SORTED_LIMIT rows at most are sorted, the newest ones. It keeps nothing and computes no cost.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from sqlalchemy import Connection

from control.metrics.request_kinds import COLUMNS, Kind, kinds
from control.metrics.request_search import Cursor, Search
from control.wire import RequestRow, RequestSort

# Sorting so many takes some 40 ms of a slow core, and finding out since when there are as many some 10 more.
SORTED_LIMIT: Final = 10_000
# The first look back for SORTED_LIMIT rows; it doubles until they are found, and then narrows down in halves.
FIRST_LOOK_S: Final = 3_600.0
NUM_HALVES: Final = 3

FIELDS: Final = RequestRow.__struct_fields__
SPEED: Final = (
    "CASE WHEN decode_ms > 0 AND completion_tokens > max(first_emission_tokens, 1) "
    "THEN (completion_tokens - max(first_emission_tokens, 1)) * 1000.0 / decode_ms END"
)
# No prompt has 0 tokens: nothing of that one was read, so it has no values.
VALUES: Final[Mapping[RequestSort, str]] = {
    "started": "started_at_s",
    "queue": "queue_ms",
    "prefill": "prefill_ms",
    "decode": "decode_ms",
    "ttft": "ttft_ms",
    "total": "total_ms",
    "prompt": "nullif(prompt_tokens, 0)",
    "cached": "CASE WHEN prompt_tokens > 0 THEN cached_tokens END",
    "output": "CASE WHEN prompt_tokens > 0 THEN completion_tokens END",
    "speed": SPEED,
}
_OF_KIND: Final = " AND ".join(f"{name} = ?" for name in COLUMNS)
_ROW: Final = ", ".join(FIELDS)
_NUMBER: Final = FIELDS.index("number")
_STARTED: Final = FIELDS.index("started_at_s")

_Parameters = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL and what its question marks stand for."""

    text: str
    parameters: _Parameters = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of one page in the order that was asked for; cursors as in `RequestPage`."""

    rows: tuple[RequestRow, ...]
    next: Cursor | None
    previous: Cursor | None
    sorted_since_s: float | None


def page(connection: Connection, search: Search, cost: Sql) -> Found:
    """`cost`: the value of a row when it is sorted by cost."""
    matching = None if search.kinds.takes_all else kinds(connection, search.kinds)
    since_s: float | None = None
    if search.sort == "started":
        values = Sql("started_at_s")
        rows = _walk(connection, search, matching)
    else:
        values = cost if search.sort == "cost" else Sql(VALUES[search.sort])
        since_s = search.after.sorted_since_s if search.after else _sorted_since_s(connection, search, matching)
        rows = _sorted(connection, search, matching, values, since_s)
    return _found(search, list(islice(rows, search.limit + 1)), since_s)


def one(connection: Connection, request_id: str) -> RequestRow | None:
    row = connection.exec_driver_sql(f"SELECT {_ROW} FROM requests WHERE id = ?", (request_id,)).first()
    return None if row is None else _row(row)


def _found(search: Search, rows: Sequence[Sequence[Any]], since_s: float | None) -> Found:
    """Each of `rows` ends with its value; there is one more than the page has when the list goes on."""
    has_more, rows = len(rows) > search.limit, rows[: search.limit]
    if search.is_backwards:
        rows = rows[::-1]

    def cursor(row: Sequence[Any], *, is_backwards: bool) -> Cursor:
        return Cursor(search.sort, search.direction, row[-1], row[_NUMBER], is_backwards, since_s)

    goes_on = bool(rows) and (has_more or search.is_backwards)
    goes_back = bool(rows) and (has_more if search.is_backwards else search.after is not None)
    return Found(
        rows=tuple(_row(row) for row in rows),
        next=cursor(rows[-1], is_backwards=False) if goes_on else None,
        previous=cursor(rows[0], is_backwards=True) if goes_back else None,
        sorted_since_s=since_s,
    )


def _row(values: Sequence[Any]) -> RequestRow:
    named = dict(zip(FIELDS, values, strict=False))
    return RequestRow(**{**named, "stream": bool(named["stream"])})


# --- By time ---------------------------------------------------------------------------------------------------------


def _walk(connection: Connection, search: Search, matching: Sequence[Kind] | None) -> Iterator[Sequence[Any]]:
    """Each kind's rows come in order out of the index, and only as many as are taken."""
    way = "ASC" if search.is_ascending else "DESC"
    bounds = _all_of(_range(search, None), _after_time(search))
    end = f"{bounds.text} ORDER BY started_at_s {way}, number {way}"
    start = f"SELECT {_ROW}, started_at_s FROM requests INDEXED BY"
    if matching is None:
        yield from connection.exec_driver_sql(f"{start} requests_started_at_s WHERE {end}", bounds.parameters)
        return
    of_kind = f"{start} requests_kind WHERE {_OF_KIND} AND {end}"
    walks = [connection.exec_driver_sql(of_kind, (*kind.values(), *bounds.parameters)) for kind in matching]
    try:
        yield from heapq.merge(*walks, key=lambda row: (row[_STARTED], row[_NUMBER]), reverse=not search.is_ascending)
    finally:
        for walk in walks:
            walk.close()


def _after_time(search: Search) -> Sql:
    if search.after is None:
        return Sql("1")
    sign = ">" if search.is_ascending else "<"
    text = f"started_at_s {sign}= ? AND (started_at_s {sign} ? OR number {sign} ?)"
    return Sql(text, (search.after.value, search.after.value, search.after.number))


# --- By anything else ------------------------------------------------------------------------------------------------


def _sorted(
    connection: Connection, search: Search, matching: Sequence[Kind] | None, value: Sql, since_s: float | None
) -> Iterator[Sequence[Any]]:
    """What has no value comes last, whichever the direction."""
    way = "ASC" if search.is_ascending else "DESC"
    nulls = "DESC" if search.is_backwards else "ASC"
    source, bounds, after = _source(matching), _range(search, since_s), _after_value(search)
    text = (
        f"{source.text} SELECT * FROM (SELECT {_ROW}, {value.text} AS value FROM {_FROM[matching is None]} "
        f"AND {bounds.text}) WHERE {after.text} ORDER BY value IS NULL {nulls}, value {way}, number {way} LIMIT ?"
    )
    parameters = (*source.parameters, *value.parameters, *bounds.parameters, *after.parameters, search.limit + 1)
    yield from connection.exec_driver_sql(text, parameters)


def _after_value(search: Search) -> Sql:
    cursor = search.after
    if cursor is None:
        return Sql("1")
    sign = ">" if search.is_ascending else "<"
    if cursor.value is None:
        rest = "value IS NOT NULL" if cursor.is_backwards else "0"
        return Sql(f"(value IS NULL AND number {sign} ? OR {rest})", (cursor.number,))
    rest = "0" if cursor.is_backwards else "value IS NULL"
    text = f"(value {sign} ? OR value = ? AND number {sign} ? OR {rest})"
    return Sql(text, (cursor.value, cursor.value, cursor.number))


def _sorted_since_s(connection: Connection, search: Search, matching: Sequence[Kind] | None) -> float | None:
    """None: all that match are few enough. Else from then on there are no more than can be sorted, but nearly."""
    newest_s = _edge(connection, search, "DESC")
    oldest_s = _edge(connection, search, "ASC")
    if newest_s is None or oldest_s is None:
        return None
    look_s = FIRST_LOOK_S
    while newest_s - look_s > oldest_s and _are_few(connection, search, matching, newest_s - look_s):
        look_s *= 2
    if newest_s - look_s <= oldest_s and _are_few(connection, search, matching, oldest_s):
        return None
    few_s, many_s = look_s / 2 if look_s > FIRST_LOOK_S else 0.0, look_s
    for _ in range(NUM_HALVES):
        middle_s = (few_s + many_s) / 2
        if _are_few(connection, search, matching, newest_s - middle_s):
            few_s = middle_s
        else:
            many_s = middle_s
    return newest_s - few_s


def _edge(connection: Connection, search: Search, way: str) -> float | None:
    """When the newest or the oldest of the range began, whatever its kind."""
    bounds = _range(search, None)
    found: float | None = connection.exec_driver_sql(
        f"SELECT started_at_s FROM requests WHERE {bounds.text} ORDER BY started_at_s {way} LIMIT 1", bounds.parameters
    ).scalar()
    return found


def _are_few(connection: Connection, search: Search, matching: Sequence[Kind] | None, since_s: float) -> bool:
    source, bounds = _source(matching), _range(search, since_s)
    text = f"{source.text} SELECT count(*) FROM (SELECT 1 FROM {_FROM[matching is None]} AND {bounds.text} LIMIT ?)"
    parameters = (*source.parameters, *bounds.parameters, SORTED_LIMIT + 1)
    return bool(connection.exec_driver_sql(text, parameters).scalar_one() <= SORTED_LIMIT)


# CROSS JOIN keeps the order: for each kind its rows, and never all rows for their kinds.
_FROM: Final = {
    True: "requests INDEXED BY requests_started_at_s WHERE 1",
    False: "kinds CROSS JOIN requests INDEXED BY requests_kind ON "
    + " AND ".join(f"{name} = kinds.of_{name}" for name in COLUMNS),
}


def _source(matching: Sequence[Kind] | None) -> Sql:
    if matching is None:
        return Sql("")
    names = ", ".join(f"of_{name}" for name in COLUMNS)
    if not matching:
        return Sql(f"WITH kinds({names}) AS (SELECT {', '.join('NULL' for _ in COLUMNS)} WHERE 0)")
    one_kind = f"({', '.join('?' for _ in COLUMNS)})"
    text = f"WITH kinds({names}) AS (VALUES {', '.join(one_kind for _ in matching)})"
    return Sql(text, tuple(chain.from_iterable(kind.values() for kind in matching)))


# --- Both ------------------------------------------------------------------------------------------------------------


def _range(search: Search, since_s: float | None) -> Sql:
    """One lower bound: of two, SQLite would look up the first in the index, and read all that it lets through."""
    lower = [each for each in (search.since_s, since_s) if each is not None]
    bounds = [Sql("started_at_s >= ?", (max(lower),))] if lower else []
    if search.until_s is not None:
        bounds.append(Sql("started_at_s < ?", (search.until_s,)))
    return _all_of(*bounds)


def _all_of(*conditions: Sql) -> Sql:
    text = " AND ".join(each.text for each in conditions) or "1"
    return Sql(text, tuple(chain.from_iterable(each.parameters for each in conditions)))
