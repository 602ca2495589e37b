"""Endpoints of the load form: its list of models, its settings for the model that is chosen, and the order.

A form that can't be read comes back as it was filled in, with the reason at each field.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from webui.load_form import read
from webui.pages.edge import Form, console_of, order, see_other
from webui.pages.now import PAGE_WAITS_S, TEMPLATE
from webui.views.now import now_page

_LIST_WAITS_S: Final = 20.0
_UNREADABLE: Final = 422


async def show_models(request: Request) -> Response:
    """The choices of the list of models, as they are now."""
    console = console_of(request)
    models = await console.watch.models(wait_s=_LIST_WAITS_S)
    shell = await console.shell(request, "now", "now.title")
    view = now_page(await console.watch.look(), shell, models, form=request.query_params)
    return console.answer(request, TEMPLATE, view, block="models")


async def show_settings(request: Request) -> Response:
    """What the chosen model runs with, where that is known, and what a person made of it, with what is wrong in it."""
    console = console_of(request)
    shell = await console.shell(request, "now", "now.title")
    form = request.query_params
    view = now_page(await console.watch.look(), shell, form=form, wrong=read(form).wrong)
    return console.answer(request, TEMPLATE, view, block="load_settings")


async def load(request: Request, form: Form) -> Response:
    console = console_of(request)
    filled = read(form)
    if filled.order is not None:
        await console.control.load(filled.order)
        return see_other("/")
    models = await console.watch.models(wait_s=PAGE_WAITS_S)
    shell = await console.shell(request, "now", "now.title")
    view = now_page(await console.watch.look(), shell, models, form=form, wrong=filled.wrong)
    return console.answer(request, TEMPLATE, view, status=_UNREADABLE)


ROUTES: Final = (
    Route("/now/models", show_models),
    Route("/now/load-settings", show_settings),
    Route("/engine/load", order(load), methods=["POST"]),
)
