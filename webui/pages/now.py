"""Endpoints of the page *Now*: the page, its live part, and the orders that its buttons give.

It decides nothing about the engine: each order is one question to control.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from control.wire import NUM_SLOTS, LoadRequest
from webui.errors import BadForm
from webui.pages.edge import Form, console_of, see_other, whole_number
from webui.views.now import now_page
from webui.views.shell import StatePage

_TEMPLATE: Final = "now.html"
# The page comes at once; the list of models is asked for again when somebody opens it.
_PAGE_WAITS_S: Final = 0.5
_LIST_WAITS_S: Final = 20.0


async def show(request: Request) -> Response:
    console = console_of(request)
    models = await console.watch.models(wait_s=_PAGE_WAITS_S)
    shell = await console.shell(request, "now", "now.title")
    return console.answer(request, _TEMPLATE, now_page(await console.watch.look(), shell, models))


async def show_live(request: Request) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "now", "now.title")
    return console.answer(request, _TEMPLATE, now_page(await console.watch.look(), shell), block="live")


async def show_state(request: Request) -> Response:
    """The masthead, on whatever page it stands."""
    console = console_of(request)
    return console.answer(
        request, "base.html", StatePage(await console.shell(request, "now", "now.title")), block="state"
    )


async def show_models(request: Request) -> Response:
    """The choices of the list of models, as they are now."""
    console = console_of(request)
    models = await console.watch.models(wait_s=_LIST_WAITS_S)
    shell = await console.shell(request, "now", "now.title")
    return console.answer(request, _TEMPLATE, now_page(await console.watch.look(), shell, models), block="models")


async def load(request: Request, form: Form) -> Response:
    # What was typed wins over what is selected: the list always has something selected.
    model = form.get("other_model", "").strip() or form.get("model", "").strip() or None
    order = LoadRequest(model=model, context=whole_number(form, "context"))
    await console_of(request).control.load(order)
    return see_other("/")


async def unload(request: Request, _: Form) -> Response:
    await console_of(request).control.unload(force=False)
    return see_other("/")


async def force_stop(request: Request, _: Form) -> Response:
    await console_of(request).control.unload(force=True)
    return see_other("/")


async def restart(request: Request, _: Form) -> Response:
    await console_of(request).control.restart()
    return see_other("/")


async def set_concurrency(request: Request, form: Form) -> Response:
    concurrency = whole_number(form, "concurrency")
    if concurrency is None or not 1 <= concurrency <= NUM_SLOTS:
        raise BadForm("concurrency")
    await console_of(request).control.set_concurrency(concurrency)
    return see_other("/")


async def cancel(request: Request, _: Form) -> Response:
    await console_of(request).control.cancel(request.path_params["request_id"])
    return see_other("/")
