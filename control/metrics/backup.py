"""Copies splash.db, as it is at one moment, into a file of its own, while Splash serves or not.

A copy has its name only once it is whole, checked and on disk. It never takes the place of a file, and removes none.
"""

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from control.metrics.database import BUSY_TIMEOUT_S, cause_of
from control.wire import Backup

FOLDER: Final = "backups"
# 16 MiB: between two steps the copy can be interrupted, and the interpreter goes on during each.
PAGES_A_STEP: Final = 4096


class BackupImpossible(Exception):
    """`str(error)` is one sentence for a person."""


class BackupExists(BackupImpossible):
    """There is a file of that name."""


def dated_name(now_s: float) -> str:
    """In local time, as a person will look for it."""
    return time.strftime("splash-%Y%m%d-%H%M%S.db", time.localtime(now_s))


def back_up(database: Path, to: Path) -> Backup:
    """It blocks for as long as it takes, and holds up no writer. Of folders only `backups` beside the database is made.

    Raises BackupExists, BackupImpossible.
    """
    began_at = time.monotonic()
    if not database.exists():
        raise BackupImpossible(f"There is no database {database} yet.")
    try:
        if os.path.lexists(to):
            raise BackupExists(f"{to} is there already; a backup takes the place of nothing.")
        if to.parent == database.parent / FOLDER:
            to.parent.mkdir(mode=0o700, exist_ok=True)
        elif not to.parent.exists():
            raise BackupImpossible(f"There is no folder {to.parent}, so no backup was made; make it first.")
        with _unnamed_beside(to) as unnamed:
            num_requests = _copy(database, unnamed)
            _require_sound(unnamed)
            _name(unnamed, to)
            size_bytes = to.stat().st_size
    except FileExistsError as error:
        raise BackupExists(f"{to} is there already; a backup takes the place of nothing.") from error
    except OSError as error:
        raise BackupImpossible(f"No backup was made at {to}: {error.strerror}.") from error
    except sqlite3.Error as error:
        raise BackupImpossible(f"No backup was made at {to}: {cause_of(error)}.") from error
    seconds = time.monotonic() - began_at
    return Backup(path=str(to), size_bytes=size_bytes, seconds=seconds, requests=num_requests)


@contextmanager
def _unnamed_beside(to: Path) -> Iterator[Path]:
    """An empty file, 0600 by mkstemp, that is gone afterwards unless it got a name."""
    handle, name = tempfile.mkstemp(dir=to.parent, prefix=f".{to.name}.")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        for left in (name, f"{name}-journal", f"{name}-wal", f"{name}-shm"):
            Path(left).unlink(missing_ok=True)


def _copy(database: Path, unnamed: Path) -> int:
    """How many request rows it has."""
    with (
        closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as source,
        closing(sqlite3.connect(unnamed, isolation_level=None)) as target,
    ):
        source.execute("PRAGMA query_only = ON")
        # One view of it from here on: each write of others would else make the copy begin again.
        source.execute("BEGIN")
        (num_requests,) = source.execute("SELECT count(*) FROM requests").fetchone()
        source.backup(target, pages=PAGES_A_STEP)
        # One file, that a program can also open where it may not write.
        target.execute("PRAGMA journal_mode = DELETE")
    return int(num_requests)


def _require_sound(unnamed: Path) -> None:
    with closing(sqlite3.connect(unnamed)) as copy:
        (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise BackupImpossible(f"No backup was made: the copy is damaged, and so may be the database ({found}).")


def _name(unnamed: Path, to: Path) -> None:
    """Raises FileExistsError when somebody was faster."""
    with unnamed.open("rb") as file:
        os.fsync(file.fileno())
    # The name is taken first: a rename alone would replace what is there.
    os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        unnamed.replace(to)
    except BaseException:
        to.unlink(missing_ok=True)
        raise
    folder = os.open(to.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
