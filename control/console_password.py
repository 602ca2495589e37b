"""The console's password: made into a scrypt hash, compared, and kept in SPLASH_HOME/secrets/console-password.

It counts no tries (`password_attempts`) and logs nobody in. The password itself is written nowhere.
"""

import hashlib
import hmac
import logging
import secrets
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from control.command_errors import HomeUnusable
from control.home import Home, write_whole

logger = logging.getLogger(__name__)

LENGTH_LEAST: Final = 10
BYTES_MOST: Final = 1024
# 32 MiB and a tenth of a second for each try. Source: OWASP's Password Storage Cheat Sheet has twice to half of it.
COST: Final = 2**15
BLOCK_SIZE: Final = 8
PARALLELISM: Final = 1
SALT_BYTES: Final = 16


class PasswordHash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With what it was made by, so that a later version can choose otherwise. `n`, `r`, `p` as RFC 7914 names them."""

    salt: bytes
    hash: bytes
    n: Annotated[int, msgspec.Meta(ge=2, le=2**20)]
    r: Annotated[int, msgspec.Meta(ge=1, le=32)]
    p: Annotated[int, msgspec.Meta(ge=1, le=16)]
    kind: Literal["scrypt"] = "scrypt"

    def fits(self, password: str) -> bool:
        """Takes a tenth of a second. Compared in constant time."""
        made = _derived(password, salt=self.salt, n=self.n, r=self.r, p=self.p)
        return hmac.compare_digest(made, self.hash)


def hashed(password: str) -> PasswordHash:
    salt = secrets.token_bytes(SALT_BYTES)
    made = _derived(password, salt=salt, n=COST, r=BLOCK_SIZE, p=PARALLELISM)
    return PasswordHash(salt=salt, hash=made, n=COST, r=BLOCK_SIZE, p=PARALLELISM)


def fault_of(password: str) -> str | None:
    """Why it can't be a password, as a sentence; None when it can."""
    if len(password) < LENGTH_LEAST:
        return f"A password of the console has at least {LENGTH_LEAST} characters."
    if len(password.encode("utf-8", "surrogatepass")) > BYTES_MOST:
        return f"A password of the console has at most {BYTES_MOST} bytes."
    return None


@dataclass(frozen=True, slots=True)
class ConsolePassword:
    """Read anew for each question, so that a change holds at once."""

    home: Home

    @property
    def file(self) -> Path:
        return self.home.root / "secrets" / "console-password"

    @property
    def is_set(self) -> bool:
        return self.read() is not None

    def read(self) -> PasswordHash | None:
        """None when there is none, or when the file can't be understood, which is logged."""
        try:
            found = msgspec.json.decode(self.file.read_bytes(), type=PasswordHash)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            logger.warning("file ignored file=%s reason=%s", self.file, error)
            return None
        if found.n & (found.n - 1) or not found.hash:
            logger.warning("file ignored file=%s reason=impossible values", self.file)
            return None
        return found

    def keep(self, password: str) -> None:
        """Raises HomeUnusable."""
        write_whole(self.file, msgspec.json.encode(hashed(password)))

    def remove(self) -> None:
        """Raises HomeUnusable."""
        try:
            self.file.unlink(missing_ok=True)
        except OSError as error:
            raise HomeUnusable(f"{self.file} can't be removed: {error.strerror}.") from error


def _derived(password: str, *, salt: bytes, n: int, r: int, p: int) -> bytes:
    # One keyboard writes é as one character, another as two.
    text = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    # What it takes is 128 × n × r bytes and a little for each lane.
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=2 * 128 * n * r + 1024 * r * p)
