"""SPLASH_HOME on disk: where everything lies, who may read it, the secrets, and the records of our processes.

It knows no process: whether a record is true is asked in `identity`.
"""

import fcntl
import logging
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from control.command_errors import HomeUnusable
from engine.wire import Launch, ProcessRecord

logger = logging.getLogger(__name__)

PRIVATE_UMASK: Final = 0o077
FOLDERS: Final = ("run", "secrets", "logs", "models")
ProcessName = Literal["engine", "control", "webui"]
Kind = TypeVar("Kind", bound=msgspec.Struct)
Manager = Literal["detached", "launchd", "foreground"]
PROCESS_NAMES: Final[tuple[ProcessName, ...]] = ("engine", "control", "webui")


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

    def create(self) -> None:
        """Make the folders, 0700, and let this process make private files only. Raises HomeUnusable."""
        os.umask(PRIVATE_UMASK)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(0o700)
            for folder in FOLDERS:
                (self.root / folder).mkdir(exist_ok=True)
        except OSError as error:
            raise HomeUnusable(f"The home of Splash, {self.root}, can't be used: {error.strerror}.") from error

    # --- Secrets ---

    def admin_secret(self) -> str:
        """The bearer token of the admin API; made the first time, by whichever process comes first."""
        file = self.root / "secrets" / "admin"
        if not file.exists():
            _write_once(file, secrets.token_urlsafe(32))
        return file.read_text(encoding="ascii").strip()

    def read_launch(self) -> Launch | None:
        """What the engine was last started with; None when there is no such file, or when it can't be understood."""
        return _read(self.launch_file, Launch)

    def write_launch(self, launch: Launch) -> None:
        _replace(self.launch_file, msgspec.json.encode(launch))

    # --- Records ---

    def read_record(self, name: ProcessName) -> ProcessRecord | None:
        """Who says to be running; None when nobody does, or when the record can't be understood (which is logged)."""
        return _read(self.record_file(name), ProcessRecord)

    def write_record(self, record: ProcessRecord) -> None:
        _replace(self.record_file(record.name), msgspec.json.encode(record))

    def remove_record(self, record: ProcessRecord) -> None:
        """Remove this record, not one that a successor has written meanwhile."""
        found = self.read_record(record.name)
        if found is not None and found.nonce == record.nonce:
            self.record_file(record.name).unlink(missing_ok=True)

    # --- One at a time ---

    @contextmanager
    def only_one(self, what: str, *, wait: bool) -> Iterator[bool]:
        """Hold the home's lock of that name; False when another process has it and `wait` is false."""
        handle = os.open(self.root / "run" / f"{what}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(handle)


def _read(file: Path, kind: type[Kind]) -> Kind | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        logger.warning("file ignored file=%s reason=%s", file, error)
        return None


def _temporary(file: Path, content: bytes) -> Path:
    """A finished, flushed file beside `file`; mkstemp makes it 0600."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return Path(name)


def _replace(file: Path, content: bytes) -> None:
    _temporary(file, content).replace(file)


def _write_once(file: Path, text: str) -> None:
    """Make the file whole or not at all; when another process was faster, its content stands."""
    temporary = _temporary(file, text.encode())
    try:
        file.hardlink_to(temporary)
    except FileExistsError:
        logger.info("secret was made by another process file=%s", file)
    finally:
        temporary.unlink()
