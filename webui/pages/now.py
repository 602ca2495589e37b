"""Endpoints of the page *Now*: the page, its live part, and the end of one request.

Orders to the engine are `webui.pages.engine_orders`.
"""

import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control.wire import PERFORMANCE, Performance
from webui.errors import ConsoleError
from webui.pages.edge import Form, console_of, order, see_other
from webui.views.now import hour_page, now_page
from webui.views.shell import StatePage

logger = logging.getLogger(__name__)

TEMPLATE: Final = "now.html"


async def show(request: Request) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "now", "now.title")
    return console.answer(request, TEMPLATE, now_page(await console.watch.look(), shell))


async def show_live(request: Request) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "now", "now.title")
    return console.answer(request, TEMPLATE, now_page(await console.watch.look(), shell), block="live")


async def show_hour(request: Request) -> Response:
    """Nothing while it is not known: what is shown stays, and the state at the top says why."""
    console = console_of(request)
    try:
        performance = await console.control.ask("GET", f"{PERFORMANCE}?range=hour", Performance)
    except ConsoleError as error:
        logger.debug("last hour unknown reason=%s", error)
        return Response(status_code=204)
    shell = await console.shell(request, "now", "now.title")
    return console.answer(request, TEMPLATE, hour_page(performance, shell), block="hour")


async def show_state(request: Request) -> Response:
    """The masthead, on whatever page it stands."""
    console = console_of(request)
    return console.answer(
        request, "base.html", StatePage(await console.shell(request, "now", "now.title")), block="state"
    )


async def cancel(request: Request, _: Form) -> Response:
    await console_of(request).control.cancel(request.path_params["request_id"])
    return see_other("/")


ROUTES: Final = (
    Route("/", show),
    Route("/now/live", show_live),
    Route("/now/hour", show_hour),
    Route("/state", show_state),
    Route("/requests/{request_id}/cancel", order(cancel), methods=["POST"]),
)
