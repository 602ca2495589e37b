"""The limits of a key: requests in flight, requests and tokens a day. Keys that were there have none."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("max_in_flight", "requests_per_day", "tokens_per_day"):
        op.add_column("keys", sa.Column(name, sa.Integer))
