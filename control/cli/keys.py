"""`splash keys [new | limit | list | revoke]`: the API keys, by way of the running control.

It never sees a key but in the answer that made it.
"""

import re
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
import typer
from msgspec import UNSET, UnsetType

from control.cli.places import AsJson, running_control, this_place
from control.cli.tables import print_table, printable
from control.command_errors import OrderRefused, UsageWrong
from control.wire import KeyLimits, KeyView, LimitsChange

OFF: Final = "off"
WHOLE: Final = re.compile("[1-9][0-9]{0,14}")

keys = typer.Typer(help="API keys. Without a command: list them.")

MaxInFlight = Annotated[
    str | None, typer.Option(metavar="N|off", help="Requests at a time, waiting ones included; the next gets a 429.")
]
RequestsPerDay = Annotated[str | None, typer.Option(metavar="N|off", help="Requests from midnight to midnight.")]
TokensPerDay = Annotated[str | None, typer.Option(metavar="N|off", help="Prompt and completion tokens a day.")]


@keys.callback(invoke_without_command=True)
def listed_by_default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_keys()


@keys.command()
def new(
    name: Annotated[str, typer.Argument(help="What the key is called in the console.")],
    request_class: Annotated[
        Literal["interactive", "batch"], typer.Option("--class", help="batch lets interactive requests go first.")
    ] = "interactive",
    max_in_flight: MaxInFlight = None,
    requests_per_day: RequestsPerDay = None,
    tokens_per_day: TokensPerDay = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown this once."""
    change = limits_change(max_in_flight, requests_per_day, tokens_per_day)
    limits = KeyLimits(**{name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET})
    created = running_control(this_place()).new_key(name, request_class, limits)
    typer.echo(msgspec.json.encode(created).decode() if as_json else created.key)


@keys.command()
def limit(
    name: Annotated[str, typer.Argument(help="The name of a key that is not revoked.")],
    max_in_flight: MaxInFlight = None,
    requests_per_day: RequestsPerDay = None,
    tokens_per_day: TokensPerDay = None,
) -> None:
    """Change the limits of a key, from its next request on; what is left out stays."""
    change = limits_change(max_in_flight, requests_per_day, tokens_per_day)
    if change == LimitsChange():
        raise UsageWrong("Which limit? --max-in-flight, --requests-per-day, --tokens-per-day: a number, or off.")
    client = running_control(this_place())
    view = client.limit_key(active_key(client.keys(), name).id, change)
    typer.echo(f"{printable(view.name)}: {limits_text(view.limits)}.")


@keys.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List the keys: their names, hints, limits and what they used today; never the keys."""
    views = running_control(this_place()).keys()
    if as_json:
        typer.echo(msgspec.json.encode({"keys": views}).decode())
        return
    print_table(
        ("id", "name", "class", "key", "made", "today"),
        (
            (
                str(view.id),
                view.name,
                view.request_class,
                view.hint,
                datetime.fromtimestamp(view.created_at_s).strftime("%Y-%m-%d"),
                today_text(view) if view.revoked_at_s is None else "revoked",
            )
            for view in views
        ),
    )


@keys.command()
def revoke(key_id: Annotated[int, typer.Argument(metavar="ID", help="From `splash keys list`.")]) -> None:
    """Refuse a key from now on; its running requests finish."""
    running_control(this_place()).revoke_key(key_id)
    typer.echo(f"Key {key_id} is revoked.")


def limits_change(max_in_flight: str | None, requests_per_day: str | None, tokens_per_day: str | None) -> LimitsChange:
    """Raises UsageWrong, with the option that can't be understood."""
    return LimitsChange(
        max_in_flight=_limit("--max-in-flight", max_in_flight),
        requests_per_day=_limit("--requests-per-day", requests_per_day),
        tokens_per_day=_limit("--tokens-per-day", tokens_per_day),
    )


def active_key(views: tuple[KeyView, ...], name: str) -> KeyView:
    """Raises OrderRefused."""
    for view in views:
        if view.name == name and view.revoked_at_s is None:
            return view
    raise OrderRefused(f"There is no key named {printable(name)!r}; `splash keys` lists them.")


def today_text(view: KeyView) -> str:
    in_flight = _used(view.today.in_flight, view.limits.max_in_flight)
    requests = _used(view.today.requests, view.limits.requests_per_day)
    tokens = _used(view.today.tokens, view.limits.tokens_per_day)
    return f"{in_flight} in flight, {requests} requests, {tokens} tokens"


def limits_text(limits: KeyLimits) -> str:
    named = (
        (limits.max_in_flight, "in flight"),
        (limits.requests_per_day, "requests a day"),
        (limits.tokens_per_day, "tokens a day"),
    )
    return ", ".join(f"{number:,} {what}" for number, what in named if number is not None) or "no limits"


def _used(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,} of {limit:,}"


def _limit(option: str, text: str | None) -> int | UnsetType | None:
    if text is None:
        return UNSET
    if text.lower() == OFF:
        return None
    if WHOLE.fullmatch(text) is None:
        raise UsageWrong(f"{option} {printable(text)} is not a number, 1 or more, nor {OFF}.")
    return int(text)
