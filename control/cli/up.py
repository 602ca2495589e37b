"""`splash up`: bring control and the console up, load a model, say where everything is. Repeating it changes nothing.

It stops nothing that it can reuse: what listens elsewhere than the settings say it replaces, what isn't ours it names.
"""

import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from control.cli.admin_client import AdminClient
from control.cli.login_page import written_page
from control.cli.processes import Found, find, has_display, wait_for, wait_until_found
from control.cli.replacing import Replacing, settings_now
from control.cli.settling import SETTLE_LIMIT_S, FollowingClient
from control.cli.starting import start_console, start_control
from control.cli.turns import turn
from control.command_errors import CommandFailed, StartFailed
from control.config import Settings, bracketed
from control.console_password import ConsolePassword
from control.home import Home, ProcessName
from control.loopback import LOOPBACK
from control.ports import require_free
from control.services.choice import ManagerChoice, manager_for
from control.services.protocol import Launched
from control.wire import EngineView, LoadRequest, Overview
from engine.wire import ProcessRecord

POLL_S: Final = 0.1
PRINTED_LINK_S: Final = 600.0
OPENED_LINK_S: Final = 30.0
DEMO_NOTE: Final = ", a demo with random weights: it writes nonsense. `splash load FOLDER` loads a real one"
FIRST_KEY_NAME: Final = "default"
QUIT_LIMIT_S: Final = 30.0
CONSOLE_LIMIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Order:
    """What the person asked for. `engine_command` replaces `python -m engine`; tests give a scripted engine with it.

    `manager` None: the machine's own. It is for what is started; what runs stays where it is.
    """

    load: LoadRequest
    opens_browser: bool
    manager: ManagerChoice | None = None
    engine_command: str | None = None


