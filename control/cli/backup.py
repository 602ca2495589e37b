"""`splash backup [FILE]`: a copy of the database, made here and now, whether Splash runs or not.

It asks nothing of control: SQLite keeps readers and the writer of other processes apart.
"""

import time
from pathlib import Path

import msgspec
import typer

from control.cli.places import Place
from control.cli.sizes import size_text
from control.cli.words import requests
from control.command_errors import BackupFailed
from control.metrics.backup import FOLDER, BackupImpossible, back_up, dated_name


def print_backup(place: Place, file: Path | None, *, as_json: bool) -> None:
    """Raises BackupFailed."""
    to = place.home.root / FOLDER if file is None else file.expanduser().absolute()
    if file is None or to.is_dir():
        to /= dated_name(time.time())
    try:
        backup = back_up(place.home.database, to)
    except BackupImpossible as error:
        raise BackupFailed(str(error)) from error
    if as_json:
        typer.echo(msgspec.json.encode(backup).decode())
    else:
        typer.echo(f"{backup.path}: {size_text(backup.size_bytes)}, {requests(backup.requests)}.")
