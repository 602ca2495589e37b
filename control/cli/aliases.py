"""`splash aliases [set | rm]`: the names under which the loaded model can be asked for, by way of the running control.

It decides nothing about a name: control does.
"""

from typing import Annotated, Final, get_args

import msgspec
import typer

from control.cli.places import AsJson, running_control, this_place
from control.cli.tables import print_table, printable
from control.cli.words import one_of
from control.command_errors import OrderRefused
from control.wire import Alias, RequestClass

CLASSES: Final[tuple[RequestClass, ...]] = get_args(RequestClass)

aliases = typer.Typer(
    help="Names that stand for the loaded model. Without a command: list them.", rich_markup_mode=None
)


@aliases.callback(invoke_without_command=True)
def list_aliases(context: typer.Context, as_json: AsJson = False) -> None:
    if context.invoked_subcommand is not None:
        return
    listed = running_control(this_place()).aliases()
    if as_json:
        typer.echo(msgspec.json.encode({"aliases": listed}).decode())
    else:
        print_table(("name", "class"), ((alias.name, alias.request_class or "the key's") for alias in listed))


@aliases.command("set")
def set_alias(
    text: Annotated[str, typer.Argument(metavar="NAME[=CLASS]", help="`*` is any text; CLASS: interactive or batch.")],
) -> None:
    """Add a name, or change its class.

    For example: `splash aliases set 'claude-haiku-*=batch'`.
    """
    client = running_control(this_place())
    alias = alias_of(text)
    client.set_aliases(with_alias(client.aliases(), alias))
    carried = f", and its requests queue as {alias.request_class}" if alias.request_class is not None else ""
    typer.echo(f"{printable(alias.name)} stands for the loaded model{carried}.")


@aliases.command()
def rm(name: Annotated[str, typer.Argument(help="As `splash aliases` shows it.")]) -> None:
    """Remove a name."""
    client = running_control(this_place())
    listed = client.aliases()
    left = tuple(alias for alias in listed if alias.name != name)
    if left == listed:
        raise OrderRefused(f"There is no alias {printable(name)!r}; `splash aliases` lists them.")
    client.set_aliases(left)
    typer.echo(f"{printable(name)} is no alias any more.")


def alias_of(text: str) -> Alias:
    """Raises UsageWrong."""
    name, has_class, class_name = text.partition("=")
    if not has_class:
        return Alias(name=name)
    return Alias(name=name, request_class=one_of(class_name, CLASSES, "a class"))


def with_alias(listed: tuple[Alias, ...], alias: Alias) -> tuple[Alias, ...]:
    """At its old place if it was there, else at the end."""
    if any(each.name == alias.name for each in listed):
        return tuple(alias if each.name == alias.name else each for each in listed)
    return (*listed, alias)
