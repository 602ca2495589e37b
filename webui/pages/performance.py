"""Endpoints of the page *Performance*: the whole page for a range and a model, and the part that refreshes itself.

It changes nothing.
"""

import logging
import time
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from webui.errors import ConsoleError, ControlGone, ControlRefused
from webui.pages.edge import Console, console_of, sentence_for
from webui.views.performance import LIVE_PATH, PATH, RANGES, USUAL_RANGE, PerformancePage, performance_page

logger = logging.getLogger(__name__)

_TEMPLATE: Final = "performance.html"


async def show(request: Request) -> Response:
    return console_of(request).answer(request, _TEMPLATE, await _page(request))


async def show_live(request: Request) -> Response:
    """Nothing while control is silent: what is shown stays, and the state at the top says that it does not answer."""
    page = await _page(request)
    if page.measured is None and not page.is_refused:
        return Response(status_code=204)
    return console_of(request).answer(request, _TEMPLATE, page, block="live")


async def _page(request: Request) -> PerformancePage:
    console = console_of(request)
    chosen_range = next((each for each in RANGES if each == request.query_params.get("range")), USUAL_RANGE)
    chosen_model = request.query_params.get("model") or None
    query = urlencode({"range": chosen_range} | ({"model": chosen_model} if chosen_model is not None else {}))
    shell = await console.shell(request, "performance", "performance.title", here=f"{PATH}?{query}")
    performance, refusal = None, None
    try:
        performance = await console.control.ask("GET", f"{wire.PERFORMANCE}?{query}", wire.Performance)
    except ControlRefused as refused:
        refusal = sentence_for(refused, shell.text)
    except ControlGone:
        logger.info("performance unknown: control is silent")
    overview = (await console.watch.look()).overview
    return performance_page(
        shell,
        chosen_range=chosen_range,
        chosen_model=chosen_model,
        performance=performance,
        refusal=refusal,
        promises=overview.engine.promises if overview is not None else None,
        misses=await _misses(console),
        now_s=time.time(),
    )


async def _misses(console: Console) -> wire.MissList | None:
    """None when they are not known now: the rest of the page does not depend on them."""
    try:
        return await console.control.ask("GET", wire.MISSES, wire.MissList)
    except ConsoleError:
        return None


ROUTES: Final = (Route(PATH, show), Route(LIVE_PATH, show_live))
