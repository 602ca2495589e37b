"""The tables of splash.db, as they are at SCHEMA_REVISION.

It opens nothing and moves nothing: migrations bring an older file to this form.
"""

from typing import Final

from sqlalchemy import Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, text

# The newest revision in migrations/versions.
SCHEMA_REVISION: Final = "0002"

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
    Index("requests_number", "number"),
    Index("requests_started_at_s", "started_at_s"),
)
