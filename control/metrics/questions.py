"""The questions that the console asks of splash.db, answered on one reading thread, never on the event loop.

It writes nothing, and knows nothing of requests that still run.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, and_, func, or_, select

from control.metrics.local_day import local_midnight_s
from control.metrics.opened_file import opened_at
from control.metrics.tables import keys, requests
from control.wire import KeyUsage, RequestRow, Today

QUESTION_TIMEOUT_S: Final = 10.0

_Answer = TypeVar("_Answer")


class Questions:
    """Takes the engine of `open_for_reading`, and closes it. Each raises SQLAlchemyError or TimeoutError."""

    def __init__(self, engine: Engine, *, wall: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._wall = wall
        self._file = opened_at(Path(engine.url.database or ""))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-reader")

    async def recent_requests(self, limit: int) -> tuple[RequestRow, ...]:
        """Newest first."""
        statement = select(requests).order_by(requests.c.number.desc()).limit(limit)
        rows = await self._ask(lambda connection: connection.execute(statement).mappings().all())
        return tuple(RequestRow(**row) for row in rows)

    async def today(self) -> Today:
        """Since local midnight; what was turned away at the door is not counted."""
        since_s = local_midnight_s(self._wall())
        return await self._ask(lambda connection: _totals(connection, since_s))

    async def usage_by_key(self) -> dict[int, KeyUsage]:
        """Since local midnight, by the key's id; keys without a request that counts are left out."""
        since_s = local_midnight_s(self._wall())
        return await self._ask(lambda connection: _usage_by_key(connection, since_s))

    async def last_number(self) -> int:
        """The highest request number so far, 0 before the first."""
        statement = select(func.coalesce(func.max(requests.c.number), 0))
        return await self._ask(lambda connection: connection.execute(statement).scalar_one())

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._engine.dispose()

    async def _ask(self, question: Callable[[Connection], _Answer]) -> _Answer:
        async with asyncio.timeout(QUESTION_TIMEOUT_S):
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, question)

    def _answer(self, question: Callable[[Connection], _Answer]) -> _Answer:
        self._follow_file()
        with self._engine.begin() as connection:
            return question(connection)

    def _follow_file(self) -> None:
        """When the writer made another file, this is asked from now on; until then the old one still answers."""
        if self._file.is_in_place():
            return
        found = opened_at(self._file.path)
        if found.id is not None:
            self._engine.dispose()
            self._file = found


def _totals(connection: Connection, since_s: float) -> Today:
    columns = requests.c
    row = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(columns.prompt_tokens), 0),
            func.coalesce(func.sum(columns.cached_tokens), 0),
            func.coalesce(func.sum(columns.completion_tokens), 0),
        ).where(columns.started_at_s >= since_s, columns.outcome != "rejected")
    ).one()
    num_requests, prompt_tokens, cached_tokens, completion_tokens = row
    return Today(
        requests=num_requests,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        completion_tokens=completion_tokens,
        hit_rate=cached_tokens / prompt_tokens if prompt_tokens else None,
    )


def _usage_by_key(connection: Connection, since_s: float) -> dict[int, KeyUsage]:
    # A row has the key's name only, and a name can have been another key's, before: so the key's life counts, too.
    is_of_key = and_(
        requests.c.key == keys.c.name,
        requests.c.started_at_s >= keys.c.created_at_s,
        or_(keys.c.revoked_at_s.is_(None), requests.c.started_at_s < keys.c.revoked_at_s),
    )
    rows = connection.execute(
        select(keys.c.id, func.count(), func.sum(requests.c.prompt_tokens + requests.c.completion_tokens))
        .join_from(keys, requests, is_of_key)
        .where(requests.c.started_at_s >= since_s, requests.c.outcome != "rejected")
        .group_by(keys.c.id)
    )
    return {key_id: KeyUsage(requests=num_requests, tokens=tokens) for key_id, num_requests, tokens in rows}
