"""The command line `splash`: its commands, options and exit codes. What a command does is in the module of its name.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not running. What went wrong is one sentence on stderr.
"""

import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from control.cli.aliases import aliases
from control.cli.cache import cache
from control.cli.connect import connect
from control.cli.keys import keys
from control.cli.lan import lan
from control.cli.load_options import Budget, Context, DecodeShare, Given, KvBits, MaxGapMs, load_request
from control.cli.login import login
from control.cli.password import password
from control.cli.places import AsJson, running_control, this_place
from control.cli.requests import requests
from control.cli.settings import settings
from control.cli.words import one_of
from control.command_errors import CommandFailed, NotRunning, StartFailed
from control.config import Settings

FAILED: Final = 1
NOT_RUNNING: Final = 3

app = typer.Typer(
    name="splash",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain text: the boxes break words, and show flags as if they took a value.
    rich_markup_mode=None,
)
app.add_typer(keys, name="keys")
app.add_typer(cache, name="cache")
app.add_typer(aliases, name="aliases")
app.add_typer(settings, name="settings")
app.add_typer(requests, name="requests")
app.command()(connect)
app.command()(login)
app.command()(lan)
app.command()(password)

Model = Annotated[str | None, typer.Argument(help="A folder, a model's name, or `demo`. Without it: the last one.")]
Force = Annotated[bool, typer.Option("--force", help="Do not wait for running requests: cut them.")]
# Not for people: tests run a scripted engine.
EngineCommand = Annotated[str | None, typer.Option(hidden=True)]


def main() -> None:
    """Entry point. Every refusal ends here, as its sentence and its exit code."""
    # What a command has to say it says itself; the log lines of the modules it shares with control are not for here.
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    try:
        app()
    except CommandFailed as error:
        typer.echo(str(error), err=True)
        sys.exit(error.exit_code)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"splash {version('splash-server')}")
        raise typer.Exit


@app.callback()
def splash(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """An inference server that a big machine runs all day for coding agents."""


@app.command()
def up(
    model: Model = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    as_json: AsJson = False,
    context: Context = None,
    budget: Budget = None,
    kv_bits: KvBits = None,
    max_gap_ms: MaxGapMs = None,
    decode_share: DecodeShare = None,
    manager: Annotated[
        str | None, typer.Option(help="launchd or detached. Without it: launchd on a Mac with a desktop.")
    ] = None,
    engine_command: EngineCommand = None,
) -> None:
    """Start Splash, load a model, and wait until it is ready. Harmless when it runs already."""
    from control.cli.load_progress import LoadProgressLine
    from control.cli.up import Order, console_hint, greeting, made_home, remark
    from control.cli.up import up as bring_up
    from control.services.choice import MANAGER_CHOICES

    wanted = None if manager is None else one_of(manager, MANAGER_CHOICES, "a service manager")
    asked = load_request(model, Given(context, budget, kv_bits, max_gap_ms, decode_share))
    settings = Settings.from_env(os.environ)
    home = made_home(settings)
    order = Order(asked, opens_browser=not no_open, manager=wanted, engine_command=engine_command)
    try:
        with LoadProgressLine() as line:
            ready = bring_up(home, order, line.show, _say)
    except StartFailed as error:
        raise type(error)(f"{error}{console_hint(settings, home)}") from error
    if (said := remark(ready)) is not None:
        typer.echo(said, err=True)
    typer.echo(_json(ready.addresses) if as_json else greeting(ready))


@app.command("open")
def open_console(as_json: AsJson = False) -> None:
    """Open the console: print a fresh login link.

    Where there is a browser, the link is opened in it.
    """
    from control.cli.processes import find
    from control.cli.up import console_address, login_link

    place = this_place()
    client = running_control(place)
    console = find(place.home, "webui")
    if not console.is_ours or console.record is None:
        raise StartFailed("The console is not running; `splash up` starts it again.")
    link = login_link(place.home, client, console_address(place.settings, console.record), opens_browser=not as_json)
    typer.echo(_json({"login": link}) if as_json else link)


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show every process of this Splash and the memory that it holds."""
    from control.cli.status import is_running, table
    from control.cli.status import status as look

    report = look(this_place().home)
    if as_json:
        typer.echo(_json(report))
    else:
        table(report)
    if not is_running(report):
        raise typer.Exit(NOT_RUNNING)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what is wrong, why it matters, and how to mend it.

    It changes nothing and ends nobody, and works while nothing runs.
    """
    from control.cli.doctor import report, show
    from control.doctor.collection import collect

    facts = collect(Settings.from_env(os.environ), os.environ)
    found = report(facts)
    if as_json:
        typer.echo(_json(found))
    else:
        show(facts)
    if not found["ok"]:
        raise typer.Exit(FAILED)


@app.command("quit")
def quit_command(force: Force = False) -> None:
    """Stop everything: the model, the gateway, then the console."""
    from control.cli.quit import quit_splash
    from control.services.removal import remove_services

    home = this_place().home
    try:
        left = quit_splash(home, force=force, show=lambda text: typer.echo(text, err=True))
    except KeyboardInterrupt:
        typer.echo("The model and the gateway go on quitting; `splash quit` ends the console, too.", err=True)
        raise typer.Exit(FAILED) from None
    except NotRunning:
        remove_services(home)
        raise
    for each in left:
        typer.echo(f"{each.name} is still there: {each.reason}.", err=True)
    if left:
        typer.echo("`splash quit --force` does not wait.", err=True)
        raise typer.Exit(FAILED)
    remove_services(home)
    typer.echo("Splash has quit: its processes are gone and its ports are closed.")


@app.command("restart")
def restart_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROCESS", help="control, webui, engine. Without any: control and webui."),
    ] = None,
    force: Force = False,
    engine_command: EngineCommand = None,
) -> None:
    """Restart single processes, as after an upgrade.

    The model stays loaded unless the engine is named.
    """
    from control.cli.restart import TARGETS, Restart, interrupted, restart

    targets = [one_of(name, TARGETS, "a process") for name in names or ()]
    home = this_place().home
    try:
        for said in restart(Restart(home, _say, engine_command), targets, force=force):
            typer.echo(said)
    except KeyboardInterrupt:
        typer.echo(interrupted(home), err=True)
        raise typer.Exit(FAILED) from None


