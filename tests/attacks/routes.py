"""Every route of each of the four apps, as the code that serves them has it, with the methods that it takes.

It asks nobody: `test_no_change_by_get` does.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from pathlib import Path

from starlette.routing import BaseRoute, Route

import webui.pages
from control.assembly import assemble
from control.config import Settings
from control.home import Home
from control.public_api import public_api
from engine.door.server import Door, make_app
from engine.wire import ProcessRecord

RECORD = ProcessRecord(
    name="control", pid=1, created_at_s=0, nonce="n", port=18084, manager="detached", started_at_s=0, version="0"
)

Methods = dict[str, frozenset[str]]


def public_routes() -> Methods:
    return _methods(public_api(keys=None, relay=None, source=None, hosts=()).app.routes)


def engine_routes() -> Methods:
    door = Door(worker=None, text_thread=None, nonce="", on_shutdown=lambda: None)
    return _methods(make_app(door, secret="", port=1).routes)


def console_routes() -> Methods:
    """Of its pages; beside them there are /healthz and /static, which read files only."""
    names = [each.name for each in pkgutil.iter_modules(webui.pages.__path__)]
    modules = [importlib.import_module(f"webui.pages.{name}") for name in names]
    return _methods(route for module in modules for route in getattr(module, "ROUTES", ()))


async def admin_routes(folder: Path) -> Methods:
    """Of a control that is put together in `folder` and never serves."""
    home = Home(folder)
    home.create()
    control = await assemble(Settings(home=folder), home, RECORD, engine_command=("false",))
    try:
        return _methods(control.admin_app._app.routes)
    finally:
        await control.close()


def _methods(routes: Iterable[BaseRoute]) -> Methods:
    found: dict[str, set[str]] = {}
    for route in routes:
        assert isinstance(route, Route), route
        found.setdefault(route.path, set()).update(route.methods or ())
    return {path: frozenset(methods) for path, methods in found.items()}
