"""Small files of a model folder, read without trusting them: regular files of a bounded size, JSON of sane numbers.

It knows no file by name, and judges no content.
"""

import json
import math
import stat
from pathlib import Path
from typing import Any, Final

from engine.errors import ModelRefused, RefusalReason

# The largest that are known are a tenth of it.
LARGEST_JSON_BYTES: Final = 64 * 1024 * 1024
LARGEST_NUMBER: Final = 2**63 - 1
_LONGEST_NUMBER: Final = len(str(LARGEST_NUMBER)) + 1
_LONGEST_SHOWN: Final = 80


def require_regular(file: Path, *, reason: RefusalReason) -> int:
    """Its size in bytes. Raises ModelRefused for a pipe, a device or a folder: opening one may never end."""
    try:
        found = file.stat()
    except (OSError, ValueError) as error:
        raise ModelRefused(f"{file} cannot be read: {words_of(error)}", reason=reason) from error
    if not stat.S_ISREG(found.st_mode):
        raise ModelRefused(f"{file} is not a regular file", reason=reason)
    return found.st_size


def read_bytes(file: Path, *, largest_bytes: int = LARGEST_JSON_BYTES, reason: RefusalReason) -> bytes:
    """Raises ModelRefused."""
    size_bytes = require_regular(file, reason=reason)
    if size_bytes > largest_bytes:
        raise ModelRefused(
            f"{file} has {size_bytes:,} bytes, and no such file has more than {largest_bytes:,}", reason=reason
        )
    try:
        with file.open("rb") as stream:
            return stream.read(largest_bytes)
    except OSError as error:
        raise ModelRefused(f"{file} cannot be read: {words_of(error)}", reason=reason) from error


def read_object(file: Path, *, reason: RefusalReason) -> dict[str, Any]:
    """Raises ModelRefused. Numbers are as in `parsed`."""
    try:
        value = parsed(read_bytes(file, reason=reason))
    except ValueError as error:
        raise ModelRefused(f"{file} is not valid JSON: {error}", reason=reason) from error
    if not isinstance(value, dict):
        raise ModelRefused(f"{file} is not a JSON object", reason=reason)
    return value


def parsed(content: bytes) -> Any:
    """JSON. Raises ValueError, also for what is nested too deep.

    NaN, infinities and integers beyond 64 bits, which nothing in a model can mean, are None: transformers writes such
    numbers where there is none.
    """
    try:
        return json.loads(content, parse_int=_integer, parse_float=_float, parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def is_file(path: Path) -> bool:
    """False for what can't be looked at, too."""
    try:
        return path.is_file()
    except OSError:
        return False


def words_of(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def shown(value: object) -> str:
    """Something of a file that may be anything, in a sentence."""
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _integer(text: str) -> int | None:
    value = int(text) if len(text) <= _LONGEST_NUMBER else None
    return value if value is not None and abs(value) <= LARGEST_NUMBER else None


def _float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
