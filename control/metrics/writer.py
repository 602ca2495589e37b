"""The one thread that writes to splash.db, and its queue.

It never holds up a request: a row that cannot be written is counted as lost and logged, and serving goes on.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
from sqlalchemy import Connection, Engine
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import SQLAlchemyError

from control.metrics.tables import requests
from control.wire import RequestRow

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class Writer:
    """Takes the engine of `open_database`, and closes it. One transaction a job, in the order in which they came."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-writer")
        self.losses = 0
        """Request rows that could not be written since the start."""

    def record(self, row: RequestRow) -> None:
        """Write a finished request; the same id twice is one row. Returns at once. After `close` the row is lost."""
        try:
            self._thread.submit(self._record, row)
        except RuntimeError:
            self._lose(row)

    async def write(self, job: Callable[[Connection], _Result]) -> _Result:
        """Do `job` in a transaction; return when it is on disk. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, job)

    def close(self) -> None:
        """Write everything that was taken, then end the thread. Blocks for as long as that takes."""
        self._thread.shutdown(wait=True)
        self._engine.dispose()

    def _record(self, row: RequestRow) -> None:
        statement = insert(requests).values(msgspec.structs.asdict(row)).on_conflict_do_nothing(index_elements=["id"])
        try:
            self._do(lambda connection: connection.execute(statement))
        except SQLAlchemyError:
            self._lose(row)

    def _lose(self, row: RequestRow) -> None:
        self.losses += 1
        logger.exception("request row lost id=%s losses=%d", row.id, self.losses)

    def _do(self, job: Callable[[Connection], _Result]) -> _Result:
        with self._engine.begin() as connection:
            return job(connection)
