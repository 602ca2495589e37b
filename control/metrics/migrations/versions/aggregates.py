"""What is kept for ever: sums by the hour and by the day; stretches of decoding; and what a request row says more.

The sums begin with what the rows say that are there. The columns and the rules of the sums are repeated here: a
migration must not change when tables.py or rollups.py does.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COUNTS = ("requests", "completed", "cancelled", "failed", "rejected")
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "drafted_tokens")
# Of each row so far; drafted and accepted tokens, first emissions and gaps were not known.
ROWS = """
SELECT started_at_s, model, "key", outcome, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens,
       queue_ms, prefill_ms, decode_ms, ttft_ms
FROM requests
"""
LOG_RATIO = math.log(1.1)
AT_ONCE = 5000

When = Callable[[float], int | str]


def upgrade() -> None:
    op.add_column("requests", sa.Column("request_class", sa.String, nullable=False, server_default="interactive"))
    for name in ("first_emission_tokens", "drafted_tokens", "accepted_tokens"):
        op.add_column("requests", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.add_column("requests", sa.Column("largest_gap_ms", sa.Float))
    kind = ["key", "model", "dialect", "outcome", "request_class", "started_at_s"]
    op.create_index("requests_kind", "requests", kind)
    op.create_table(
        "stretches",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("started_at_s", sa.Float, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("context_tokens", sa.Integer, nullable=False),
        sa.Column("peak_tokens_per_second", sa.Float),
        sa.Column("ceiling_tokens_per_second", sa.Float),
    )
    op.create_index("stretches_started_at_s", "stretches", ["started_at_s"])
    for period, when in (("hourly", ("hour_s", sa.Integer)), ("daily", ("day", sa.String))):
        _create_sums(period, *when)
    _sum_up(op.get_bind())


def _create_sums(period: str, when: str, kind: Any) -> None:
    op.create_table(
        f"{period}_requests",
        sa.Column(when, kind, primary_key=True),
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        *(sa.Column(name, sa.Integer, nullable=False) for name in (*COUNTS, *TOKENS, "accepted_tokens")),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("queue_ms", "prefill_ms", "decode_ms")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        f"{period}_decode",
        sa.Column(when, kind, primary_key=True),
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("width", sa.Integer, primary_key=True),
        sa.Column("context_bucket", sa.Integer, primary_key=True),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("peak_tokens_per_second", sa.Float),
        sa.Column("ceiling_tokens", sa.Float, nullable=False),
        sa.Column("ceiling_seconds", sa.Float, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        f"{period}_times",
        sa.Column(when, kind, primary_key=True),
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("measure", sa.String, primary_key=True),
        sa.Column("bucket", sa.Integer, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )


def _sum_up(connection: sa.Connection) -> None:
    periods: dict[str, When] = {"hourly": _hour, "daily": _day}
    sums: dict[str, dict[tuple[Any, ...], list[Any]]] = {period: {} for period in periods}
    times: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    # A cursor of the driver: nothing but the sums is held in memory.
    cursor = connection.connection.cursor()
    cursor.execute(ROWS)
    while rows := cursor.fetchmany(AT_ONCE):
        for row in rows:
            values, measures = _values(row), [(row[1], *measured) for measured in _measures(row)]
            for period, when in periods.items():
                key = (when(row[0]), row[1], row[2])
                before = sums[period].get(key)
                sums[period][key] = values if before is None else [a + b for a, b in zip(before, values, strict=True)]
                times[period].update((key[0], *measure) for measure in measures)
    cursor.close()
    for period in periods:
        _insert(connection, f"{period}_requests", ((*key, *values) for key, values in sums[period].items()))
        _insert(connection, f"{period}_times", ((*key, count) for key, count in times[period].items()))


def _insert(connection: sa.Connection, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
    while some := list(islice(rows, AT_ONCE)):
        connection.exec_driver_sql(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in some[0])})", some)


def _values(row: Any) -> list[Any]:
    """In the order of the columns after the key."""
    if row[3] == "rejected":
        return [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0]
    outcomes = [int(row[3] == outcome) for outcome in COUNTS[1:4]]
    return [1, *outcomes, 0, *row[4:8], 0, 0, *(each or 0.0 for each in row[8:11])]


def _measures(row: Any) -> Iterator[tuple[str, int]]:
    _, _, _, outcome, _, _, completion_tokens, _, queue_ms, _, decode_ms, ttft_ms = row
    if outcome == "rejected":
        return
    if ttft_ms is not None:
        yield "ttft", _bucket(ttft_ms)
        if queue_ms is not None:
            yield "ttft_without_queue", _bucket(max(ttft_ms - queue_ms, 0.0))
            yield "queue", _bucket(min(queue_ms, ttft_ms))
    if decode_ms is not None and completion_tokens > 1:
        yield "inter_token", _bucket(decode_ms / (completion_tokens - 1))


def _bucket(duration_ms: float) -> int:
    return 0 if duration_ms <= 1 else math.ceil(math.log(duration_ms) / LOG_RATIO)


def _hour(at_s: float) -> int:
    return int(at_s // 3600) * 3600


def _day(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).astimezone().date().isoformat()
