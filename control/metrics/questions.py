"""The one thread that reads splash.db: every question to it is asked here, so that none holds up the event loop.

Questions about one subject are in files of their own; here are those that control itself needs. It writes nothing, and
knows nothing of requests that still run.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, and_, func, or_, select
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from control.admin.errors import QuestionTooLong
from control.metrics.damage import DatabaseDamaged, check, is_damage
from control.metrics.database import cause_of
from control.metrics.local_day import local_day, midnight_days_before_s
from control.metrics.opened_file import FileId, opened_at
from control.metrics.tables import daily_requests, keys, requests
from control.wire import KeyUsage, Today

QUESTION_TIMEOUT_S: Final = 10.0
# Steps of SQLite's machine between two looks at the clock: a few tenths of a millisecond.
STEPS_BETWEEN_LOOKS: Final = 10_000
# More than a day can have; a float and a JSON number are exact up to there.
TOKENS_LIMIT: Final = 2**53
CHECK_EVERY_S: Final = 3600.0

_Answer = TypeVar("_Answer")
BeginAnew = Callable[[FileId | None, str], Awaitable[None]]


class Questions:
    """Takes the engine of `open_for_reading`, and closes it. Each raises SQLAlchemyError or TimeoutError.

    `begin_anew` is the writer's: a question that meets damage is asked again of the file that takes the place.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        begin_anew: BeginAnew | None = None,
    ) -> None:
        self._engine = engine
        self._wall = wall
        self._begin_anew = begin_anew
        self._file = opened_at(Path(engine.url.database or ""))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-reader")
        self._monotonic = monotonic
        # Whoever opened it for writing has just checked it.
        self._check_at = monotonic() + CHECK_EVERY_S

    async def today(self) -> Today:
        """Of the local day; what was turned away at the door is not counted."""
        day = local_day(self._wall())
        return await self.ask(lambda connection: _totals(connection, day))

    async def usage_by_day(self) -> dict[float, dict[int, KeyUsage]]:
        """By the midnight at which a day began, and the key's id: today, yesterday, and days that are still to come.

        Those have rows when the clock was ahead, or when it is behind now. Without a request nothing is there.
        """
        since_s = midnight_days_before_s(self._wall(), 1)
        return await self.ask(lambda connection: _usage_by_day(connection, since_s))

    async def last_number(self) -> int:
        """The highest request number so far, 0 before the first."""
        statement = select(func.coalesce(func.max(requests.c.number), 0))
        return await self.ask(lambda connection: connection.execute(statement).scalar_one())

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._engine.dispose()

    async def ask(self, question: Callable[[Connection], _Answer], *, limit_s: float = QUESTION_TIMEOUT_S) -> _Answer:
        """What `question` finds, in one read transaction: it may only read, and must be quick, for others wait.

        Raises QuestionTooLong when SQLite has worked on it for `limit_s`.
        """
        async with asyncio.timeout(QUESTION_TIMEOUT_S):
            try:
                return await self._asked(question, limit_s)
            except (SQLAlchemyError, sqlite3.Error, UnicodeDecodeError, DatabaseDamaged) as error:
                if self._begin_anew is None or not is_damage(error):
                    raise
                # Shielded: that this one no longer waits must not leave a damaged file in place.
                await asyncio.shield(self._begin_anew(self._file.id, cause_of(error)))
            return await self._asked(question, limit_s)

    async def _asked(self, question: Callable[[Connection], _Answer], limit_s: float) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, question, limit_s)

    def _answer(self, question: Callable[[Connection], _Answer], limit_s: float) -> _Answer:
        self._follow_file()
        with self._engine.begin() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection), "the driver of SQLite"
            self._check(connection)
            deadline = time.monotonic() + limit_s
            driver.set_progress_handler(lambda: time.monotonic() >= deadline, STEPS_BETWEEN_LOOKS)
            try:
                return question(connection)
            except (OperationalError, sqlite3.OperationalError) as error:
                # The driver's own come from a question that asks the driver.
                if getattr(getattr(error, "orig", error), "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                    raise QuestionTooLong from error
                raise
            finally:
                driver.set_progress_handler(None, 0)

    def _check(self, connection: Connection) -> None:
        """Once an hour, as at the start, and as quick: else damage is found when somebody needs it. DatabaseDamaged."""
        if self._begin_anew is None or self._monotonic() < self._check_at:
            return
        self._check_at = self._monotonic() + CHECK_EVERY_S
        cursor = connection.connection.cursor()
        try:
            check(cursor, self._file.path.stat().st_size)
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            if is_damage(error):
                raise DatabaseDamaged(cause_of(error)) from error
        finally:
            cursor.close()

    def _follow_file(self) -> None:
        """When the writer made another file, this is asked from now on; until then the old one still answers."""
        if self._file.is_in_place():
            return
        found = opened_at(self._file.path)
        if found.id is not None:
            self._engine.dispose()
            self._file = found


def _totals(connection: Connection, day: str) -> Today:
    columns = daily_requests.c
    names = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
    sums = (func.coalesce(func.sum(columns[name]), 0) for name in names)
    row = connection.execute(select(*sums).where(columns.day == day)).one()
    num_requests, prompt_tokens, cached_tokens, completion_tokens = row
    return Today(
        requests=num_requests,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        completion_tokens=completion_tokens,
        hit_rate=cached_tokens / prompt_tokens if prompt_tokens else None,
    )


def _usage_by_day(connection: Connection, since_s: float) -> dict[float, dict[int, KeyUsage]]:
    # A row has the key's name only, and a name can have been another key's, before: so the key's life counts, too.
    is_of_key = and_(
        requests.c.key == keys.c.name,
        requests.c.started_at_s >= keys.c.created_at_s,
        or_(keys.c.revoked_at_s.is_(None), requests.c.started_at_s < keys.c.revoked_at_s),
    )
    day = func.date(requests.c.started_at_s, "unixepoch", "localtime")
    # `total` is a float: counts that no engine can mean must not stop the start by an overflow.
    tokens = func.total(requests.c.prompt_tokens) + func.total(requests.c.completion_tokens)
    rows = connection.execute(
        select(day, keys.c.id, func.count(), tokens)
        .join_from(keys, requests, is_of_key)
        .where(requests.c.started_at_s >= since_s, requests.c.outcome != "rejected")
        .group_by(day, keys.c.id)
    )
    found: dict[float, dict[int, KeyUsage]] = {}
    for date, key_id, num_requests, num_tokens in rows:
        if date is None:
            continue  # a time that is in no calendar
        usage = KeyUsage(requests=num_requests, tokens=int(min(num_tokens, TOKENS_LIMIT)))
        found.setdefault(datetime.fromisoformat(date).timestamp(), {})[key_id] = usage
    return found
