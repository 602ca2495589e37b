"""`splash settings [set]`: what can be changed while Splash runs and has no command of its own.

It does not say what a setting can be: control does.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, get_args

import msgspec
import typer

from control.cli.admin_client import AdminClient
from control.cli.places import AsJson, running_control, this_place
from control.cli.prices import PRICE, price_of, price_rows, with_price
from control.cli.tables import print_table, printable
from control.command_errors import UsageWrong
from control.fifo import MAXIMUM_CONCURRENCY
from control.wire import HeartbeatSettings, KeepAwake, Power, Price

CONCURRENCY: Final = "concurrency"
KEEP_AWAKE: Final = "keep_awake"
KEEP_AWAKE_CHOICES: Final[tuple[KeepAwake, ...]] = get_args(KeepAwake)
HEARTBEAT: Final = "heartbeat."
DIGIT: Final = re.compile("[0-9]{1,3}")

Change = Callable[[], None]

settings = typer.Typer(
    help="Settings that change while Splash runs. Without a command: list them.", rich_markup_mode=None
)


@settings.callback(invoke_without_command=True)
def list_settings(context: typer.Context, as_json: AsJson = False) -> None:
    if context.invoked_subcommand is not None:
        return
    client = running_control(this_place())
    overview, heartbeats, prices = client.overview(), client.heartbeats(), client.prices()
    if as_json:
        values = {
            CONCURRENCY: overview.concurrency,
            KEEP_AWAKE: overview.power.keep_awake,
            "heartbeats": heartbeats.modes,
            "prices": prices,
        }
        typer.echo(msgspec.json.encode(values).decode())
    else:
        listed = [*rows(overview.concurrency, heartbeats), keep_awake_row(overview.power), *price_rows(prices)]
        print_table(("setting", "value", "can be"), listed)


@settings.command("set")
def set_setting(
    texts: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="As `splash settings` shows them.")],
) -> None:
    """Change settings, at once and for later starts.

    For example: `splash settings set heartbeat.messages=ping`, or `'price.default=CNY 1/0.1/3'`. Of several, all are
    checked before the first is changed.
    """
    checks = [check_of(text) for text in texts]
    _require_different(texts)
    client = running_control(this_place())
    changes = [check(client) for check in checks]
    for text, change in zip(texts, changes, strict=True):
        change()
        typer.echo(f"{printable(text)} from now on.")


def rows(concurrency: int, heartbeats: HeartbeatSettings) -> list[tuple[str, str, str]]:
    return [
        (CONCURRENCY, str(concurrency), f"1 to {MAXIMUM_CONCURRENCY}"),
        *(
            (HEARTBEAT + dialect, mode, ", ".join(heartbeats.choices.get(dialect, ())))
            for dialect, mode in heartbeats.modes.items()
        ),
    ]


def keep_awake_row(power: Power) -> tuple[str, str, str]:
    choices = ", ".join(KEEP_AWAKE_CHOICES)
    return (KEEP_AWAKE, power.keep_awake, choices if power.can_keep_awake else f"{choices}; no effect on this machine")


def check_of(text: str) -> Callable[[AdminClient], Change]:
    """What asks control whether it can be, and gives what sends it; raises UsageWrong, as this does for itself."""
    name, has_value, value = text.partition("=")
    if not has_value:
        raise UsageWrong(f"What shall {printable(name)} be? NAME=VALUE.")
    if name == CONCURRENCY:
        if DIGIT.fullmatch(value) is None or not 1 <= int(value) <= MAXIMUM_CONCURRENCY:
            raise UsageWrong(f"{CONCURRENCY} is a number, 1 to {MAXIMUM_CONCURRENCY}, and not {printable(value)!r}.")
        return lambda client: partial(client.set_concurrency, int(value))
    if name == KEEP_AWAKE:
        keep_awake = _keep_awake(value)
        return lambda client: partial(client.set_keep_awake, keep_awake)
    if name.startswith(HEARTBEAT):
        return lambda client: _checked_heartbeat(client, name, value)
    if name.startswith(PRICE):
        name, value = _split(text)
        price, model = price_of(value, name), name.removeprefix(PRICE)
        return lambda client: _checked_price(client, model, price)
    raise _unknown(name)


def _split(text: str) -> tuple[str, str]:
    """Name and value. A model's id may hold a "=", a price can't."""
    name, _, value = text.rpartition("=") if text.startswith(PRICE) else text.partition("=")
    return name, value


def _require_different(texts: list[str]) -> None:
    """Raises UsageWrong: of two values nobody knows which was meant."""
    names = [name for name, _ in map(_split, texts)]
    for name in names:
        if names.count(name) > 1:
            raise UsageWrong(f"{printable(name)} is there twice; nothing was changed.")


def _checked_price(client: AdminClient, model: str, price: Price | None) -> Change:
    """Raises UsageWrong."""
    with_price(client.prices(), model, price)
    # Read again when it is sent: another price may have been set before it.
    return lambda: client.set_prices(with_price(client.prices(), model, price))


def _checked_heartbeat(client: AdminClient, name: str, value: str) -> Change:
    """Raises UsageWrong for a setting or a mode that control does not have."""
    dialect = name.removeprefix(HEARTBEAT)
    choices = client.heartbeats().choices.get(dialect)
    if choices is None:
        raise _unknown(name)
    if value not in choices:
        raise UsageWrong(f"{name} is one of {', '.join(choices)}, and not {printable(value)!r}.")
    return partial(client.set_heartbeat, dialect, value)


def _unknown(name: str) -> UsageWrong:
    return UsageWrong(f"There is no setting {printable(name)!r}; `splash settings` lists them.")


def _keep_awake(value: str) -> KeepAwake:
    """Raises UsageWrong."""
    for choice in KEEP_AWAKE_CHOICES:
        if value == choice:
            return choice
    raise UsageWrong(f"{KEEP_AWAKE} is one of {', '.join(KEEP_AWAKE_CHOICES)}, and not {printable(value)!r}.")
