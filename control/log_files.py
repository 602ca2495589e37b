"""The log files that our processes write to: opened for appending, turned over when large, read from the end.

It formats nothing: each process decides what it logs.
"""

import os
from pathlib import Path
from typing import IO, Final

from control.command_errors import HomeUnusable

TURN_OVER_BYTES: Final = 10 * 1024 * 1024
# The last line of a process that died is a sentence or the end of a traceback.
TAIL_BYTES: Final = 16 * 1024


def open_log(file: Path) -> IO[bytes]:
    """Open for appending; what was larger than TURN_OVER_BYTES is kept once beside it, as `NAME.log.1`.

    Raises HomeUnusable.
    """
    try:
        if file.exists() and file.stat().st_size > TURN_OVER_BYTES:
            file.replace(file.with_name(f"{file.name}.1"))
        return os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
    except OSError as error:
        raise HomeUnusable(f"{file} can't be written: {error.strerror}.") from error


def last_line(file: Path, *, since_byte: int = 0) -> str | None:
    """The last line with something in it that was written after `since_byte`; None when there is none."""
    lines = last_lines(file, since_byte=since_byte)
    return lines[-1].strip() if lines else None


def last_lines(file: Path, *, since_byte: int = 0, tail_bytes: int = TAIL_BYTES) -> list[str]:
    try:
        with file.open("rb") as stream:
            stream.seek(max(since_byte, stream.seek(0, os.SEEK_END) - tail_bytes))
            text = stream.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]
