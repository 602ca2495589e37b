"""Endpoints of the page *Quit*: ask, order, and watch the end.

The order goes to control; whether it was followed is read from the processes.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from webui.errors import ControlGone
from webui.pages.edge import Form, console_of, order, see_other
from webui.views.quit import QuitPage, quit_page

_TEMPLATE: Final = "quit.html"


async def show(request: Request) -> Response:
    return console_of(request).answer(request, _TEMPLATE, await _view(request))


async def show_live(request: Request) -> Response:
    return console_of(request).answer(request, _TEMPLATE, await _view(request), block="live")


async def quit_splash(request: Request, form: Form) -> Response:
    console = console_of(request)
    console.farewell.remember()
    try:
        await console.control.quit(force=form.get("force") == "yes")
    except ControlGone:
        # A gateway that lives and is silent has not got the order; one that is gone has nothing left to do.
        if console.farewell.progress().gateway != "gone":
            raise
    console.farewell.begin()
    return see_other("/quit")


async def _view(request: Request) -> QuitPage:
    console = console_of(request)
    shell = await console.shell(request, "quit", "quit.title", here="/quit")
    seen = await console.watch.look()
    return quit_page(shell, console.farewell.progress(), seen, has_begun=console.farewell.has_begun)


ROUTES: Final = (
    Route("/quit", show),
    Route("/quit", order(quit_splash, back="/quit"), methods=["POST"]),
    Route("/quit/live", show_live),
)
