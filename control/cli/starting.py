"""How control and the console are started: their command lines, in the hands of a service manager.

It waits for nothing; whether they came up is found out by their records.
"""

import os

from control.cli.processes import python_module
from control.config import HOME_KEY, Settings
from control.console_password import ConsolePassword
from control.home import Home, ProcessName
from control.services.protocol import Launched, ServiceManager
from control.services.removal import has_service, remove_service


def start_control(manager: ServiceManager, home: Home, engine_command: str | None) -> Launched:
    """Raises StartFailed, HomeUnusable."""
    arguments = ["--manager", manager.name]
    if engine_command is not None:
        arguments += ["--engine-command", engine_command]
    return _start(manager, home, "control", python_module("control", *arguments))


def start_console(manager: ServiceManager, settings: Settings, home: Home, admin_port: int) -> Launched:
    """Raises StartFailed, HomeUnusable."""
    host = settings.console_host(has_password=ConsolePassword(home).is_set)
    arguments = (
        *("--home", str(home.root)),
        *("--port", str(settings.console_port)),
        *("--admin-port", str(admin_port)),
        *("--host", host),
        *(("--lan",) if host != settings.host else ()),
        *("--manager", manager.name),
    )
    return _start(manager, home, "webui", python_module("webui", *arguments))


def _start(manager: ServiceManager, home: Home, name: ProcessName, command: list[str]) -> Launched:
    if manager.name != "launchd" and has_service(home, name):
        # Of an earlier start of this home, whose process has ended.
        remove_service(home, name)
    # Whole: a path from here is another one from the process's own working directory.
    return manager.start(name, command, dict(os.environ) | {HOME_KEY: str(home.root)})
