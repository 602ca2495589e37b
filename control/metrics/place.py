"""Where splash.db lies, for the writing thread: the file that is open, and another when that is gone or damaged.

A file that was renamed or deleted is made again; a damaged one is set aside, and what can be read of it comes over.
Keys and settings come from the memory of those who have them; at start, when nobody has, also from their copy. An empty
file beside such a copy is a damaged one, and no first start.
It has no thread and no queue.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import SQLAlchemyError

from control.errors import DatabaseUnusable
from control.metrics import keys_copy
from control.metrics.damage import DatabaseDamaged, is_damage, move_aside
from control.metrics.database import DatabaseLost, cause_of, checkpoint, open_database, put_aside
from control.metrics.opened_file import FileId, companions_of, file_id, has_log, opened_at
from control.metrics.salvage import KEYS_AND_SETTINGS, NUMBERS, salvage

logger = logging.getLogger(__name__)

UNFINISHED: Final = ".new"
# A disk that damages each file at once would else be filled with them.
ASIDE_EVERY_S: Final = 60.0

_Result = TypeVar("_Result")
Refill = Callable[[Connection], None]


@dataclass(frozen=True, slots=True)
class Opened:
    """`set_aside`: the name of the damaged file that `engine`'s took the place of; None: nothing was damaged.

    `from_copy`: there was no database, and keys and settings are those of their copy.
    """

    engine: Engine
    set_aside: str | None = None
    from_copy: bool = False


def open_or_begin_anew(path: Path, *, wall: Callable[[], float] = time.time) -> Opened:
    """At start, when nobody has anything in memory. Raises DatabaseUnusable, for damage only if the file must stay."""
    opened = _opened_or_begun_anew(path, wall)
    keys_copy.revoke_again(opened.engine, path)
    keys_copy.keep_at_start(opened.engine, path)
    return opened


class Place:
    """Used by one thread. `set_aside` and `from_copy` as in `Opened`, since control's start."""

    def __init__(
        self,
        engine: Engine,
        set_aside: str | None,
        *,
        from_copy: bool = False,
        retry_every_s: float,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.set_aside, self.from_copy = set_aside, from_copy
        self._engine = engine
        self._file = opened_at(Path(engine.url.database or ""))
        self._retry_every_s = retry_every_s
        self._wall = wall
        self._is_lost = False
        self._make_again_at = 0.0
        self._begin_anew_at = 0.0
        self._refills: list[Refill] = []

    def refill_with(self, refill: Refill) -> None:
        self._refills.append(refill)

    def run(self, job: Callable[[Connection], _Result]) -> _Result:
        """In a transaction; a second time, in a new file, when the first one finds damage. Raises what `job` raises."""
        try:
            return self._run(job)
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            if not is_damage(error):
                raise
            self._begin_anew(cause_of(error))
        return self._run(job)

    def change(self, job: Callable[[Connection], _Result]) -> _Result:
        """`run` one that may change keys or settings: then their copy is as they are."""
        result, rows = self.run(lambda connection: (job(connection), keys_copy.rows_of(connection)))
        keys_copy.keep(rows, self._file.path)
        return result

    def begin_anew(self, file: FileId | None, reason: str) -> None:
        """Somebody else found damage in `file`; nothing is to do when another is in its place. Raises DatabaseLost."""
        if file == self._file.id:
            self._begin_anew(reason)

    def truncate_wal(self) -> None:
        self._require_file()
        checkpoint(self._engine, "TRUNCATE")

    def follow(self) -> bool:
        """Whether a file that was gone has been made again just now."""
        if self._file.is_in_place():
            self._is_lost = False
            return False
        if self._is_lost and time.monotonic() < self._make_again_at:
            return False
        self._make_again_at = time.monotonic() + self._retry_every_s
        if not self._is_lost:
            # Only once: it would connect again, to whatever is at the path then.
            put_aside(self._engine)
        try:
            self._file.remove_companions()
            self._take_made_again()
        except (DatabaseUnusable, SQLAlchemyError, OSError) as error:
            if not self._is_lost:
                logger.warning("database lost file=%s reason=%s", self._file.path, cause_of(error))
            self._is_lost = True
            return False
        logger.warning("database was renamed or deleted, and is made again file=%s", self._file.path)
        return True

    def close(self) -> None:
        self._engine.dispose()

    def _run(self, job: Callable[[Connection], _Result]) -> _Result:
        self._require_file()
        with self._engine.begin() as connection:
            return job(connection)

    def _require_file(self) -> None:
        """To connect would make an empty one."""
        if self._is_lost:
            raise DatabaseLost("the file was renamed or deleted, and another can't be made")

    def _begin_anew(self, reason: str) -> None:
        """Raises DatabaseLost."""
        if time.monotonic() < self._begin_anew_at:
            raise DatabaseLost(f"the file is damaged ({reason}), and another can't be made yet")
        self._begin_anew_at = time.monotonic() + self._retry_every_s
        path = self._file.path
        self._engine.dispose()
        try:
            aside = _put_in_place_of_damaged(path, NUMBERS, self._refills, reason, now_s=self._wall())
            self._take(open_database(path))
        except (DatabaseUnusable, SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise DatabaseLost(
                f"the file is damaged ({reason}), and another can't be made: {cause_of(error)}"
            ) from error
        self.set_aside = aside.name
        self._begin_anew_at = time.monotonic() + ASIDE_EVERY_S

    def _take(self, engine: Engine) -> None:
        self._engine, self._is_lost = engine, False
        self._file = opened_at(self._file.path)

    def _take_made_again(self) -> None:
        path = self._file.path
        if file_id(path) is None:
            _made_beside(path, self._refill).replace(path)
            self._take(open_database(path))
            return
        try:
            engine = open_database(path)
        except DatabaseDamaged as error:
            self._begin_anew(cause_of(error))
            return
        try:
            with engine.begin() as connection:
                self._refill(connection)
        except BaseException:
            engine.dispose()
            raise
        self._take(engine)

    def _refill(self, connection: Connection) -> None:
        for refill in self._refills:
            refill(connection)


def _opened_or_begun_anew(path: Path, wall: Callable[[], float]) -> Opened:
    try:
        _require_content(path)
        engine = open_database(path)
        try:
            return Opened(engine, from_copy=_filled_from_copy(engine, path))
        except BaseException:
            engine.dispose()
            raise
    except (DatabaseDamaged, OSError, SQLAlchemyError) as error:
        reason = cause_of(error)
        if not is_damage(error):
            raise DatabaseUnusable(f"The database {path} cannot be used: {reason}.") from error

    def from_copy(connection: Connection) -> None:
        keys_copy.take_over(connection, path)

    try:
        aside = _put_in_place_of_damaged(path, (*KEYS_AND_SETTINGS, *NUMBERS), (from_copy,), reason, now_s=wall())
        return Opened(open_database(path), aside.name)
    except (OSError, sqlite3.Error, SQLAlchemyError) as error:
        raise DatabaseUnusable(f"{reason} It cannot be set aside: {cause_of(error)}.") from error


def _require_content(path: Path) -> None:
    """Raises DatabaseDamaged where an empty file, or none, has something beside it that tells of a whole one."""
    is_there = file_id(path) is not None
    if is_there and path.stat().st_size:
        return
    if has_log(path) or (is_there and keys_copy.kept_of(path) is not None):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        raise DatabaseDamaged(f"The database {path} cannot be used: it is empty.")


def _filled_from_copy(engine: Engine, path: Path) -> bool:
    """What is in the copy, when nothing is in the database: it was deleted, and a first start has no copy."""
    with engine.begin() as connection:
        rows = keys_copy.rows_of(connection)
        if rows["keys"] or rows["settings"] or not keys_copy.take_over(connection, path):
            return False
    logger.warning("database was not there, and is begun with the copy of keys and settings file=%s", path)
    return True


def _put_in_place_of_damaged(
    path: Path, tables: Sequence[Table], refills: Sequence[Refill], reason: str, *, now_s: float
) -> Path:
    """Where the damaged one is now. Raises OSError, sqlite3.Error, SQLAlchemyError, DatabaseUnusable."""
    kept: dict[str, int] = {}

    def fill(connection: Connection) -> None:
        try:
            kept.update(salvage(path, connection, tables))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            logger.warning("nothing can be read of the damaged database file=%s reason=%s", path, cause_of(error))
        for refill in refills:
            refill(connection)

    made = _made_beside(path, fill)
    aside = move_aside(path, now_s=now_s)
    made.replace(path)
    counts = " ".join(f"{table}={count}" for table, count in kept.items())
    logger.error("database damaged, and another begun file=%s aside=%s reason=%s kept: %s", path, aside, reason, counts)
    return aside


def _made_beside(path: Path, fill: Callable[[Connection], None]) -> Path:
    """A whole one, closed: whoever reads, and whoever starts after a crash, finds at the path a whole one or none."""
    made = path.with_name(f"{path.name}{UNFINISHED}")
    for left in (made, *companions_of(made)):
        left.unlink(missing_ok=True)
    engine = open_database(made)
    try:
        with engine.begin() as connection:
            fill(connection)
    finally:
        engine.dispose()
    return made