@app.command()
def load(
    model: Annotated[str, typer.Argument(help="A folder, a model's name, or `demo`.")],
    context: Context = None,
    budget: Budget = None,
    kv_bits: KvBits = None,
    max_gap_ms: MaxGapMs = None,
    decode_share: DecodeShare = None,
) -> None:
    """Load a model, gracefully in place of one that runs.

    Requests that run finish first; those that wait go on with the new model. A setting that is left out is
    what that model had last; `default` undoes it.
    """
    from control.cli.load_progress import LoadProgressLine
    from control.cli.restart import client_for_orders
    from control.cli.up import wait_until_loaded

    asked = load_request(model, Given(context, budget, kv_bits, max_gap_ms, decode_share))
    client = client_for_orders(this_place().home, _say)
    client.load(asked)
    with LoadProgressLine() as line:
        overview = wait_until_loaded(client, line.show)
    # Of the loaded model: `demo` and a folder are only what it was asked for by.
    loaded = overview.engine.model
    typer.echo(f"{loaded.id if loaded is not None else overview.engine.model_name} is ready.")


@app.command()
def unload(force: Force = False) -> None:
    """Unload the model and keep the rest up.

    Requests that run finish first; those that come meanwhile are held.
    """
    from control.cli.restart import client_for_orders
    from control.cli.up import wait_until_unloaded

    place = this_place()
    # By force it is at once, also of a control that leaves.
    client = running_control(place) if force else client_for_orders(place.home, _say)
    before = client.overview().engine
    accepted = client.unload(force=force)
    if accepted.running and not force:
        typer.echo(f"Waiting for {accepted.running} running; `splash unload --force` cuts them.", err=True)
    wait_until_unloaded(client)
    was_none = before.state == "unloaded" and before.wanted_model is None
    typer.echo("No model is loaded." if was_none else "The model is unloaded.")


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the models on this machine."""
    from control.cli.models import print_models

    print_models(this_place(), as_json=as_json)


@app.command()
def backup(
    file: Annotated[
        Path | None, typer.Argument(help="A new file, or a folder. Without it: SPLASH_HOME/backups.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the database into one new file.

    Keys, settings and all numbers; Splash may run meanwhile.
    """
    from control.cli.backup import print_backup

    print_backup(this_place(), file, as_json=as_json)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="engine, control, webui or login.")] = "control",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is written from now.")] = False,
) -> None:
    """Print the end of a process's log."""
    from control.cli.logs import print_log

    print_log(this_place().home, name, follow=follow)


def _say(text: str) -> None:
    """Beside the output, which scripts read."""
    typer.echo(text, err=True)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
