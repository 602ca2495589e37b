"""How many request rows splash.db keeps, and since when.

It writes nothing.
"""

from sqlalchemy import func, select

from control.metrics.questions import Questions
from control.metrics.tables import requests
from control.wire import StoredRows


async def stored_rows(questions: Questions) -> StoredRows:
    """Raises SQLAlchemyError or TimeoutError."""
    # Each from an index; both in one statement would read every row, half a second for a million.
    count = select(func.count()).select_from(requests)
    oldest = select(func.min(requests.c.started_at_s))
    return await questions.ask(
        lambda connection: StoredRows(
            requests=connection.execute(count).scalar_one(), oldest_at_s=connection.execute(oldest).scalar_one()
        )
    )
