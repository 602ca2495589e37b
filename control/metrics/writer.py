"""The one thread that writes to splash.db, and its queue.

It never holds up a request. Entries that the database does not take wait, up to a limit, until it does; beyond that
they are counted as lost. The file itself, and what takes its place, is `place`'s.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from control.metrics import recording
from control.metrics.backlog import Backlog
from control.metrics.database import DatabaseBusy, cause_of
from control.metrics.opened_file import FileId
from control.metrics.place import Place, Refill
from control.metrics.plausible import is_plausible, plausible
from control.metrics.recording import Entry
from control.metrics.stretch import Stretch
from control.wire import DatabaseHealth

logger = logging.getLogger(__name__)

# Half a kilobyte each; an hour of a busy machine.
ROWS_LIMIT: Final = 10_000
RETRY_EVERY_S: Final = 2.0
# How soon a file that is gone is noticed while nothing is written; each write looks, too.
LOOK_EVERY_S: Final = 3.0
WARN_EVERY_S: Final = 10.0
# With BUSY_TIMEOUT_S nobody waits more than five seconds for an answer.
ORDER_BEGINS_WITHIN_S: Final = 3.0

# The entry itself can't be kept, whatever state the database is in.
ROW_FAULTS: Final = (IntegrityError, DataError, ProgrammingError, InterfaceError)

_Result = TypeVar("_Result")
_Order = Callable[[], None]


class Writer:
    """Takes the engine of `open_database`, and closes it. One transaction a job, in the order in which they came."""

    def __init__(
        self,
        engine: Engine,
        set_aside: str | None = None,
        *,
        from_copy: bool = False,
        rows_limit: int = ROWS_LIMIT,
        retry_every_s: float = RETRY_EVERY_S,
    ) -> None:
        """`set_aside`, `from_copy`: as in `place.Opened`."""
        self._place = Place(engine, set_aside, from_copy=from_copy, retry_every_s=retry_every_s)
        self._rows = Backlog(rows_limit)
        self._retry_every_s = retry_every_s
        self._retry_at: float | None = None
        self._warned_at: float | None = None
        self._problem: str | None = None
        # None is the end, and nothing comes after it.
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._is_closed = False
        self._door = threading.Lock()
        # A daemon: a control that ends by a fault must not wait for an order that never comes.
        self._thread = threading.Thread(target=self._work, name="metrics-writer", daemon=True)
        self._thread.start()

    @property
    def losses(self) -> int:
        """Rows of requests and stretches since the start that will never be written."""
        return self._rows.losses

    @property
    def health(self) -> DatabaseHealth:
        """A row that is about to be written does not wait: nothing waits without a problem."""
        problem = self._problem
        return DatabaseHealth(
            waiting_rows=0 if problem is None else self._rows.num_unwritten,
            lost_rows=self.losses,
            problem=problem,
            set_aside=self._place.set_aside,
            from_copy=self._place.from_copy,
        )

    def refill_with(self, refill: Refill) -> None:
        """`refill` puts what its owner has in memory into a file that took the place of a lost one, on this thread."""
        self._place.refill_with(refill)

    def record(self, entry: Entry) -> None:
        """Write an ended request, the same id twice as one row, or a stretch. Returns at once. Lost after `close`.

        Counts that no request can have are cut, and a stretch that has such a count is lost.
        """
        if isinstance(entry, Stretch) and not is_plausible(entry):
            self._rows.lose(1)
            logger.warning("stretch not written tokens=%d context_tokens=%d", entry.tokens, entry.context_tokens)
        elif self._rows.add(entry if isinstance(entry, Stretch) else plausible(entry)):
            self._submit(_nothing)
        else:
            self._warn("Splash ends")

    async def write(self, job: Callable[[Connection], _Result]) -> _Result:
        """Do `job` in a transaction; return when it is on disk. Raises what it raises, and RuntimeError when closed.

        DatabaseBusy, when it can't be begun in time; then it is never done.
        """
        return await self._done(lambda: self._place.change(job), begins_within_s=ORDER_BEGINS_WITHIN_S)

    async def begin_anew(self, file: FileId | None, reason: str) -> None:
        """Who reads found damage in `file`: when this returns, another is in its place. Raises DatabaseLost."""
        await self._done(lambda: self._place.begin_anew(file, reason))

    async def truncate_wal(self) -> None:
        """Put what is beside the file into it, and give the disk back. Raises SQLAlchemyError, sqlite3.Error."""
        await self._done(self._place.truncate_wal)

    def close(self) -> None:
        """Write everything that was taken, then end the thread. Blocks for as long as that takes."""
        with self._door:
            if not self._is_closed:
                self._is_closed = True
                self._orders.put(None)
        self._thread.join()

    async def _done(self, act: Callable[[], _Result], *, begins_within_s: float | None = None) -> _Result:
        future: Future[_Result] = Future()

        def do() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(act())
            except BaseException as error:
                future.set_exception(error)
            else:
                self._is_free()

        if not self._submit(do):
            raise RuntimeError("The writer is closed.")
        done = asyncio.wrap_future(future)
        try:
            await asyncio.wait((done,), timeout=begins_within_s)
        except asyncio.CancelledError:
            done.cancel()
            raise
        # What was begun can't be cancelled, and ends by itself.
        if not done.done() and future.cancel():
            raise DatabaseBusy(f"the order was not begun within {begins_within_s:g} s")
        return await done

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
                if self._place.follow():
                    self._is_free()
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
        self._place.close()

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
        if self._retry_at is None:
            self._rows.written()
            self._problem = None
            if waited:
                logger.info("rows written late rows=%d", len(rows))

    def _insert(self, entries: list[Entry]) -> None:
        self._place.run(lambda connection: recording.record(connection, entries))

    def _insert_each(self, entries: list[Entry]) -> None:
        """So that one that can't be written does not take the others with it."""
        for position, entry in enumerate(entries):
            try:
                self._insert([entry])
            except Exception as error:
                if not _is_of_the_row(error):
                    self._wait_with(entries[position:], error)
                    return
                self._rows.lose(1)
                self._warn(cause_of(error))

    def _wait_with(self, entries: list[Entry], error: Exception) -> None:
        self._retry_at = time.monotonic() + self._retry_every_s
        self._problem = cause_of(error)
        self._rows.give_back(entries)
        self._warn(cause_of(error))

    def _warn(self, reason: str) -> None:
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            logger.warning("rows not written waiting=%d lost=%d reason=%s", len(self._rows), self.losses, reason)

    def _is_due(self) -> bool:
        return self._retry_at is None or time.monotonic() >= self._retry_at

    def _is_free(self) -> None:
        """The database took something, so it may take the rows that wait."""
        if self._retry_at is not None:
            self._retry_at = time.monotonic()


def _nothing() -> None:
    """Only wakes the thread: rows wait."""


def _is_of_the_row(error: Exception) -> bool:
    """What fails before the database is asked (a number too large, text that is none) is the row's fault, too."""
    if isinstance(error, DBAPIError):
        return isinstance(error, ROW_FAULTS)
    return isinstance(error, StatementError) or not isinstance(error, (SQLAlchemyError, OSError))
