"""`splash keys [new | limit | list | revoke]`: the API keys, by way of the running control.

It never sees a key but in the answer that made it.
"""

import re
from datetime import datetime
from typing import Annotated, Final, get_args

import msgspec
import typer
from msgspec import UNSET, UnsetType

from control.cli.places import AsJson, running_control, this_place
from control.cli.tables import has_room, print_table, printable
from control.cli.words import one_of
from control.command_errors import OrderRefused, UsageWrong
from control.wire import KeyChange, KeyLimits, KeyView, RequestClass

OFF: Final = "off"
WHOLE: Final = re.compile("[1-9][0-9]{0,14}")

COLUMNS: Final = ("id", "name", "class", "key", "made", "today")
SHOWN_ONCE: Final = "This is the only time that the key is shown."
CLASSES: Final[tuple[RequestClass, ...]] = get_args(RequestClass)

keys = typer.Typer(help="API keys. Without a command: list them.", rich_markup_mode=None)

MaxInFlight = Annotated[
    str | None, typer.Option(metavar="N|off", help="Requests at a time, waiting ones included; the next gets a 429.")
]
RequestsPerDay = Annotated[str | None, typer.Option(metavar="N|off", help="Requests from midnight to midnight.")]
TokensPerDay = Annotated[str | None, typer.Option(metavar="N|off", help="Prompt and completion tokens a day.")]

ShowsAll = Annotated[bool, typer.Option("--all", help="Revoked keys, too; --json always has them.")]


@keys.callback(invoke_without_command=True)
def listed_by_default(context: typer.Context, shows_all: ShowsAll = False, as_json: AsJson = False) -> None:
    if context.invoked_subcommand is None:
        list_keys(shows_all, as_json)


@keys.command()
def new(
    name: Annotated[str, typer.Argument(help="What the key is called in the console.")],
    request_class: Annotated[
        str,
        typer.Option("--class", metavar="|".join(CLASSES), help="batch lets interactive requests go first."),
    ] = "interactive",
    max_in_flight: MaxInFlight = None,
    requests_per_day: RequestsPerDay = None,
    tokens_per_day: TokensPerDay = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown this once."""
    known_class = one_of(request_class, CLASSES, "a class")
    change = limits_change(max_in_flight, requests_per_day, tokens_per_day)
    limits = KeyLimits(**{name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET})
    created = running_control(this_place()).new_key(name, known_class, limits)
    typer.echo(msgspec.json.encode(created).decode() if as_json else created.key)
    if not as_json:
        typer.echo(SHOWN_ONCE, err=True)


@keys.command()
def limit(
    name: Annotated[str, typer.Argument(help="The name of a key that is not revoked.")],
    max_in_flight: MaxInFlight = None,
    requests_per_day: RequestsPerDay = None,
    tokens_per_day: TokensPerDay = None,
) -> None:
    """Change the limits of a key, from its next request on.

    What is left out stays.
    """
    change = limits_change(max_in_flight, requests_per_day, tokens_per_day)
    if change == KeyChange():
        raise UsageWrong("Which limit? --max-in-flight, --requests-per-day, --tokens-per-day: a number, or off.")
    client = running_control(this_place())
    view = client.limit_key(active_key(client.keys(), name).id, change)
    typer.echo(f"{printable(view.name)}: {limits_text(view.limits)}.")


@keys.command("list")
def list_keys(shows_all: ShowsAll = False, as_json: AsJson = False) -> None:
    """List the keys: names, hints, limits, today's use; never the keys."""
    views = running_control(this_place()).keys()
    if as_json:
        typer.echo(msgspec.json.encode({"keys": views}).decode())
        return
    rows = [_row(view) for view in views if shows_all or view.revoked_at_s is None]
    # What is used today stands in as many lines as it takes, before anything else is broken.
    on_one_line = [(*facts, ", ".join(today)) for *facts, today in rows]
    print_table(COLUMNS, on_one_line if has_room(COLUMNS, on_one_line) else rows)
    num_hidden = len(views) - len(rows)
    if num_hidden:
        typer.echo(f"{num_hidden} revoked: `splash keys --all` shows them.", err=True)


@keys.command()
def revoke(key: Annotated[str, typer.Argument(metavar="NAME|ID", help="As `splash keys` shows it.")]) -> None:
    """Refuse a key from now on; its running requests finish."""
    client = running_control(this_place())
    view = client.revoke_key(named_key(client.keys(), key).id)
    typer.echo(f'Key {view.id}, "{printable(view.name)}", is revoked.')


def limits_change(max_in_flight: str | None, requests_per_day: str | None, tokens_per_day: str | None) -> KeyChange:
    """Raises UsageWrong, with the option that can't be understood."""
    return KeyChange(
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


def named_key(views: tuple[KeyView, ...], text: str) -> KeyView:
    """By its name, else by its id: a name that is a number goes before an id. Raises OrderRefused."""
    for view in views:
        if view.name == text and view.revoked_at_s is None:
            return view
    for view in views:
        if str(view.id) == text:
            return view
    raise OrderRefused(f"There is no key with the name or id {printable(text)!r}; `splash keys` lists them.")


def used_today(view: KeyView) -> tuple[str, ...]:
    today, limits = view.today, view.limits
    return (
        _used(today.in_flight, limits.max_in_flight, "in flight", "in flight"),
        _used(today.requests, limits.requests_per_day, "request", "requests"),
        _used(today.tokens, limits.tokens_per_day, "token", "tokens"),
    )


def limits_text(limits: KeyLimits) -> str:
    named = (
        (limits.max_in_flight, "in flight"),
        (limits.requests_per_day, "request a day" if limits.requests_per_day == 1 else "requests a day"),
        (limits.tokens_per_day, "token a day" if limits.tokens_per_day == 1 else "tokens a day"),
    )
    return ", ".join(f"{number:,} {what}" for number, what in named if number is not None) or "no limits"


def _row(view: KeyView) -> tuple[str, str, str, str, str, tuple[str, ...]]:
    return (
        str(view.id),
        view.name,
        view.request_class,
        view.hint,
        datetime.fromtimestamp(view.created_at_s).strftime("%Y-%m-%d"),
        used_today(view) if view.revoked_at_s is None else ("revoked",),
    )


def _used(used: int, limit: int | None, one: str, several: str) -> str:
    """The word follows the number before it."""
    if limit is None:
        return f"{used:,} {one if used == 1 else several}"
    return f"{used:,} of {limit:,} {one if limit == 1 else several}"


def _limit(option: str, text: str | None) -> int | UnsetType | None:
    if text is None:
        return UNSET
    if text.lower() == OFF:
        return None
    if WHOLE.fullmatch(text) is None:
        raise UsageWrong(f"{option} takes a number, 1 or more, or {OFF}; {printable(text)!r} is neither.")
    return int(text)
