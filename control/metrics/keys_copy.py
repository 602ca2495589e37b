"""A copy of keys and settings in a small file beside splash.db: what a start takes when the database is damaged.

It holds what the two tables hold, so of a key its digest only. While the database can be read nobody reads it.
"""

import logging
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import SQLAlchemyError

from control.command_errors import HomeUnusable
from control.home import write_whole
from control.metrics.database import cause_of
from control.metrics.tables import keys, settings

logger = logging.getLogger(__name__)

# SQLite keeps 64 bits.
_Whole = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class KeptKey(msgspec.Struct, frozen=True):
    """The columns of the table."""

    id: _Whole
    name: str
    request_class: str
    hint: str
    sha256: bytes
    created_at_s: float
    revoked_at_s: float | None = None
    max_in_flight: _Whole | None = None
    requests_per_day: _Whole | None = None
    tokens_per_day: _Whole | None = None


class Kept(msgspec.Struct, frozen=True):
    """`settings`: JSON by name, as in the table."""

    keys: tuple[KeptKey, ...]
    settings: dict[str, str]


def copy_of(database: Path) -> Path:
    return database.with_name(f"{database.stem}-keys.json")


def rows_of(connection: Connection) -> dict[str, Any]:
    """What there is to copy, as it is in the tables. Raises SQLAlchemyError."""
    # SQLAlchemy's names are not quite str, and msgspec asks for that.
    rows = connection.execute(select(keys).order_by(keys.c.id)).mappings().all()
    return {
        "keys": [{str(name): value for name, value in row.items()} for row in rows],
        "settings": {row.name: row.value for row in connection.execute(select(settings))},
    }


def keep(rows: dict[str, Any], database: Path) -> None:
    """Written when it is another than before. What can't be written is logged: the database has it."""
    file = copy_of(database)
    try:
        content = _ENCODER.encode(msgspec.convert(rows, Kept))
        if _content_of(file) != content:
            write_whole(file, content)
    except (msgspec.ValidationError, HomeUnusable, OSError) as error:
        logger.warning("copy of keys and settings not written file=%s reason=%s", file, error)


def keep_at_start(engine: Engine, database: Path) -> None:
    """It may be missing, or older than the database."""
    try:
        with engine.begin() as connection:
            rows = rows_of(connection)
    except SQLAlchemyError as error:
        logger.warning("copy of keys and settings not written reason=%s", cause_of(error))
        return
    keep(rows, database)


def take_over(connection: Connection, database: Path) -> None:
    """What `connection`'s tables lack; what they have stays, but a key that is revoked in either is revoked."""
    file = copy_of(database)
    try:
        content = _content_of(file)
        kept = None if content is None else msgspec.json.decode(content, type=Kept)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        logger.warning("copy of keys and settings can't be read file=%s reason=%s", file, error)
        return
    if kept is None:
        return
    # Before the others: an active key of the same name may be among those.
    for key in kept.keys:
        if key.revoked_at_s is not None:
            is_active = (keys.c.sha256 == key.sha256) & keys.c.revoked_at_s.is_(None)
            connection.execute(update(keys).where(is_active).values(revoked_at_s=key.revoked_at_s))
    rows = [msgspec.structs.asdict(key) for key in kept.keys]
    num_keys = sum(connection.execute(insert(keys).values(row).on_conflict_do_nothing()).rowcount for row in rows)
    texts = [{"name": name, "value": value} for name, value in kept.settings.items()]
    num_settings = sum(
        connection.execute(insert(settings).values(text).on_conflict_do_nothing()).rowcount for text in texts
    )
    logger.warning("taken from the copy file=%s keys=%d settings=%d", file, num_keys, num_settings)


def _content_of(file: Path) -> bytes | None:
    """None when there is none. Raises OSError."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
