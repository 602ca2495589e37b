"""`splash keys new | list | revoke`: the API keys, by way of the running control.

It never sees a key but in the answer that made it.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
import typer

from control.cli.places import AsJson, running_control, this_place
from control.cli.tables import print_table

keys = typer.Typer(help="API keys.", no_args_is_help=True)


@keys.command()
def new(
    name: Annotated[str, typer.Argument(help="What the key is called in the console.")],
    request_class: Annotated[
        Literal["interactive", "batch"], typer.Option("--class", help="batch lets interactive requests go first.")
    ] = "interactive",
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown this once."""
    created = running_control(this_place()).new_key(name, request_class)
    typer.echo(msgspec.json.encode(created).decode() if as_json else created.key)


@keys.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List the keys: their names and hints, never the keys."""
    views = running_control(this_place()).keys()
    if as_json:
        typer.echo(msgspec.json.encode({"keys": views}).decode())
        return
    print_table(
        ("id", "name", "class", "key", "made", ""),
        (
            (
                str(view.id),
                view.name,
                view.request_class,
                view.hint,
                datetime.fromtimestamp(view.created_at_s).strftime("%Y-%m-%d %H:%M"),
                "revoked" if view.revoked_at_s is not None else "",
            )
            for view in views
        ),
    )


@keys.command()
def revoke(key_id: Annotated[int, typer.Argument(metavar="ID", help="From `splash keys list`.")]) -> None:
    """Refuse a key from now on; its running requests finish."""
    running_control(this_place()).revoke_key(key_id)
    typer.echo(f"Key {key_id} is revoked.")
