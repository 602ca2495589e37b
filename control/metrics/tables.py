"""The tables of splash.db, as they are at SCHEMA_REVISION.

It opens nothing and moves nothing: migrations bring an older file to this form.
"""

from typing import Any, Final

from sqlalchemy import Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, text

# The newest revision in migrations/versions.
SCHEMA_REVISION: Final = "0003"

metadata = MetaData()

keys = Table(
    "keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("request_class", String, nullable=False),
    Column("hint", String, nullable=False),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    Column("created_at_s", Float, nullable=False),
    Column("revoked_at_s", Float),
    # NULL: no such limit.
    Column("max_in_flight", Integer),
    Column("requests_per_day", Integer),
    Column("tokens_per_day", Integer),
    Index("keys_active_name", "name", unique=True, sqlite_where=text("revoked_at_s IS NULL")),
    # A removed row's id must not come back: request rows of the old key would seem to be the new one's.
    sqlite_autoincrement=True,
)

settings = Table(
    "settings",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

# The columns are the fields of control.wire.RequestRow.
requests = Table(
    "requests",
    metadata,
    Column("id", String, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("started_at_s", Float, nullable=False),
    Column("key", String, nullable=False),
    Column("dialect", String, nullable=False),
    Column("model", String, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("outcome", String, nullable=False),
    Column("error_code", String),
    Column("finish_reason", String),
    Column("queue_ms", Float),
    Column("prefill_ms", Float),
    Column("decode_ms", Float),
    Column("ttft_ms", Float),
    Column("total_ms", Float, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("reasoning_tokens", Integer, nullable=False),
    Column("request_class", String, nullable=False, server_default="interactive"),
    Column("first_emission_tokens", Integer, nullable=False, server_default="0"),
    Column("drafted_tokens", Integer, nullable=False, server_default="0"),
    Column("accepted_tokens", Integer, nullable=False, server_default="0"),
    Column("largest_gap_ms", Float),
    Index("requests_number", "number"),
    Index("requests_started_at_s", "started_at_s"),
    # What can be filtered by, then time: control.metrics.request_kinds.
    Index("requests_kind", "key", "model", "dialect", "outcome", "request_class", "started_at_s"),
)

# A stretch of pure decoding (control.metrics.stretch), kept as long as request rows are.
stretches = Table(
    "stretches",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("started_at_s", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("model", String, nullable=False),
    Column("width", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("context_tokens", Integer, nullable=False),
    Column("peak_tokens_per_second", Float),
    Column("ceiling_tokens_per_second", Float),
    Index("stretches_started_at_s", "started_at_s"),
)

# --- Kept for ever, and equal to what the rows said. An hour is one of UTC, a day is the machine's own -------------


def _request_sums() -> list[Column[Any]]:
    """Sums over requests: `requests` = completed + cancelled + failed; the `rejected` add nothing but to their own."""
    counts = ("requests", "completed", "cancelled", "failed", "rejected", "prompt_tokens", "cached_tokens")
    more_counts = ("completion_tokens", "reasoning_tokens", "drafted_tokens", "accepted_tokens")
    times = ("queue_ms", "prefill_ms", "decode_ms")
    return [
        *(Column(name, Integer, nullable=False) for name in (*counts, *more_counts)),
        *(Column(name, Float, nullable=False) for name in times),
    ]


def _decode_sums() -> list[Column[Any]]:
    """Sums over stretches; `ceiling_tokens` = ceiling * seconds, over `ceiling_seconds` of those that have one."""
    return [
        Column("tokens", Integer, nullable=False),
        Column("seconds", Float, nullable=False),
        Column("peak_tokens_per_second", Float),
        Column("ceiling_tokens", Float, nullable=False),
        Column("ceiling_seconds", Float, nullable=False),
    ]


def _hour() -> Column[Any]:
    """Unix time at which it began."""
    return Column("hour_s", Integer, primary_key=True)


def _day() -> Column[Any]:
    """YYYY-MM-DD in the machine's time zone at the time of writing."""
    return Column("day", String, primary_key=True)


def _model_and_key() -> list[Column[Any]]:
    return [Column("model", String, primary_key=True), Column("key", String, primary_key=True)]


def _decode_key() -> list[Column[Any]]:
    """`context_bucket`: the power of two, 4,096 at least, that the mean context of a stream does not exceed."""
    return [
        Column("model", String, primary_key=True),
        Column("width", Integer, primary_key=True),
        Column("context_bucket", Integer, primary_key=True),
    ]


def _time_key() -> list[Column[Any]]:
    """How many requests had this time: `measure` names it, `bucket` is control.metrics.buckets.bucket_of(ms)."""
    return [
        Column("model", String, primary_key=True),
        Column("measure", String, primary_key=True),
        Column("bucket", Integer, primary_key=True),
        Column("count", Integer, nullable=False),
    ]


hourly_requests = Table(
    "hourly_requests", metadata, _hour(), *_model_and_key(), *_request_sums(), sqlite_with_rowid=False
)
daily_requests = Table("daily_requests", metadata, _day(), *_model_and_key(), *_request_sums(), sqlite_with_rowid=False)
hourly_decode = Table("hourly_decode", metadata, _hour(), *_decode_key(), *_decode_sums(), sqlite_with_rowid=False)
daily_decode = Table("daily_decode", metadata, _day(), *_decode_key(), *_decode_sums(), sqlite_with_rowid=False)
hourly_times = Table("hourly_times", metadata, _hour(), *_time_key(), sqlite_with_rowid=False)
daily_times = Table("daily_times", metadata, _day(), *_time_key(), sqlite_with_rowid=False)
