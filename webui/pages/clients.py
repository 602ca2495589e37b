"""Endpoints of the page *Clients*: keys listed, made, changed and revoked, and what each client pastes.

A new key is shown in the answer to the form that made it: it is stored nowhere, so there is no page to be sent on to.
"""

import asyncio
from dataclasses import replace
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from webui.errors import ControlGone, ControlRefused
from webui.key_form import read_change, read_new
from webui.pages.edge import Console, Form, console_of, order, see_other, sentence_for
from webui.views.clients import Known, Refused, clients_page

Answer = TypeVar("Answer")

_TEMPLATE: Final = "clients.html"
_UNREADABLE: Final = 422
# What control says about a name that is good to read and can't be had.
_NAME_SENTENCES: Final = {"key_name_taken": "keys.name_taken", "key_name_invalid": "keys.name_wrong"}


async def show(request: Request) -> Response:
    return await _page(request)


async def show_live(request: Request) -> Response:
    return await _page(request, block="key_list")


async def create(request: Request, form: Form) -> Response:
    filled = read_new(form)
    if filled.order is None:
        return await _page(request, refused=Refused(form, filled.wrong))
    try:
        created = await console_of(request).control.create_key(filled.order)
    except ControlRefused as refusal:
        if refusal.code not in _NAME_SENTENCES:
            raise
        return await _page(request, refused=Refused(form, {"name": _NAME_SENTENCES[refusal.code]}))
    return await _page(request, created=created)


async def change(request: Request, form: Form) -> Response:
    key_id, filled = request.path_params["key_id"], read_change(form)
    if filled.order is None:
        return await _page(request, refused=Refused(form, filled.wrong, key_id))
    await console_of(request).control.order("PATCH", wire.KEY.format(id=key_id), filled.order)
    return _done(request, "keys.changed")


async def revoke(request: Request, _: Form) -> Response:
    await console_of(request).control.revoke_key(request.path_params["key_id"])
    return _done(request, "keys.is_revoked")


def _done(request: Request, sentence: str) -> Response:
    console = console_of(request)
    response = see_other("/clients")
    console.sessions.leave_notice(response, console.text_for(request)(sentence), is_good=True)
    return response


async def _page(
    request: Request,
    *,
    created: wire.CreatedKey | None = None,
    refused: Refused | None = None,
    block: str | None = None,
) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "clients", "nav.clients", here="/clients")
    if created is not None:
        shell = replace(shell, keep_page=shell.text("shell.keep_key"))
    status = 200 if refused is None else _UNREADABLE
    known, problem = None, None
    try:
        known = await _known(console, with_connections=block is None)
    except ControlGone:
        problem = shell.text("keys.unknown")
    except ControlRefused as refusal:
        problem = sentence_for(refusal, shell.text)
    view = clients_page(shell, known, created=created, refused=refused, problem=problem)
    return console.answer(request, _TEMPLATE, view, block=block, status=status)


async def _known(console: Console, *, with_connections: bool) -> Known:
    """Raises ControlGone or ControlRefused when not even the keys are known."""
    keys, totals = await asyncio.gather(console.control.keys(), _if_known(console, wire.KEY_TOTALS, wire.KeyTotalsList))
    connections = await _if_known(console, wire.CONNECTIONS, wire.ConnectionList) if with_connections else None
    return Known(keys=keys, totals=None if totals is None else totals.keys, connections=connections)


async def _if_known(console: Console, path: str, kind: type[Answer]) -> Answer | None:
    try:
        return await console.control.ask("GET", path, kind)
    except (ControlGone, ControlRefused):
        return None


ROUTES: Final = (
    Route("/clients", show),
    Route("/clients/live", show_live),
    Route("/clients", order(create, back="/clients", is_typed=True), methods=["POST"]),
    Route("/clients/{key_id:int}", order(change, back="/clients", is_typed=True), methods=["POST"]),
    Route("/clients/{key_id:int}/revoke", order(revoke, back="/clients"), methods=["POST"]),
)