class Addresses(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `splash up --json` prints. `key` is there the first time only."""

    api: str
    console: str
    login: str
    model: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """`set_aside`, `from_copy`: as in `control.wire.DatabaseHealth`."""

    addresses: Addresses
    is_demo: bool
    set_aside: str | None = None
    from_copy: bool = False


def made_home(settings: Settings) -> Home:
    """The home of these settings, with its folders. A start that would be refused for a port leaves no new ones behind.

    Raises PortTaken, PortUnusable, HomeUnusable.
    """
    home = Home(settings.home)
    if not home.root.exists():
        _require_ports(settings, home, Found("control", None, None), Found("webui", None, None))
    home.create()
    return home


def up(home: Home, order: Order, show: Callable[[EngineView], None], say: Callable[[str], None]) -> Ready:
    """Everything runs when this returns. Raises CommandFailed; what did start then stays up, and can explain itself.

    `show` gets how far the load is, `say` what else takes time.
    """
    with turn(home, say):
        # Somebody may have changed them while the turn was waited for.
        settings = settings_now(home)
        control, console = _start(settings, home, order, say)
        client = FollowingClient(home, control)
        key = None
        if not client.keys():
            key = client.new_key(FIRST_KEY_NAME, "interactive").key
        client.load(order.load)
    overview = wait_until_loaded(client, show)
    model = overview.engine.model
    address = console_address(settings, console)
    # The link comes last: its time runs from now.
    link = login_link(home, client, address, opens_browser=order.opens_browser)
    name = model.id if model is not None else overview.engine.model_name or ""
    addresses = Addresses(api=overview.api_base, console=address, login=link, model=name, key=key)
    database, is_demo = overview.database, model is not None and model.is_demo
    return Ready(addresses, is_demo=is_demo, set_aside=database.set_aside, from_copy=database.from_copy)


def wait_until_loaded(client: AdminClient, show: Callable[[EngineView], None]) -> Overview:
    """Follow the load to its end. Raises StartFailed with the engine's own sentence.

    A download that failed leaves what ran before ready, or unloaded, with an error.
    """
    while True:
        overview = client.overview()
        engine = overview.engine
        show(engine)
        is_there = engine.state == "ready" and engine.wanted_model == engine.model_name
        if is_there and engine.error is None:
            return overview
        if is_there or engine.state == "failed" or (engine.state == "unloaded" and engine.wanted_model is None):
            raise StartFailed(engine.error or "The load was called off by somebody else.")
        time.sleep(POLL_S)


def wait_until_unloaded(client: AdminClient) -> None:
    """Raises StartFailed when the engine could not be stopped, or when somebody wants a model again."""
    while True:
        engine = client.overview().engine
        if engine.state == "unloaded":
            return
        if engine.state == "failed" or engine.wanted_model != engine.model_name or engine.state == "ready":
            raise StartFailed(engine.error or f"The engine is {engine.state}: somebody else gave another order.")
        time.sleep(POLL_S)


def login_link(home: Home, client: AdminClient, address: str, *, opens_browser: bool) -> str:
    """A fresh link, opened in the browser where there is one to see it. Raises HomeUnusable when it can't be."""
    is_opened = opens_browser and has_display()
    token = client.login_link(valid_s=OPENED_LINK_S if is_opened else PRINTED_LINK_S).token
    link = f"{address}/login?token={token}"
    if is_opened:
        webbrowser.open(written_page(home, link).as_uri())
    return link


def console_address(settings: Settings, console: ProcessRecord) -> str:
    return f"http://{bracketed(settings.host)}:{console.port}"


def console_hint(settings: Settings, home: Home) -> str:
    """Where the person can look, after a load that failed; empty when the console is not up either."""
    console = find(home, "webui")
    if not console.is_ours or console.record is None:
        return ""
    return f"\nThe console is up at {console_address(settings, console.record)}; `splash open` gives a login link."


def greeting(ready: Ready) -> str:
    """What a person reads when everything is up."""
    addresses = ready.addresses
    shown_key = addresses.key or "$KEY"
    lines = [
        f"Splash is ready with {addresses.model}{DEMO_NOTE if ready.is_demo else ''}.",
        "",
        f"  Console   {addresses.login}",
        f"  API base  {addresses.api}",
    ]
    if addresses.key is not None:
        lines.append(f"  API key   {addresses.key}   (shown this once; `splash keys new NAME` makes more)")
    body = '{"model":"default","max_tokens":64,"messages":[{"role":"user","content":"Hello"}]}'
    lines += [
        "",
        f'  curl {addresses.api}/chat/completions -H "Authorization: Bearer {shown_key}" \\',
        f"    -H 'Content-Type: application/json' -d '{body}'",
    ]
    return "\n".join(lines)


def remark(ready: Ready) -> str | None:
    """What is not as it was; None: nothing."""
    if ready.from_copy:
        return (
            "There was no database: a new one was begun, with the keys and settings of splash-keys.json. To begin with "
            "nothing, `splash quit`, and remove both."
        )
    if ready.set_aside is None:
        return None
    return (
        f"The database was damaged, and is now {ready.set_aside}. A new one has what could be read of it; "
        "`splash keys` and `splash settings` show what came over, `splash logs` says how much."
    )


def _start(
    settings: Settings, home: Home, order: Order, say: Callable[[str], None]
) -> tuple[ProcessRecord, ProcessRecord]:
    """Both processes, each reused when it is alive and ours. Both are started before either is waited for."""
    _wait_for_quit(home)
    replacing = Replacing(home, say, order.engine_command)
    if _is_leaving(home):
        say("Control leaves, because a restart was interrupted; the next one is started when it has.")
        replacing.control(force=False)
    for misplaced, new in replacing.put_in_place():
        say(f"{misplaced.name} is pid {new.pid}: {misplaced}.")
    control, console = _find_settled(home, "control"), _find_settled(home, "webui")
    admin_port = control.record.port if control.is_ours and control.record is not None else settings.admin_port
    _require_ports(settings, home, control, console)
    manager = manager_for(home, order.manager)
    launched: dict[ProcessName, Launched] = {}
    try:
        if not control.is_ours:
            launched["control"] = start_control(manager, home, order.engine_command)
        if not console.is_ours:
            launched["webui"] = start_console(manager, settings, home, admin_port)
        return _record(home, control, launched), _record(home, console, launched)
    except BaseException:
        # Nothing is left half-started: one of the two without the other explains nothing.
        for each in launched.values():
            each.end()
        raise


def _wait_for_quit(home: Home) -> None:
    """A Splash that is quitting is let go first. Raises StartFailed when that takes long."""
    control = find(home, "control")
    if not control.is_ours or control.record is None:
        return
    try:
        if not AdminClient(home, control.record).overview().quitting:
            return
    except CommandFailed:
        return
    is_gone = wait_for(lambda: find(home, "control").nonce != control.nonce, QUIT_LIMIT_S)
    if not is_gone:
        raise StartFailed("Splash is quitting, and is not done yet; `splash status` shows what is left of it.")
    # Whoever ordered the quit ends the console last.
    wait_for(lambda: not find(home, "webui").is_alive, CONSOLE_LIMIT_S)


def _is_leaving(home: Home) -> bool:
    """Nobody is there to start the next: whoever ordered it has the turn until then."""
    control = find(home, "control")
    if not control.is_ours or control.record is None:
        return False
    try:
        return AdminClient(home, control.record).overview().leaving
    except CommandFailed:
        return False


def _require_ports(settings: Settings, home: Home, control: Found, console: Found) -> None:
    """Before anything is started. Raises PortTaken, which names the setting; PortUnusable."""
    if not control.is_ours:
        for host in dict.fromkeys((settings.host, settings.api_host)):
            require_free(host, settings.api_port, key="SPLASH_API_PORT")
        require_free(LOOPBACK, settings.admin_port, key="SPLASH_ADMIN_PORT")
        # An engine that outlived its control has its port, and will be adopted.
        if not find(home, "engine").is_alive:
            require_free(LOOPBACK, settings.engine_port, key="SPLASH_ENGINE_PORT")
    if not console.is_ours:
        console_host = settings.console_host(has_password=ConsolePassword(home).is_set)
        for host in dict.fromkeys((settings.host, console_host)):
            require_free(host, settings.console_port, key="SPLASH_CONSOLE_PORT")


def _find_settled(home: Home, name: ProcessName) -> Found:
    """What is there, once it no longer comes or goes. Raises StartFailed when it lives and can't be used."""
    wait_for(lambda: find(home, name).is_settled, SETTLE_LIMIT_S)
    if name == "control":
        # One that has just begun has no record yet, and one that lost it writes it again.
        wait_for(lambda: find(home, name).is_alive or home.holder_of(name) is None, SETTLE_LIMIT_S)
    found = find(home, name)
    if found.is_alive and not found.is_ours and found.identity is not None:
        raise StartFailed(
            f"{name} can't be used: {found.identity.reason}. `splash quit --force` ends it if it is ours."
        )
    return found


def _record(home: Home, found: Found, launched: dict[ProcessName, Launched]) -> ProcessRecord:
    if found.name in launched:
        return wait_until_found(home, found.name, launched[found.name])
    assert found.record is not None
    return found.record
