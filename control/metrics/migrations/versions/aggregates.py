"""What is kept for ever: sums by the hour and by the day; stretches of decoding; and what a request row says more.

The columns are repeated here: a migration must not change when tables.py does.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COUNTS = ("requests", "completed", "cancelled", "failed", "rejected")
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "drafted_tokens")


def upgrade() -> None:
    op.add_column("requests", sa.Column("request_class", sa.String, nullable=False, server_default="interactive"))
    for name in ("first_emission_tokens", "drafted_tokens", "accepted_tokens"):
        op.add_column("requests", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.add_column("requests", sa.Column("largest_gap_ms", sa.Float))
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


def _create_sums(period: str, when: str, kind: type) -> None:
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
