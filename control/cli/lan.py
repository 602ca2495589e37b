"""`splash lan on|off|status`: whether other machines may use the API, and the console when it has a password.

The choice is kept in splash.toml; what runs is restarted where it listens elsewhere. It makes no key and no password.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

import msgspec
import typer

from control.cli.places import AsJson, Place, running_control, this_place
from control.cli.processes import find
from control.cli.restart import Restart, Target, restart
from control.cli.words import one_of
from control.command_errors import CommandFailed, PortTaken, SettingsInvalid
from control.config import LAN_KEY, Settings, switch
from control.console_password import ConsolePassword
from control.doctor.collected_machine import listeners
from control.doctor.port_checks import collides
from control.home import Home
from control.identity import listening_address
from control.lan import lan_urls
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
    restart: tuple[Target, ...]


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
        place = _chosen(place, is_on=chosen == "on")
        follow(place, force=force, is_quiet=as_json, engine_command=engine_command)
    report = report_of(place)
    typer.echo(msgspec.json.encode(report).decode() if as_json else "\n".join(_said(report)))


def follow(place: Place, *, force: bool, is_quiet: bool, engine_command: str | None = None) -> None:
    """Restart what listens elsewhere than it should. Raises CommandFailed; the settings are kept in any case."""
    targets = listening_elsewhere(place)
    if not targets:
        return
    order = Restart(place.settings, place.home, lambda text: typer.echo(text, err=True), engine_command)
    try:
        for target in targets:
            for said in restart(order, (target,), force=force):
                typer.echo(said, err=is_quiet)
    except KeyboardInterrupt:
        typer.echo("What was asked to end goes on ending; `splash up` starts what is missing.", err=True)
        raise typer.Exit(FAILED) from None


def listening_elsewhere(place: Place) -> tuple[Target, ...]:
    """What runs, and does not listen where these settings and the password put it.

    The console first: it waits for nobody's request, so it is closed to others at once.
    """
    home, settings = place.home, place.settings
    has_password = ConsolePassword(home).is_set
    control, console = home.read_record("control"), home.read_record("webui")
    found: list[Target] = []
    if find(home, "control").is_alive and control is not None:
        if console is not None and find(home, "webui").is_alive:
            wanted = settings.console_host(has_password=has_password)
            if listening_address(console, console.port) != wanted:
                found.append("webui")
        if listening_address(control, control.ports.get("api", settings.api_port)) != settings.api_host:
            found.append("control")
    return tuple(found)


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
        restart=listening_elsewhere(place),
    )


def _chosen(place: Place, *, is_on: bool) -> Place:
    """The place with the choice kept in its file. Raises SettingsInvalid, PortTaken, HomeUnusable."""
    _require_no_other_word(os.environ, is_on=is_on)
    if is_on:
        _require_free_everywhere(place.settings, place.home)
    keep_setting(place.home, LAN_KEY, is_on)
    return this_place()


def _require_no_other_word(environment: Mapping[str, str], *, is_on: bool) -> None:
    """Raises SettingsInvalid: the environment goes before the file."""
    text = environment.get(LAN_KEY)
    if text is not None and switch(LAN_KEY, text, "environment") is not is_on:
        raise SettingsInvalid(
            f"environment: {LAN_KEY}={text} goes before splash.toml, so `splash lan` can't change it; unset it first."
        )


def _require_free_everywhere(settings: Settings, home: Home) -> None:
    """Nothing is ended for a start that can't succeed. Raises PortTaken: somebody has the port at another address."""
    records = home.read_records()
    ours = {record.pid for record in records}
    wanted = {settings.api_port: "SPLASH_API_PORT", settings.console_port: "SPLASH_CONSOLE_PORT"}
    opened = Settings(home.root, host=settings.host, is_lan_on=True).api_host
    for each in listeners():
        if each.port in wanted and each.pid not in ours and collides(each.address, opened):
            raise PortTaken(port=each.port, key=wanted[each.port], holder=f"pid {each.pid} ({each.command})")


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
        yield f"Still listening as before: {', '.join(report.restart)}; `splash restart` changes that."


def _listed(label: str, urls: tuple[str, ...]) -> Iterator[str]:
    yield from (f"  {label if number == 0 else '':9}{url}" for number, url in enumerate(urls))


def _key_sentence(has_key: bool | None) -> str:
    if has_key is False:
        return "Each request needs a key, and there is none; `splash keys new NAME` makes one."
    return "Each request needs a key; `splash keys new NAME` makes one for another machine."
