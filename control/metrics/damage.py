"""What a damaged splash.db is told by, and where it goes: aside, under a dated name, with its two companions.

It reads no rows: `salvage` takes over what can still be read.
"""

import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy.exc import StatementError

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
HEADER_BYTES: Final = 100
# The driver says so, without a code, of text that nobody can have written.
NO_TEXT: Final = "Could not decode to UTF-8"


class Cursor(Protocol):
    """The part of a driver's cursor that is needed here."""

    def execute(self, operation: str, /) -> object: ...

    def fetchone(self) -> Any: ...


class DatabaseDamaged(DatabaseUnusable):
    """What is in the file is not what SQLite wrote. Another can take its place."""


def is_damage(error: BaseException) -> bool:
    """Whether the file is at fault, and not its disk, its rights or its users. Of SQLite's, SQLAlchemy's and ours."""
    cause = error.orig if isinstance(error, StatementError) else error
    # The driver can't read what SQLite says when a name in the damaged schema is part of it.
    if isinstance(cause, (DatabaseDamaged, UnicodeDecodeError)):
        return True
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        return isinstance(cause, sqlite3.OperationalError) and str(cause).startswith(NO_TEXT)
    return code & PRIMARY_CODE in DAMAGE or code == CUT_OFF


def check(cursor: Cursor, size_bytes: int) -> None:
    """As much of it as is quick. Raises DatabaseDamaged or sqlite3.DatabaseError with what was found first.

    Also UnicodeDecodeError. Of the tables that a start needs the indexes are compared, too: a digest stands in both.
    """
    if size_bytes <= CHECKED_WHOLE_BYTES:
        _check(cursor, "PRAGMA quick_check(1)")
    for table in NEEDED_AT_START:
        _check(cursor, f"PRAGMA integrity_check({table})")


def require_header(header: bytes) -> None:
    """The first HEADER_BYTES of a file. Raises DatabaseDamaged for one that SQLite takes for a later version's.

    It then says that the file is read-only or not supported, and not that it is damaged. Format: sqlite.org/fileformat.
    """
    is_database = len(header) >= HEADER_BYTES and header.startswith(b"SQLite format 3\0")
    if is_database and (max(header[18:20]) > 2 or int.from_bytes(header[44:48]) > 4):
        raise DatabaseDamaged("its header is of no version of SQLite")


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
