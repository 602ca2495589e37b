"""What a damaged splash.db is told by, and where it goes: aside, under a dated name, with its two companions.

It reads no rows: `salvage` takes over what can still be read.
"""

import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy.exc import DBAPIError

from control.errors import DatabaseUnusable
from control.metrics.opened_file import COMPANIONS

# A page ends before it should: the file was cut. Python names the primary codes only from 3.11 on, this one too.
DAMAGE: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
CUT_OFF: Final = sqlite3.SQLITE_IOERR_SHORT_READ
PRIMARY_CODE: Final = 0xFF
# Checking all of it takes a tenth of a second; of a larger one the tables without which nothing starts are checked.
# Source: benchmarks/metrics_store.py.
CHECKED_WHOLE_BYTES: Final = 64 * 2**20
NEEDED_AT_START: Final = ("alembic_version", "keys", "settings")


class Cursor(Protocol):
    """The part of a driver's cursor that is needed here."""

    def execute(self, operation: str, /) -> object: ...

    def fetchone(self) -> Any: ...


class DatabaseDamaged(DatabaseUnusable):
    """What is in the file is not what SQLite wrote. Another can take its place."""


def is_damage(error: BaseException) -> bool:
    """Whether the file is at fault, and not its disk, its rights or its users. Of SQLite's, SQLAlchemy's and ours."""
    if isinstance(error, DatabaseDamaged):
        return True
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    return code is not None and (code & PRIMARY_CODE in DAMAGE or code == CUT_OFF)


def check(cursor: Cursor, size_bytes: int) -> None:
    """As much of it as is quick. Raises DatabaseDamaged or sqlite3.DatabaseError with what was found first."""
    if size_bytes <= CHECKED_WHOLE_BYTES:
        _check(cursor, "PRAGMA quick_check(1)")
        return
    for table in NEEDED_AT_START:
        _check(cursor, f"PRAGMA quick_check({table})")


def move_aside(path: Path, *, now_s: float) -> Path:
    """Nobody has it open for writing any more. Where it is now; the place of its companions is beside it as before.

    Raises OSError.
    """
    aside = name_aside(path, now_s=now_s)
    # The companions first: a new file under the old name must not meet them.
    for suffix in COMPANIONS:
        left = Path(f"{path}{suffix}")
        if left.exists():
            left.rename(f"{aside}{suffix}")
    path.rename(aside)
    return aside


def name_aside(path: Path, *, now_s: float) -> Path:
    """Of this moment, in local time, and not taken. Raises FileExistsError when all are."""
    dated = f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now_s))}"
    for name in (dated, *(f"{dated}-{number}" for number in range(2, 100))):
        aside = path.with_name(name)
        if not aside.exists():
            return aside
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), dated)


def _check(cursor: Cursor, pragma: str) -> None:
    cursor.execute(pragma)
    found = cursor.fetchone()
    if found is not None and found[0] != "ok":
        raise DatabaseDamaged(" ".join(str(found[0]).split()))
