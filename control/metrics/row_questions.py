"""How many request rows splash.db keeps, and since when.

It writes nothing.
"""

from sqlalchemy import func, select

from control.metrics.questions import Questions
from control.metrics.tables import requests
from control.wire import StoredRows


async def stored_rows(questions: Questions) -> StoredRows:
    """Raises SQLAlchemyError or TimeoutError."""
    statement = select(func.count(requests.c.number), func.min(requests.c.started_at_s))
    row = await questions.ask(lambda connection: connection.execute(statement).one())
    return StoredRows(requests=row[0], oldest_at_s=row[1])
