"""`splash logs`: the end of a process's log file, and what is added to it.

It reads files only, so it works when nothing runs.
"""

import time
from pathlib import Path
from typing import Final, Literal

import typer

from control.cli.words import one_of
from control.command_errors import NothingWritten
from control.home import PROCESS_NAMES, Home, ProcessName
from control.log_files import last_lines

LogOf = ProcessName | Literal["login"]
NAMES: Final[tuple[LogOf, ...]] = (*PROCESS_NAMES, "login")
NUM_LINES: Final = 200
TAIL_BYTES: Final = 256 * 1024
FOLLOW_EVERY_S: Final = 0.25


def print_log(home: Home, name: str, *, follow: bool) -> None:
    """Raises UsageWrong, and NothingWritten when there is nothing to print, and nothing is waited for."""
    chosen = one_of(name, NAMES, "a log")
    file = home.login_log if chosen == "login" else home.log_file(chosen)
    at = _size_of(file)
    if not at:
        nothing = NothingWritten(log=chosen)
        if not follow:
            raise nothing
        typer.echo(str(nothing), err=True)
    else:
        for line in last_lines(file, tail_bytes=TAIL_BYTES)[-NUM_LINES:]:
            typer.echo(line)
    while follow:
        time.sleep(FOLLOW_EVERY_S)
        size = _size_of(file)
        # Smaller than before: it was turned over, and a new file began.
        at = min(at, size) if size >= at else 0
        if size > at:
            with file.open("rb") as stream:
                stream.seek(at)
                typer.echo(stream.read(size - at).decode(errors="replace"), nl=False)
            at = size


def _size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
