"""Opens splash.db: private to its owner, in WAL mode, migrated to the newest revision; once to write, once to read.

It holds no rows and answers no questions.
"""

import contextlib
import os
import re
import sqlite3
from pathlib import Path
from typing import Final, Literal

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from control.errors import DatabaseUnusable
from control.metrics.damage import HEADER_BYTES, PRIMARY_CODE, DatabaseDamaged, check, is_damage, require_header
from control.metrics.tables import SCHEMA_REVISION, metadata

# Whoever waits for an order waits for one such wait of somebody else, and for its own.
BUSY_TIMEOUT_S: Final = 2.0
MIGRATIONS: Final = Path(__file__).parent / "migrations"
REVISION: Final = re.compile("[0-9]{4}")


class DatabaseLost(SQLAlchemyError):
    """The file was renamed, deleted or damaged, and another could not be made in its place yet."""


class DatabaseBusy(SQLAlchemyError):
    """An order was not begun in time, and never will be: others hold the database."""


def open_database(path: Path) -> Engine:
    """Create and migrate the file; the answer begins each transaction IMMEDIATE. Raises DatabaseUnusable.

    DatabaseDamaged, when another may take its place. A migration is one transaction: done wholly, or not at all.
    """
    engine = None
    try:
        # SQLite gives -wal and -shm the mode of the file itself.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
        with path.open("rb") as file:
            require_header(file.read(HEADER_BYTES))
        engine = _engine(path, begin="BEGIN IMMEDIATE", pragmas=("journal_mode = WAL", "synchronous = NORMAL"))
        with engine.begin() as connection:
            _migrate(connection, path)
            _require_form(connection)
        _check(engine, path)
    except (OSError, sqlite3.Error, SQLAlchemyError, UnicodeDecodeError, DatabaseUnusable) as error:
        if engine is not None:
            engine.dispose()
        raise _unusable(path, error) from error
    return engine


def open_for_reading(path: Path) -> Engine:
    return _engine(path, begin="BEGIN", pragmas=("query_only = ON",))


def checkpoint(engine: Engine, mode: Literal["PASSIVE", "TRUNCATE"]) -> None:
    """Put into the file what is only beside it, as far as no reader needs it there; outside of a transaction."""
    connection = engine.raw_connection()
    try:
        connection.cursor().execute(f"PRAGMA wal_checkpoint({mode})")
    finally:
        connection.close()


def put_aside(engine: Engine) -> None:
    """Let go of a file that was renamed; what is not in it yet, but beside it, is put into it first."""
    with contextlib.suppress(sqlite3.Error, SQLAlchemyError):
        checkpoint(engine, "PASSIVE")
    engine.dispose()


def is_busy(error: BaseException) -> bool:
    """Whether others hold the database: the same order can do a moment later."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return isinstance(error, DatabaseBusy) or (code is not None and code & PRIMARY_CODE == sqlite3.SQLITE_BUSY)


def cause_of(error: Exception) -> str:
    """On one line, and without the statement and its values, which SQLAlchemy adds."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def _check(engine: Engine, path: Path) -> None:
    connection = engine.raw_connection()
    try:
        check(connection.cursor(), path.stat().st_size)
    finally:
        connection.close()


def _unusable(path: Path, error: Exception) -> DatabaseUnusable:
    if is_damage(error):
        return DatabaseDamaged(f"The database {path} cannot be used: {cause_of(error)}.")
    if isinstance(error, DatabaseUnusable):
        return error
    return DatabaseUnusable(f"The database {path} cannot be used: {cause_of(error)}.")


def _engine(path: Path, *, begin: str, pragmas: tuple[str, ...]) -> Engine:
    # Each engine is used by one thread only, so one connection is enough, and it stays open.
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        pool_size=1,
        max_overflow=0,
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver must not begin transactions by itself: `begin` below does.
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _migrate(connection: Connection, path: Path) -> None:
    revision = _revision(connection)
    if revision == SCHEMA_REVISION:
        return
    if not _can_be(revision, connection):
        raise DatabaseDamaged(f"The database {path} cannot be used: its revision is {revision!r}.")
    # Imported only when there is something to do: it costs more than everything else here.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise DatabaseUnusable(f"The database {path} was written by a newer Splash (revision {revision}).")
    command.upgrade(config, "head")


def _can_be(revision: str | None, connection: Connection) -> bool:
    """Whether a Splash can have written it. None is a file in which none has written yet."""
    if revision is None:
        return not set(inspect(connection).get_table_names()) & metadata.tables.keys()
    return REVISION.fullmatch(revision) is not None


def _require_form(connection: Connection) -> None:
    """Raises DatabaseDamaged. A damaged schema can be one that SQLite takes, with other names."""
    names = set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())
    for table in metadata.tables.values():
        columns = {column.name for column in connection.exec_driver_sql(f"PRAGMA table_info({table.name})")}
        if not (columns >= set(table.columns.keys()) and names >= {index.name for index in table.indexes}):
            raise DatabaseDamaged(f"the table {table.name} is not as it was made")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
