"""The first tables: keys, settings, requests.

The columns are repeated here: a migration must not change when tables.py does.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("request_class", sa.String, nullable=False),
        sa.Column("hint", sa.String, nullable=False),
        sa.Column("sha256", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("created_at_s", sa.Float, nullable=False),
        sa.Column("revoked_at_s", sa.Float),
        sqlite_autoincrement=True,
    )
    op.create_index("keys_active_name", "keys", ["name"], unique=True, sqlite_where=sa.text("revoked_at_s IS NULL"))
    op.create_table(
        "settings",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.String, nullable=False),
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("started_at_s", sa.Float, nullable=False),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("dialect", sa.String, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("error_code", sa.String),
        sa.Column("finish_reason", sa.String),
        sa.Column("queue_ms", sa.Float),
        sa.Column("prefill_ms", sa.Float),
        sa.Column("decode_ms", sa.Float),
        sa.Column("ttft_ms", sa.Float),
        sa.Column("total_ms", sa.Float, nullable=False),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("cached_tokens", sa.Integer, nullable=False),
        sa.Column("completion_tokens", sa.Integer, nullable=False),
        sa.Column("reasoning_tokens", sa.Integer, nullable=False),
    )
    op.create_index("requests_number", "requests", ["number"])
    op.create_index("requests_started_at_s", "requests", ["started_at_s"])
