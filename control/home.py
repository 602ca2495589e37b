"""SPLASH_HOME on disk: where everything lies, who may read it, the secrets, and the records of our processes.

It knows no process: whether a record is true is asked in `identity`.
"""

import errno
import fcntl
import logging
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from control.command_errors import HomeUnusable
from control.config import LARGEST_PORT
from engine.wire import Launch, ProcessRecord

logger = logging.getLogger(__name__)

PRIVATE_UMASK: Final = 0o077
PRIVATE_MODE: Final = 0o700
FOLDERS: Final = ("run", "secrets", "logs", "models")
SECRET_BYTES: Final = 32
# What SQLite opens, less what it puts behind the name of a database. Source: MAX_PATHNAME in its os_unix.c.
LONGEST_PATH_BYTES: Final = 500
# A shorter one was not made here: the file was cut, emptied or written by hand.
SECRET_LENGTH_LEAST: Final = 32
# Somebody who only asks who holds a lock has it for an instant.
LOCK_PATIENCE_S: Final = 0.5
LOCK_RETRY_S: Final = 0.05
# Twice that must fit: launch file, record and what an engine logs while it starts. One that dies of a full disk
# by itself counts as broken.
TRIAL_BYTES: Final = 256 * 1024
LARGEST_PID: Final = 2**31 - 1
ProcessName = Literal["engine", "control", "webui"]
Kind = TypeVar("Kind", bound=msgspec.Struct)
Manager = Literal["detached", "launchd", "foreground"]
PROCESS_NAMES: Final[tuple[ProcessName, ...]] = ("engine", "control", "webui")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that holds a lock of this home, and so is ours. `pid` None: it has not said yet."""

    pid: int | None

    def __str__(self) -> str:
        return "another process" if self.pid is None else f"pid {self.pid}"


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    @property
    def database(self) -> Path:
        return self.root / "splash.db"

    @property
    def launch_file(self) -> Path:
        return self.root / "secrets" / "engine.json"

    def record_file(self, name: ProcessName) -> Path:
        return self.root / "run" / f"{name}.json"

    def log_file(self, name: ProcessName) -> Path:
        return self.root / "logs" / f"{name}.log"

    @property
    def launchd_folder(self) -> Path:
        """The property lists of what runs under launchd; not there when nothing does."""
        return self.root / "launchd"

    @property
    def login_log(self) -> Path:
        """What a start at login had to say."""
        return self.root / "logs" / "login.log"

    def create(self) -> None:
        """Make the folders, 0700, and let this process make private files only. Raises HomeUnusable."""
        os.umask(PRIVATE_UMASK)
        length = len(os.fsencode(self.database))
        if length > LONGEST_PATH_BYTES:
            raise HomeUnusable(
                f"The home of Splash can't be {self.root}: its path is too long. That of the database would have "
                f"{length} bytes, and SQLite takes {LONGEST_PATH_BYTES}."
            )
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            # A disk that can't be written any more must not keep anybody from looking, or from a quit.
            if stat.S_IMODE(self.root.stat().st_mode) != PRIVATE_MODE:
                self.root.chmod(PRIVATE_MODE)
            for folder in FOLDERS:
                (self.root / folder).mkdir(exist_ok=True)
        except OSError as error:
            raise HomeUnusable(f"The home of Splash, {self.root}, can't be used: {error.strerror}.") from error

    # --- Secrets ---

    @property
    def admin_secret_file(self) -> Path:
        return self.root / "secrets" / "admin"

    def admin_secret(self) -> str:
        """The bearer token of the admin API. Raises HomeUnusable when it is damaged, or control has not made it yet."""
        secret = self._readable_admin_secret()
        if secret is None:
            raise HomeUnusable(
                f"{self.admin_secret_file} holds no secret of Splash; a start of control makes a new one."
            )
        return secret

    def renew_admin_secret(self) -> None:
        """For a control that starts, before it listens: what was known of an earlier one opens nothing any more.

        Whoever holds the secret reads it anew for each control. Raises HomeUnusable.
        """
        write_whole(self.admin_secret_file, secrets.token_urlsafe(SECRET_BYTES).encode())

    def made_admin_secret(self) -> str:
        """For control alone: the secret that is there, else a new one in the place of nothing or of a damaged one."""
        secret = self._readable_admin_secret()
        if secret is None:
            secret = secrets.token_urlsafe(SECRET_BYTES)
            self.keep_admin_secret(secret)
        return secret

    def keep_admin_secret(self, secret: str) -> None:
        """Put it back when the file is gone or damaged; another good secret stands. Raises HomeUnusable."""
        if self._readable_admin_secret() is None:
            write_whole(self.admin_secret_file, secret.encode())

    def _readable_admin_secret(self) -> str | None:
        try:
            secret = self.admin_secret_file.read_bytes().decode("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        except OSError as error:
            raise HomeUnusable(f"{self.admin_secret_file} can't be read: {error.strerror}.") from error
        return secret if len(secret) >= SECRET_LENGTH_LEAST and secret.isprintable() else None

    def read_launch(self) -> Launch | None:
        """What the engine was last started with; None when there is no such file, or when it can't be understood."""
        return _read(self.launch_file, Launch)

    def require_room_for_launch(self) -> None:
        """Raises HomeUnusable when what is written at a start of the engine could not be written now."""
        with _tried(self.launch_file), _tried(self.record_file("engine")):
            return

    def require_room_for_record(self, name: ProcessName) -> None:
        """Raises HomeUnusable when such a process could not write its record now."""
        with _tried(self.record_file(name)):
            return

    def write_launch(self, launch: Launch) -> None:
        """Raises HomeUnusable."""
        write_whole(self.launch_file, msgspec.json.encode(launch))

    # --- Records ---

    def read_record(self, name: ProcessName) -> ProcessRecord | None:
        """Who says to be running; None when nobody does, or when the record can't be understood (which is logged)."""
        record = _read(self.record_file(name), ProcessRecord)
        if record is None or _is_possible(record, name):
            return record
        logger.warning("file ignored file=%s reason=impossible values", self.record_file(name))
        return None

    def read_records(self) -> tuple[ProcessRecord, ...]:
        """Of all processes that say to be running."""
        records = (self.read_record(name) for name in PROCESS_NAMES)
        return tuple(record for record in records if record is not None)

    def write_record(self, record: ProcessRecord) -> None:
        """Raises HomeUnusable."""
        write_whole(self.record_file(record.name), msgspec.json.encode(record))

    def remove_record(self, record: ProcessRecord) -> None:
        """Remove this record, not one that a successor has written meanwhile. What can't be removed is stale later."""
        found = self.read_record(record.name)
        if found is None or found.nonce != record.nonce:
            return
        try:
            self.record_file(record.name).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("record not removed name=%s reason=%s", record.name, error)

    # --- One at a time ---

    @contextmanager
    def only_one(self, what: str, *, wait: bool) -> Iterator[bool]:
        """Hold the home's lock of that name; False when another process has it and `wait` is false.

        Raises HomeUnusable.
        """
        handle = self._open_lock(what, os.O_RDWR | os.O_CREAT)
        try:
            is_held = _lock(handle, fcntl.LOCK_EX, limit_s=None if wait else LOCK_PATIENCE_S)
            if is_held:
                os.ftruncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
            yield is_held
        finally:
            os.close(handle)

    def holder_of(self, what: str) -> LockHolder | None:
        """Who holds that lock; None when nobody does. Raises HomeUnusable."""
        file = self._lock_file(what)
        if not file.exists():
            return None
        # One on a disk that can't be written is held all the same.
        handle = self._open_lock(what, os.O_RDWR if os.access(file, os.W_OK) else os.O_RDONLY)
        try:
            # Shared, so that two who ask at once do not take each other for a holder.
            if _lock(handle, fcntl.LOCK_SH, limit_s=0):
                return None
            said = os.read(handle, len(str(LARGEST_PID)))
            return LockHolder(int(said) if said.isdigit() else None)
        finally:
            os.close(handle)

    def _lock_file(self, what: str) -> Path:
        return self.root / "run" / f"{what}.lock"

    def _open_lock(self, what: str, flags: int) -> int:
        file = self._lock_file(what)
        try:
            return os.open(file, flags, 0o600)
        except OSError as error:
            raise HomeUnusable(f"{file} can't be opened: {error.strerror}.") from error


