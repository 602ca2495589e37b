"""Endpoints of the page *Model*: the page, and its three parts, each of which asks again by itself.

Orders to the engine are `webui.pages.engine_orders`, the form that loads a model is `webui.pages.load`.
"""

import asyncio
import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from webui.errors import ConsoleError
from webui.pages.edge import Console, console_of
from webui.views.model import model_page
from webui.views.shell import Shell

logger = logging.getLogger(__name__)

TEMPLATE: Final = "model.html"
# The page comes at once; what takes longer is asked for again by its part.
_PAGE_WAITS_S: Final = 0.5
_LIST_WAITS_S: Final = 20.0
# Thousands of processes are looked at.
_MACHINE_WAITS_S: Final = 8.0


async def show(request: Request) -> Response:
    console = console_of(request)
    shell = await _shell(request)
    models, machine = await asyncio.gather(
        console.watch.models(wait_s=_PAGE_WAITS_S), _machine(console, wait_s=_PAGE_WAITS_S)
    )
    view = model_page(
        await console.watch.look(), shell, models=models or None, unusable=console.watch.unusable, machine=machine
    )
    return console.answer(request, TEMPLATE, view)


async def show_live(request: Request) -> Response:
    console = console_of(request)
    view = model_page(await console.watch.look(), await _shell(request))
    return console.answer(request, TEMPLATE, view, block="live")


async def show_models(request: Request) -> Response:
    """Asked for every two seconds: what is known goes out at once, and a newer list the next time."""
    console = console_of(request)
    seen = await console.watch.look()
    models = await console.watch.models(wait_s=_PAGE_WAITS_S) or await console.watch.models(wait_s=_LIST_WAITS_S)
    view = model_page(seen, await _shell(request), models=models, unusable=console.watch.unusable)
    return console.answer(request, TEMPLATE, view, block="models")


async def show_machine(request: Request) -> Response:
    console = console_of(request)
    machine = await _machine(console, wait_s=_MACHINE_WAITS_S)
    view = model_page(await console.watch.look(), await _shell(request), machine=machine)
    return console.answer(request, TEMPLATE, view, block="machine")


async def _shell(request: Request) -> Shell:
    return await console_of(request).shell(request, "model", "nav.model", here="/model")


async def _machine(console: Console, *, wait_s: float) -> wire.Machine | None:
    try:
        return await console.control.ask("GET", wire.MACHINE, wire.Machine, timeout_s=wait_s)
    except ConsoleError as error:
        logger.debug("machine unknown reason=%s", error)
        return None


ROUTES: Final = (
    Route("/model", show),
    Route("/model/live", show_live),
    Route("/model/list", show_models),
    Route("/model/machine", show_machine),
)
