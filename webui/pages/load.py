"""Endpoints of the page that loads one model: the form, the plan of what is chosen in it, and the order.

A form that can't be read comes back as it was filled in, with the reason at each field. No plan is computed here.
"""

from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from webui.errors import ControlGone, ControlRefused
from webui.load_form import Filled, chosen_model, read
from webui.pages.edge import Console, Form, console_of, order, see_other
from webui.pages.leaving import until_gone
from webui.text import Text
from webui.views.load_form import first_mistake, load_page
from webui.views.plan import PlanView, plan_view, refused_plan, unknown_plan
from webui.views.refusals import refusal_words
from webui.views.shell import Shell

TEMPLATE: Final = "load.html"
ADDRESS: Final = "/model/load"
_UNREADABLE: Final = 422
# Control starts a process that reads the headers of the weights.
_PLAN_WAITS_S: Final = 20.0


async def show(request: Request) -> Response:
    """The form, without its plan: the page asks for that by itself."""
    console, form = console_of(request), request.query_params
    if not chosen_model(form):
        return see_other("/model")
    shell = await _shell(request, form)
    return console.answer(request, TEMPLATE, load_page(await console.watch.look(), shell, form, {}))


async def show_plan(request: Request) -> Response:
    """The plan of what is chosen in the form; nothing when whoever asked has asked anew."""
    console, form = console_of(request), request.query_params
    filled, shell = read(form), await _shell(request, form)
    plan = await until_gone(request, _plan(console, filled, shell.text))
    view = load_page(await console.watch.look(), shell, form, filled.wrong, plan=plan)
    return console.answer(request, TEMPLATE, view, block="plan")


async def show_effect(request: Request) -> Response:
    """What a load would do to running and waiting requests, as they are now."""
    console = console_of(request)
    form = request.query_params
    view = load_page(await console.watch.look(), await _shell(request, form), form, {})
    return console.answer(request, TEMPLATE, view, block="effect")


async def plan(request: Request, form: Form) -> Response:
    """Without JavaScript: the whole page again, with the plan and what is wrong."""
    console, filled = console_of(request), read(form)
    shell = await _shell(request, form)
    planned = await _plan(console, filled, shell.text)
    view = load_page(await console.watch.look(), shell, form, filled.wrong, plan=planned)
    return console.answer(request, TEMPLATE, view)


async def load(request: Request, form: Form) -> Response:
    console, filled = console_of(request), read(form)
    if filled.order is not None:
        await console.control.load(filled.order)
        return see_other("/model")
    shell = await _shell(request, form)
    view = load_page(await console.watch.look(), shell, form, filled.wrong)
    return console.answer(request, TEMPLATE, view, status=_UNREADABLE)


async def _shell(request: Request, form: Form) -> Shell:
    here = f"{ADDRESS}?{urlencode({'model': chosen_model(form)})}"
    return await console_of(request).shell(request, "model", "load.title", here=here)


async def _plan(console: Console, filled: Filled, text: Text) -> PlanView:
    if filled.order is None:
        return refused_plan(first_mistake(filled.wrong, text), text)
    asked = wire.PlanRequest(
        model=filled.order.model or "",
        context=filled.order.context,
        budget_bytes=filled.order.budget_bytes,
        kv_bits=filled.order.kv_bits,
    )
    try:
        answer = await console.control.ask("POST", wire.PLAN, wire.PlanAnswer, asked, timeout_s=_PLAN_WAITS_S)
    except ControlGone:
        return unknown_plan(text)
    except ControlRefused as refusal:
        if refusal.code == "model_not_found":
            if asked.model.startswith(("/", "~", ".")):
                # What is wrong with a path only the engine knows: `splash load` says the same.
                return refused_plan(text("plan.no_such_folder"), text, detail=refusal.message)
            return refused_plan(text("plan.no_such_model", model=asked.model), text)
        return refused_plan(refusal_words(refusal.code, refusal.message, text), text)
    return plan_view(answer, text)


ROUTES: Final = (
    Route(ADDRESS, show),
    Route(f"{ADDRESS}/plan", show_plan),
    Route(f"{ADDRESS}/effect", show_effect),
    Route(f"{ADDRESS}/plan", order(plan, back="/model"), methods=["POST"]),
    Route(ADDRESS, order(load, back="/model", is_typed=True), methods=["POST"]),
)
