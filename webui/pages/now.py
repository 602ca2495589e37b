"""Endpoints of the page *Now*: the page, its live part, and the orders that its buttons give; but for the load form.

It decides nothing about the engine: each order is one question to control.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control.wire import NUM_SLOTS
from webui.errors import BadForm
from webui.pages.edge import Form, console_of, order, see_other, whole_number
from webui.views.now import cleared_notice, now_page
from webui.views.shell import StatePage

TEMPLATE: Final = "now.html"
# The page comes at once; the list of models is asked for again when somebody opens it.
PAGE_WAITS_S: Final = 0.5


async def show(request: Request) -> Response:
    console = console_of(request)
    models = await console.watch.models(wait_s=PAGE_WAITS_S)
    shell = await console.shell(request, "now", "now.title")
    return console.answer(request, TEMPLATE, now_page(await console.watch.look(), shell, models))


async def show_live(request: Request) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "now", "now.title")
    return console.answer(request, TEMPLATE, now_page(await console.watch.look(), shell), block="live")


async def show_state(request: Request) -> Response:
    """The masthead, on whatever page it stands."""
    console = console_of(request)
    return console.answer(
        request, "base.html", StatePage(await console.shell(request, "now", "now.title")), block="state"
    )


async def unload(request: Request, _: Form) -> Response:
    await console_of(request).control.unload(force=False)
    return see_other("/")


async def force_stop(request: Request, _: Form) -> Response:
    await console_of(request).control.unload(force=True)
    return see_other("/")


async def restart(request: Request, _: Form) -> Response:
    await console_of(request).control.restart()
    return see_other("/")


async def clear_cache(request: Request, _: Form) -> Response:
    """What was freed is seen nowhere on the page, so it is said."""
    console = console_of(request)
    cleared = await console.control.clear_cache()
    response = see_other("/")
    console.sessions.leave_notice(response, cleared_notice(cleared, console.text_for(request)), is_good=True)
    return response


async def set_concurrency(request: Request, form: Form) -> Response:
    concurrency = whole_number(form, "concurrency")
    if concurrency is None or not 1 <= concurrency <= NUM_SLOTS:
        raise BadForm("concurrency")
    await console_of(request).control.set_concurrency(concurrency)
    return see_other("/")


async def cancel(request: Request, _: Form) -> Response:
    await console_of(request).control.cancel(request.path_params["request_id"])
    return see_other("/")


ROUTES: Final = (
    Route("/", show),
    Route("/now/live", show_live),
    Route("/state", show_state),
    Route("/engine/unload", order(unload), methods=["POST"]),
    Route("/engine/stop", order(force_stop), methods=["POST"]),
    Route("/engine/restart", order(restart), methods=["POST"]),
    Route("/engine/cache/clear", order(clear_cache), methods=["POST"]),
    Route("/concurrency", order(set_concurrency), methods=["POST"]),
    Route("/requests/{request_id}/cancel", order(cancel), methods=["POST"]),
)
