"""`splash requests export`: the request rows of the running control as a file, on standard output.

It writes what control sends, as it comes, and decides nothing about its form. A key that nobody has is refused: a file
without a row would say that the key did nothing.
"""

import sys
from typing import Annotated
from urllib.parse import urlencode

import typer

from control.cli.admin_client import AdminClient
from control.cli.places import running_control, this_place
from control.cli.tables import printable
from control.command_errors import OrderRefused

requests = typer.Typer(help="Single requests of the last 30 days.", no_args_is_help=True, rich_markup_mode=None)


@requests.callback()
def single_requests() -> None:
    """Keeps `export` a word of its own while it is the only command."""


@requests.command()
def export(
    form: Annotated[str, typer.Option("--format", help="csv or json.")] = "csv",
    within: Annotated[str, typer.Option("--range", help="hour, day, week, month or all.")] = "all",
    key: Annotated[str | None, typer.Option(help="Only those of this key, by its name.")] = None,
    model: Annotated[str | None, typer.Option(help="Only those that this model ran.")] = None,
    outcome: Annotated[str | None, typer.Option(help="completed, cancelled, failed or rejected.")] = None,
) -> None:
    """Write requests to standard output, the newest first.

    For example: `splash requests export --range week > week.csv`.
    """
    asked = {"format": form, "range": within, "key": key, "model": model, "outcome": outcome}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    client = running_control(this_place())
    if key is not None:
        _require_key(client, key)
    for piece in client.export(query):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _require_key(client: AdminClient, name: str) -> None:
    """Raises OrderRefused for a name that no key has, revoked ones included, and no request either."""
    views = client.keys()
    known = {*client.request_choices().keys, *(view.name for view in views)}
    if name not in known:
        raise OrderRefused(f"There is no key named {printable(name)!r}; `splash keys --all` lists them.")
