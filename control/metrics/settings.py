"""Settings that a person changes while Splash runs: JSON values by name, in memory, and on disk for the next start.

It gives no setting a meaning or a default; who reads one does.
"""

import logging
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
        """In memory at once, on disk when this returns. `value` is anything that JSON can hold."""
        self._values[name] = value
        text = msgspec.json.encode(value).decode()
        statement = insert(settings).values(name=name, value=text)
        statement = statement.on_conflict_do_update(index_elements=["name"], set_={"value": text})
        await self._writer.write(lambda connection: connection.execute(statement))


def load_settings(engine: Engine, writer: Writer) -> Settings:
    """Once, at start, before the event loop serves anybody: it blocks."""
    with engine.begin() as connection:
        return Settings(_read(connection), writer)


def _read(connection: Connection) -> dict[str, Any]:
    values = {}
    for row in connection.execute(select(settings)):
        try:
            values[row.name] = msgspec.json.decode(row.value)
        except (msgspec.DecodeError, TypeError, RecursionError) as error:
            logger.warning("setting ignored name=%s reason=%s", row.name, error)
    return values
