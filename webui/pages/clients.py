"""Endpoints of the page *Clients*: list, make, revoke.

A new key is shown in the answer to the form that made it: it is stored nowhere, so there is no page to be sent on to.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control.wire import NewKey
from webui.errors import BadForm, ControlGone, ControlRefused
from webui.pages.edge import Form, console_of, order, see_other
from webui.views.clients import keys_page

_TEMPLATE: Final = "clients.html"
_LONGEST_NAME: Final = 64


async def show(request: Request) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "clients", "keys.title", here="/clients")
    seen = await console.watch.look()
    api_base = seen.overview.api_base if seen.overview is not None else ""
    try:
        keys = await console.control.keys()
    except ControlGone:
        return console.answer(request, _TEMPLATE, keys_page(shell, (), problem=shell.text("keys.unknown")))
    except ControlRefused as refusal:
        return console.answer(request, _TEMPLATE, keys_page(shell, (), problem=refusal.message))
    return console.answer(request, _TEMPLATE, keys_page(shell, keys, api_base=api_base))


async def create(request: Request, form: Form) -> Response:
    name = form.get("name", "").strip()
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise BadForm("name")
    console = console_of(request)
    created = await console.control.create_key(
        NewKey(name=name, request_class="batch" if form.get("request_class") == "batch" else "interactive")
    )
    shell = await console.shell(request, "clients", "keys.title", here="/clients")
    seen = await console.watch.look()
    api_base = seen.overview.api_base if seen.overview is not None else ""
    view = keys_page(shell, await console.control.keys(), created=created, api_base=api_base)
    return console.answer(request, _TEMPLATE, view)


async def revoke(request: Request, _: Form) -> Response:
    await console_of(request).control.revoke_key(request.path_params["key_id"])
    return see_other("/clients")


ROUTES: Final = (
    Route("/clients", show),
    Route("/clients", order(create, back="/clients"), methods=["POST"]),
    Route("/clients/{key_id:int}/revoke", order(revoke, back="/clients"), methods=["POST"]),
)
