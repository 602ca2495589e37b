"""`splash password`: the console's password, set or removed. Either ends every session.

It shows no password, and takes none from an argument, where `ps` and a shell's history would keep it.
"""

import getpass
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from control.cli.lan import report_of
from control.cli.places import Place, this_place
from control.cli.processes import find
from control.cli.replacing import Replacing
from control.cli.turns import turn
from control.command_errors import HomeUnusable, UsageWrong
from control.console_password import BYTES_MOST, ConsolePassword, fault_of

# A line that goes on is too long anyway.
LINE_BYTES: Final = 4 * BYTES_MOST


def password(
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove it: only login links open the console then.")
    ] = False,
) -> None:
    """Set the console's password.

    For a login without a link, and from other machines (`splash lan`). It is asked for, or is one line of the
    standard input. Every session of the console ends.
    """
    place = this_place()
    kept = ConsolePassword(place.home)
    if remove:
        if not kept.file.exists():
            typer.echo("The console has no password.")
            return
        kept.remove()
    else:
        kept.keep(_asked())
    _end_sessions(place)
    typer.echo(f"The console's password is {'removed' if remove else 'set'}; every session has ended.")
    for line in _reach(place):
        typer.echo(line)


def is_at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _asked() -> str:
    """Raises UsageWrong."""
    text = _typed() if is_at_a_terminal() else _line()
    fault = fault_of(text)
    if fault is not None:
        raise UsageWrong(fault)
    return text


def _typed() -> str:
    """Twice, unseen. Raises UsageWrong."""
    try:
        first = getpass.getpass("New password of the console: ")
        fault = fault_of(first)
        if fault is not None:
            raise UsageWrong(fault)
        second = getpass.getpass("The same again: ")
    except (EOFError, KeyboardInterrupt):
        raise UsageWrong("No password was set.") from None
    if first != second:
        raise UsageWrong("The two passwords differ; nothing was changed.")
    return first


def _line() -> str:
    """Raises UsageWrong."""
    try:
        return sys.stdin.buffer.readline(LINE_BYTES).rstrip(b"\r\n").decode()
    except UnicodeDecodeError as error:
        raise UsageWrong("The password is not text in UTF-8.") from error


def _end_sessions(place: Place) -> None:
    """A session is signed with a key that the console reads when it starts. Raises HomeUnusable, StartFailed …"""
    file: Path = place.home.root / "secrets" / "console"
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise HomeUnusable(f"{file} can't be removed: {error.strerror}.") from error
    replacing = Replacing(place.home, lambda text: typer.echo(text, err=True))
    # Whoever has the turn may wait for requests; the sessions end now.
    ended = replacing.close_console(only_if_open=False)
    if ended is None:
        return
    with turn(place.home, replacing.show):
        if not find(place.home, "webui").is_alive:
            typer.echo(f"webui is pid {replacing.webui(ended=ended).pid}.", err=True)


def _reach(place: Place) -> tuple[str, ...]:
    """Who can use it now."""
    report = report_of(place)
    if not report.has_password:
        links = "Only login links open the console now; `splash open` gives one."
        return (links, "Other machines reach the API only.") if report.lan else (links,)
    if not report.lan:
        return ("It opens the console on this machine; `splash lan on` lets other machines in.",)
    return ("Other machines find the console here:", *(f"  {url}" for url in report.console))
