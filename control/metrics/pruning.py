"""Removes the rows of requests and stretches that are older than 30 days, a few at a time; their sums stay.

Between two steps the writer does what has come meanwhile. It measures time by the wall clock that it is given.
"""

import logging
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, Table, delete, select
from sqlalchemy.exc import SQLAlchemyError

from control.metrics.database import cause_of
from control.metrics.tables import requests, stretches
from control.metrics.writer import Writer
from control.repeating import repeat

logger = logging.getLogger(__name__)

KEPT_S: Final = 30 * 86_400.0
EVERY_S: Final = 3600.0
# Some ten milliseconds of writing: whoever waits for the writer does not notice.
ROWS_A_STEP: Final = 500


class Pruning:
    def __init__(self, writer: Writer, *, wall: Callable[[], float] = time.time) -> None:
        self._writer = writer
        self._wall = wall

    async def run(self) -> None:
        """At once and then every hour, until it is cancelled."""
        await repeat("pruning", self.prune, every_s=lambda: EVERY_S)

    async def prune(self) -> int:
        """How many rows are gone. What the database does not let go now is removed the next time."""
        before_s = self._wall() - KEPT_S
        removed = 0
        try:
            for table in (requests, stretches):
                while step := await self._remove_some(table, before_s):
                    removed += step
            if removed:
                await self._writer.truncate_wal()
        except (SQLAlchemyError, sqlite3.Error) as error:
            logger.warning("old rows not all removed removed=%d reason=%s", removed, cause_of(error))
        if removed:
            logger.info("old rows removed rows=%d", removed)
        return removed

    async def _remove_some(self, table: Table, before_s: float) -> int:
        return await self._writer.write(lambda connection: remove_some(connection, table, before_s))


def remove_some(connection: Connection, table: Table, before_s: float) -> int:
    """The oldest of those that began before, at most ROWS_A_STEP; how many they were."""
    (key,) = table.primary_key
    oldest = (
        select(key).where(table.c.started_at_s < before_s).order_by(table.c.started_at_s).limit(ROWS_A_STEP)
    ).scalar_subquery()
    return connection.execute(delete(table).where(key.in_(oldest))).rowcount
