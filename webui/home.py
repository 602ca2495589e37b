"""The console's files in SPLASH_HOME: its record, its session key, the sessions that ended, and control's admin secret.

It does not start, signal or adopt anything; whether another process of ours lives is answered from its record.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from control.wire import ProcessRecord
from webui.errors import ControlGone

# The kernel's start time is read with a different rounding on each system; a reused pid differs by far more.
CREATE_TIME_TOLERANCE_S = 2.0
SESSION_KEY_BYTES = 32

# lives: its record names a process that is there. died: that process is not there, so nobody told it to end: it
# would have removed its record. unrecorded: it ended in order, or never was.
Fate = Literal["lives", "died", "unrecorded"]


@dataclass(frozen=True, slots=True)
class Home:
    """SPLASH_HOME as the console sees it. Directories are 0700, files 0600."""

    root: Path

    def admin_secret(self) -> str:
        """Raises ControlGone while control has never started here."""
        try:
            return (self.root / "secrets" / "admin").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ControlGone("the admin secret cannot be read") from error

    def session_key(self) -> bytes:
        """The key that signs sessions; made on first use, so that sessions survive a restart of the console.

        A file that was cut short is replaced: whoever knows a short key could sign a session.
        """
        path = self.root / "secrets" / "console"
        key = secrets.token_hex(SESSION_KEY_BYTES)
        if not path.exists():
            self._write_once(path, key)
        if len(path.read_bytes().strip()) < len(key):
            self._replace(path, key.encode())
        return path.read_bytes().strip()

    def has_password(self) -> bool:
        """Whether one was set; control alone reads it."""
        return (self.root / "secrets" / "console-password").exists()

    def ended_sessions(self) -> bytes:
        """Empty while nobody has logged out."""
        try:
            return self._ended_path.read_bytes()
        except OSError:
            return b""

    def write_ended_sessions(self, content: bytes) -> None:
        self._replace(self._ended_path, content)

    def write_record(self, record: ProcessRecord) -> None:
        self._replace(self._record_path(record.name), msgspec.json.encode(record))

    def remove_record(self, record: ProcessRecord) -> None:
        """Leaves the record of a successor that started meanwhile."""
        current = self._read_record(record.name)
        if current is not None and current.nonce == record.nonce:
            self._record_path(record.name).unlink(missing_ok=True)

    def living(self, name: str) -> ProcessRecord | None:
        """The record of a process of ours that is alive now: same pid, same start time, not a zombie."""
        record = self._read_record(name)
        return record if record is not None and is_alive(record) else None

    def fate(self, name: str) -> Fate:
        """What became of a process of ours, as far as its record tells."""
        record = self._read_record(name)
        if record is None:
            return "unrecorded"
        return "lives" if is_alive(record) else "died"

    def _read_record(self, name: str) -> ProcessRecord | None:
        try:
            return msgspec.json.decode(self._record_path(name).read_bytes(), type=ProcessRecord)
        except (OSError, msgspec.MsgspecError):
            return None

    @property
    def _ended_path(self) -> Path:
        return self.root / "secrets" / "ended-sessions.json"

    def _record_path(self, name: str) -> Path:
        return self.root / "run" / f"{name}.json"

    def _replace(self, path: Path, content: bytes) -> None:
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        self._private_folder(path.parent)
        draft.unlink(missing_ok=True)
        _write_private(draft, content)
        draft.replace(path)

    def _write_once(self, path: Path, content: str) -> None:
        """Two starting consoles end up with one key: the first link wins, and the file is never seen half-written."""
        self._private_folder(path.parent)
        draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        draft.unlink(missing_ok=True)
        _write_private(draft, content.encode())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()

    def _private_folder(self, path: Path) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)


def is_alive(record: ProcessRecord) -> bool:
    try:
        process = psutil.Process(record.pid)
        return bool(_apart_s(process, record) <= CREATE_TIME_TOLERANCE_S and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _apart_s(process: psutil.Process, record: ProcessRecord) -> float:
    """By how much its start differs from the record's; a clock that was set since is no difference."""
    if record.created_after_boot_s is None:
        return float(abs(process.create_time() - record.created_at_s))
    return float(abs(process.create_time() - psutil.boot_time() - record.created_after_boot_s))


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
