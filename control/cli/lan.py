"""`splash lan on|off|status`: whether other machines may use the API, and the console when it has a password.

The choice is kept in splash.toml; what runs is restarted where it listens elsewhere. It makes no key and no password.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal

import msgspec
import typer

from control.cli.addresses import require_addresses
from control.cli.places import AsJson, Place, running_control, this_place
from control.cli.processes import Found, find
from control.cli.replacing import settings_now
from control.cli.restart import Restart, hurry_leaving_control, interrupted
from control.cli.turns import turn
from control.cli.words import one_of
from control.command_errors import (
    CommandFailed,
    HomeUnusable,
    PortPassing,
    PortTaken,
    SettingsInvalid,
    StartFailed,
    StartRefused,
)
from control.config import LAN_KEY, switch
from control.console_password import ConsolePassword
from control.home import Home
from control.lan import lan_urls
from control.misplaced import misplaced
from control.settings_file import keep_setting

Order = Literal["on", "off", "status"]
ORDERS: Final[tuple[Order, ...]] = ("on", "off", "status")
FAILED: Final = 1


class LanReport(msgspec.Struct, frozen=True):
    """What `splash lan --json` prints. `api`, `console`: what other machines use; empty when they can't.

    `restart`: what runs and still listens as before. `has_key` None: control can't be asked.
    """

    lan: bool
    running: bool
    api: tuple[str, ...]
    console: tuple[str, ...]
    has_password: bool
    has_key: bool | None
    restart: tuple[Literal["control", "webui"], ...]


def lan(
    order: str = typer.Argument("status", help="on, off or status."),
    force: Annotated[bool, typer.Option("--force", help="Do not wait for running requests: cut them.")] = False,
    as_json: AsJson = False,
    engine_command: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Let other machines of this network in.

    They can use the API, with a key, and the console once it has a password. What runs is restarted where it has to
    listen elsewhere: running requests finish first, and the model stays loaded.
    """
    chosen = one_of(order, ORDERS, "an order")
    place = this_place()
    if chosen != "status":
        _choose(place.home, is_on=chosen == "on")
        try:
            for said in follow(Restart(place.home, _say, engine_command), force=force):
                typer.echo(said, err=as_json)
        except KeyboardInterrupt:
            typer.echo(interrupted(place.home), err=True)
            raise typer.Exit(FAILED) from None
        place = this_place()
    report = report_of(place)
    typer.echo(msgspec.json.encode(report).decode() if as_json else "\n".join(_said(report)))


def follow(order: Restart, *, force: bool) -> Iterator[str]:
    """A sentence about each that was restarted, because it listened elsewhere than it should. Raises CommandFailed.

    The settings are kept, but for a LAN mode that could not be started: that is taken back.
    """
    home, replacing = order.home, order.replacing
    closed = replacing.close_console(only_if_open=True)
    if force:
        hurry_leaving_control(home)
    with turn(home, order.show):
        before = find(home, "control")
        if closed is not None and not find(home, "webui").is_alive:
            yield f"webui is pid {replacing.webui(ended=closed).pid}."
        try:
            yield from order.put_in_place(force=force)
        except (StartFailed, PortTaken, PortPassing, HomeUnusable) as error:
            if not settings_now(home).is_lan_on or LAN_KEY in os.environ:
                raise
            raise _taken_back(order, before, error) from error


def report_of(place: Place) -> LanReport:
    settings = place.settings
    has_password = ConsolePassword(place.home).is_set
    is_on = settings.is_lan_on
    return LanReport(
        lan=is_on,
        running=find(place.home, "control").is_alive,
        api=tuple(f"{url}/v1" for url in lan_urls(settings.api_port)) if is_on else (),
        console=lan_urls(settings.console_port) if is_on and has_password else (),
        has_password=has_password,
        has_key=_has_key(place),
        restart=tuple(each.name for each in misplaced(place.home, settings)),
    )


def _choose(home: Home, *, is_on: bool) -> None:
    """Keep the choice in the home's file. Raises SettingsInvalid, PortTaken, HomeUnusable."""
    _require_no_other_word(os.environ, is_on=is_on)
    if is_on:
        require_addresses(home, replace(settings_now(home), is_lan_on=True))
    keep_setting(home, LAN_KEY, is_on)


def _taken_back(order: Restart, before: Found, error: CommandFailed) -> StartFailed:
    """LAN mode could not be started: Splash serves this machine as it did. What is to be said of that."""
    home = order.home
    keep_setting(home, LAN_KEY, False)
    kind = StartRefused if error.exit_code == StartRefused.exit_code else StartFailed
    try:
        if before.is_alive and before.record is not None and not find(home, "control").is_alive:
            order.replacing.start_control(before.record)
        for _ in order.put_in_place(force=False):
            pass
    except CommandFailed as second:
        return kind(f"{error} LAN is off again, and Splash does not run as before: {second}")
    is_well = not before.is_alive or find(home, "control").is_ours
    return kind(f"{error} LAN is off again{', and Splash serves this machine as before' if is_well else ''}.")


def _require_no_other_word(environment: Mapping[str, str], *, is_on: bool) -> None:
    """Raises SettingsInvalid: the environment goes before the file."""
    text = environment.get(LAN_KEY)
    if text is not None and switch(LAN_KEY, text, "environment") is not is_on:
        raise SettingsInvalid(
            f"environment: {LAN_KEY}={text} goes before splash.toml, so `splash lan` can't change it; unset it first."
        )


def _has_key(place: Place) -> bool | None:
    try:
        keys = running_control(place).keys()
    except CommandFailed:
        return None
    return any(key.revoked_at_s is None for key in keys)


def _said(report: LanReport) -> Iterator[str]:
    if not report.lan:
        yield "LAN is off: Splash serves this machine only. `splash lan on` lets other machines in."
    else:
        yield "LAN is on: other machines of this network can use the API."
        yield ""
        yield from _listed("API", report.api)
        yield from _listed("Console", report.console)
        yield ""
        if not report.has_password:
            yield "The console is for this machine only; `splash password` sets a password and lets others in."
        yield _key_sentence(report.has_key)
        yield "Nothing is encrypted: keys, the password and every answer can be read on the way. Trusted networks only."
    if not report.running:
        yield "Splash is not running; `splash up` starts it so."
    if report.restart:
        yield f"Still listening as before: {', '.join(report.restart)}; `splash up` changes that."


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _listed(label: str, urls: tuple[str, ...]) -> Iterator[str]:
    yield from (f"  {label if number == 0 else '':9}{url}" for number, url in enumerate(urls))


def _key_sentence(has_key: bool | None) -> str:
    if has_key is False:
        return "Each request needs a key, and there is none; `splash keys new NAME` makes one."
    return "Each request needs a key; `splash keys new NAME` makes one for another machine."
