"""Settings that a person changes while Splash runs: JSON values by name, in memory, and on disk for the next start.

It gives no setting a meaning or a default; who reads one does.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, select
from sqlalchemy.dialects.sqlite import insert

from control.metrics.tables import settings
from control.metrics.writer import Writer

logger = logging.getLogger(__name__)

Kind = TypeVar("Kind")


class Settings:
    """Made by `load_settings`. Reading never touches the disk."""

    def __init__(self, values: dict[str, Any], writer: Writer) -> None:
        self._values = values
        self._writer = writer
        # Between reading what is changed and the change in force lies the disk: one change at a time.
        self._changing = asyncio.Lock()

    def get(self, name: str, kind: type[Kind]) -> Kind | None:
        """None when it was never set, and when what is there is not of that kind: anybody can write to the file."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            logger.warning("setting ignored name=%s reason=%s", name, error)
            return None

    async def put(self, name: str, value: Any) -> None:
        """What Splash itself remembers: in memory at once, on disk when this returns.

        `value` is anything that JSON can hold.
        """
        self._values[name] = value
        await self._write(name, value)

    async def change(self, name: str, newest: Callable[[], Kind], *, in_force: Callable[[Kind], None]) -> None:
        """What a person chooses: on disk first, then in memory and in force; not at all when the disk does not take it.

        `newest` is asked when it is this change's turn, so that it can go on from the one before.
        """
        # Of its own, so that one who no longer waits can't leave it on disk and not in force.
        await asyncio.shield(asyncio.create_task(self._change(name, newest, in_force)))

    async def _change(self, name: str, newest: Callable[[], Kind], in_force: Callable[[Kind], None]) -> None:
        async with self._changing:
            value = newest()
            await self._write(name, value)
            self._values[name] = msgspec.to_builtins(value)
            in_force(value)

    async def _write(self, name: str, value: Any) -> None:
        await self._writer.write(lambda connection: _store(connection, name, value))

    def refill(self, connection: Connection) -> None:
        """Into a database that took the place of a lost one. On the writing thread."""
        for name, value in tuple(self._values.items()):
            _store(connection, name, value)


def load_settings(engine: Engine, writer: Writer) -> Settings:
    """Once, at start, before the event loop serves anybody: it blocks."""
    with engine.begin() as connection:
        found = Settings(_read(connection), writer)
    writer.refill_with(found.refill)
    return found


def _store(connection: Connection, name: str, value: Any) -> None:
    text = msgspec.json.encode(value).decode()
    statement = insert(settings).values(name=name, value=text)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": text}))


def _read(connection: Connection) -> dict[str, Any]:
    values = {}
    for row in connection.execute(select(settings)):
        try:
            value = msgspec.json.decode(row.value)
        except (msgspec.DecodeError, TypeError, RecursionError) as error:
            logger.warning("setting ignored name=%s reason=%s", row.name, error)
            continue
        # Splash writes none.
        if value is None:
            logger.warning("setting ignored name=%s reason=null", row.name)
        else:
            values[row.name] = value
    return values
