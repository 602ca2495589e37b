"""A copy of keys and settings in a small file beside splash.db: what a start takes when the database is damaged.

It holds what the two tables hold, so of a key its digest only. While the database can be read, only what is revoked
counts: an earlier database that somebody puts back makes no key valid again.
"""

import logging
import time
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
    """Written when it is another than before. What can't be written is logged: the database has it.

    One that has keys which the new one has not is kept beside it.
    """
    file = copy_of(database)
    try:
        kept, former = msgspec.convert(rows, Kept), _content_of(file)
        content = _ENCODER.encode(kept)
        if former == content:
            return
        if former and (num_lost := _num_lost(former, kept)) != 0:
            aside = _name_of_former(file, time.time())
            if not aside.exists():
                write_whole(aside, former)
            logger.warning("copy of keys kept, the database lacks some file=%s lost=%s", aside, num_lost or "unknown")
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


def kept_of(database: Path) -> Kept | None:
    """None when there is no copy, it can't be read, or nothing is in it."""
    file = copy_of(database)
    try:
        content = _content_of(file)
        kept = None if content is None else msgspec.json.decode(content, type=Kept)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        logger.warning("copy of keys and settings can't be read file=%s reason=%s", file, error)
        return None
    return kept if kept is not None and (kept.keys or kept.settings) else None


def revoke_again(engine: Engine, database: Path) -> None:
    """Keys that the copy knows as revoked and the database as valid: somebody has put an earlier database here.

    What can't be read or written is logged.
    """
    kept = kept_of(database)
    if kept is None:
        return
    try:
        with engine.begin() as connection:
            names = _revoke(connection, kept)
    except SQLAlchemyError as error:
        logger.error("keys of an earlier database not revoked reason=%s", cause_of(error))
        return
    if names:
        logger.warning("keys revoked again, which an earlier database has as valid names=%r", names)


def take_over(connection: Connection, database: Path) -> bool:
    """What `connection`'s tables lack; what they have stays, but a key that is revoked in either is revoked.

    Whether there was anything.
    """
    file, kept = copy_of(database), kept_of(database)
    if kept is None:
        return False
    # Before the others: an active key of the same name may be among those.
    _revoke(connection, kept)
    num_keys = sum(_take(connection, key) for key in kept.keys)
    texts = [{"name": name, "value": value} for name, value in kept.settings.items()]
    num_settings = sum(
        connection.execute(insert(settings).values(text).on_conflict_do_nothing()).rowcount for text in texts
    )
    logger.warning("taken from the copy file=%s keys=%d settings=%d", file, num_keys, num_settings)
    return True


def _take(connection: Connection, key: KeptKey) -> int:
    """How many keys more are good, 1 or 0. A damaged file may have this one's row with another digest: no key has that.

    Two of number, time and name tell that it is the same; another key that has the number keeps it.
    """
    row = msgspec.structs.asdict(key)
    is_known = select(keys.c.id).where(keys.c.sha256 == key.sha256)
    if connection.execute(is_known).first() is not None:
        return 0
    has_number, has_time = keys.c.id == key.id, keys.c.created_at_s == key.created_at_s
    has_name = (keys.c.name == key.name) & keys.c.revoked_at_s.is_(None)
    is_same = (has_number & has_time) | (has_number & has_name) | (has_time & has_name)
    if connection.execute(update(keys).where(is_same).values(sha256=key.sha256)).rowcount:
        return 1
    if connection.execute(select(keys.c.id).where(keys.c.id == key.id)).first() is not None:
        del row["id"]
    return connection.execute(insert(keys).values(row).on_conflict_do_nothing()).rowcount


def _num_lost(former: bytes, kept: Kept) -> int | None:
    """How many keys of the former copy are in the new one no more; None when it can't be read."""
    try:
        were = msgspec.json.decode(former, type=Kept).keys
    except (msgspec.DecodeError, RecursionError):
        return None
    return len({key.sha256 for key in were} - {key.sha256 for key in kept.keys})


def _name_of_former(file: Path, now_s: float) -> Path:
    """Of this moment, in local time. The same second's keep the first: it has the most keys."""
    return file.with_name(f"{file.name}.former-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now_s))}")


def _revoke(connection: Connection, kept: Kept) -> list[str]:
    """In the table, too, what is revoked in the copy; the names of those that were valid there."""
    names = []
    for key in kept.keys:
        if key.revoked_at_s is not None:
            is_active = (keys.c.sha256 == key.sha256) & keys.c.revoked_at_s.is_(None)
            if connection.execute(update(keys).where(is_active).values(revoked_at_s=key.revoked_at_s)).rowcount:
                names.append(key.name)
    return names


def _content_of(file: Path) -> bytes | None:
    """None when there is none. Raises OSError."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
