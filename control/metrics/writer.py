"""The one thread that writes to splash.db, and its queue.

It never holds up a request. Rows that the database does not take wait, up to a limit, until it does; beyond that they
are counted as lost. When the file is renamed or deleted while Splash serves, another takes its place.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from sqlalchemy import Connection, Engine
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from control.errors import DatabaseUnusable
from control.metrics.backlog import Backlog
from control.metrics.database import DatabaseLost, cause_of, open_database, put_aside
from control.metrics.opened_file import companions_of, file_id, opened_at
from control.metrics.tables import requests
from control.wire import RequestRow

logger = logging.getLogger(__name__)

# Half a kilobyte each; an hour of a busy machine.
ROWS_LIMIT: Final = 10_000
RETRY_EVERY_S: Final = 2.0
# How soon a file that is gone is noticed while nothing is written; each write looks, too.
LOOK_EVERY_S: Final = 3.0
WARN_EVERY_S: Final = 10.0
UNFINISHED: Final = ".new"

# The row itself can't be kept, whatever state the database is in.
ROW_FAULTS: Final = (IntegrityError, DataError, ProgrammingError, InterfaceError)

_Result = TypeVar("_Result")
Refill = Callable[[Connection], None]
_Order = Callable[[], None]


class Writer:
    """Takes the engine of `open_database`, and closes it. One transaction a job, in the order in which they came."""

    def __init__(self, engine: Engine, *, rows_limit: int = ROWS_LIMIT, retry_every_s: float = RETRY_EVERY_S) -> None:
        self._engine = engine
        self._file = opened_at(Path(engine.url.database or ""))
        self._rows = Backlog(rows_limit)
        self._retry_every_s = retry_every_s
        self._retry_at: float | None = None
        self._warned_at: float | None = None
        self._is_lost = False
        self._make_again_at = 0.0
        self._refills: list[Refill] = []
        # None is the end, and nothing comes after it.
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._is_closed = False
        self._door = threading.Lock()
        # A daemon: a control that ends by a fault must not wait for an order that never comes.
        self._thread = threading.Thread(target=self._work, name="metrics-writer", daemon=True)
        self._thread.start()

    @property
    def losses(self) -> int:
        """Request rows since the start that will never be written."""
        return self._rows.losses

    def refill_with(self, refill: Refill) -> None:
        """`refill` puts what its owner has in memory into a file that took the place of a lost one, on this thread."""
        self._refills.append(refill)

    def record(self, row: RequestRow) -> None:
        """Write a finished request; the same id twice is one row. Returns at once. After `close` the row is lost."""
        if self._rows.add(row):
            self._submit(_nothing)
        else:
            self._warn("Splash ends")

    async def write(self, job: Callable[[Connection], _Result]) -> _Result:
        """Do `job` in a transaction; return when it is on disk. Raises what it raises, and RuntimeError when closed."""
        future: Future[_Result] = Future()

        def do() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(self._do(job))
            except BaseException as error:
                future.set_exception(error)
            else:
                self._is_free()

        if not self._submit(do):
            raise RuntimeError("The writer is closed.")
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Write everything that was taken, then end the thread. Blocks for as long as that takes."""
        with self._door:
            if not self._is_closed:
                self._is_closed = True
                self._orders.put(None)
        self._thread.join()

    def _submit(self, order: _Order) -> bool:
        with self._door:
            if not self._is_closed:
                self._orders.put(order)
            return not self._is_closed

    # --- On the writing thread ---

    def _work(self) -> None:
        order: _Order | None = _nothing
        while order is not None:
            order = self._next()
            try:
                self._follow_file()
                # A person waits for an order, nobody for a row that failed once: it is tried again afterwards.
                if order is None or self._retry_at is None:
                    self._write_rows()
                if order is not None:
                    order()
                if self._is_due():
                    self._write_rows()
            except Exception:
                logger.exception("writing to the database failed")
        if self._rows.close():
            self._warned_at = None
            self._warn("Splash ends")
        self._engine.dispose()

    def _next(self) -> _Order | None:
        wait_s = LOOK_EVERY_S
        if len(self._rows) and self._retry_at is not None:
            wait_s = min(wait_s, max(0.0, self._retry_at - time.monotonic()))
        try:
            return self._orders.get(timeout=wait_s)
        except queue.Empty:
            return _nothing

    def _write_rows(self) -> None:
        rows = self._rows.take()
        if not rows:
            return
        waited, self._retry_at = self._retry_at is not None, None
        try:
            self._insert(rows)
        except Exception as error:
            if _is_of_the_row(error):
                self._insert_each(rows)
            else:
                self._wait_with(rows, error)
        if waited and self._retry_at is None:
            logger.info("request rows written late rows=%d", len(rows))

    def _insert(self, rows: list[RequestRow]) -> None:
        values = [msgspec.structs.asdict(row) for row in rows]
        statement = insert(requests).on_conflict_do_nothing(index_elements=["id"])
        self._do(lambda connection: connection.execute(statement, values))

    def _insert_each(self, rows: list[RequestRow]) -> None:
        """So that one that can't be written does not take the others with it."""
        for position, row in enumerate(rows):
            try:
                self._insert([row])
            except Exception as error:
                if not _is_of_the_row(error):
                    self._wait_with(rows[position:], error)
                    return
                self._rows.lose(1)
                self._warn(cause_of(error))

    def _wait_with(self, rows: list[RequestRow], error: Exception) -> None:
        self._retry_at = time.monotonic() + self._retry_every_s
        self._rows.give_back(rows)
        self._warn(cause_of(error))

    def _warn(self, reason: str) -> None:
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            logger.warning(
                "request rows not written waiting=%d lost=%d reason=%s", len(self._rows), self.losses, reason
            )

    def _is_due(self) -> bool:
        return self._retry_at is None or time.monotonic() >= self._retry_at

    def _is_free(self) -> None:
        """The database took something, so it may take the rows that wait."""
        if self._retry_at is not None:
            self._retry_at = time.monotonic()

    def _follow_file(self) -> None:
        if self._file.is_in_place():
            self._is_lost = False
            return
        if self._is_lost and time.monotonic() < self._make_again_at:
            return
        self._make_again_at = time.monotonic() + self._retry_every_s
        if not self._is_lost:
            # Only once: it would connect again, to whatever is at the path then.
            put_aside(self._engine)
        try:
            self._file.remove_companions()
            engine = self._refilled(self._file.path)
            self._file = opened_at(self._file.path)
        except (DatabaseUnusable, SQLAlchemyError, OSError) as error:
            if not self._is_lost:
                logger.warning("database lost file=%s reason=%s", self._file.path, cause_of(error))
            self._is_lost = True
            return
        self._engine, self._is_lost = engine, False
        self._is_free()
        logger.warning("database was renamed or deleted, and is made again file=%s", self._file.path)

    def _refilled(self, path: Path) -> Engine:
        """Beside the path first: whoever reads, and whoever starts after a crash, finds a whole one or none."""
        if file_id(path) is None:
            made = path.with_name(f"{path.name}{UNFINISHED}")
            for left in (made, *companions_of(made)):
                left.unlink(missing_ok=True)
            self._refilled_in_place(made).dispose()
            made.replace(path)
            return open_database(path)
        return self._refilled_in_place(path)

    def _refilled_in_place(self, path: Path) -> Engine:
        engine = open_database(path)
        try:
            with engine.begin() as connection:
                for refill in self._refills:
                    refill(connection)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _do(self, job: Callable[[Connection], _Result]) -> _Result:
        if self._is_lost:
            raise DatabaseLost("the file was renamed or deleted, and another can't be made")
        with self._engine.begin() as connection:
            return job(connection)


def _nothing() -> None:
    """Only wakes the thread: rows wait."""


def _is_of_the_row(error: Exception) -> bool:
    """What fails before the database is asked (a number too large, text that is none) is the row's fault, too."""
    if isinstance(error, DBAPIError):
        return isinstance(error, ROW_FAULTS)
    return isinstance(error, StatementError) or not isinstance(error, (SQLAlchemyError, OSError))