def _lock(handle: int, kind: int, *, limit_s: float | None) -> bool:
    """Whether the lock was got within the limit; None waits for as long as it takes."""
    if limit_s is None:
        fcntl.flock(handle, kind)
        return True
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_RETRY_S)


def _is_possible(record: ProcessRecord, name: ProcessName) -> bool:
    return record.name == name and 0 < record.pid <= LARGEST_PID and 0 < record.port <= LARGEST_PORT


def _read(file: Path, kind: type[Kind]) -> Kind | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        logger.warning("file ignored file=%s reason=%s", file, error)
        return None


def write_whole(file: Path, content: bytes) -> None:
    """The file appears whole, flushed, and 0600 by mkstemp. Raises HomeUnusable."""
    with _written_beside(file, content) as temporary:
        temporary.replace(file)


@contextmanager
def _tried(file: Path) -> Iterator[None]:
    """Raises HomeUnusable where `write_whole` would; the room is taken for as long as the block."""
    with _written_beside(file, bytes(TRIAL_BYTES)):
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        yield


@contextmanager
def _written_beside(file: Path, content: bytes) -> Iterator[Path]:
    """A file with the content for as long as the block, unless it is renamed. Raises HomeUnusable for every OSError."""
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    except OSError as error:
        raise HomeUnusable(f"{file} can't be written: {error.strerror}.") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
