"""Endpoints of the page *Requests*: the list, its rows as they come, one request, and all of it as a file.

It keeps nothing but the columns that a browser has chosen.
"""

import time
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from control import wire
from webui.errors import BadForm, ControlGone, ControlRefused
from webui.pages.edge import Console, Form, Message, console_of, message, order, see_other, sentence_for
from webui.views.request_columns import COLUMNS, DEFAULT
from webui.views.request_detail import detail_page, running_page
from webui.views.requests_page import PATH, Asked, RequestsPage, requests_page

_LIST: Final = "requests.html"
_DETAIL: Final = "request.html"
_FORMS: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
_UNKNOWN: Final = Message("request.not_there", "request.not_there_body", link=PATH, link_text="request.to_list")
_GONE: Final = Message("requests.title", "requests.unknown", command="splash up")
_NOT_EXPORTED: Final = Message("requests.title", "requests.not_exported", link=PATH, link_text="request.to_list")


async def show(request: Request) -> Response:
    console = console_of(request)
    return console.answer(request, _LIST, await _view(request, await _choices(console)))


async def show_live(request: Request) -> Response:
    return console_of(request).answer(request, _LIST, await _view(request, None), block="rows")


async def show_one(request: Request) -> Response:
    console, request_id = console_of(request), request.path_params["request_id"]
    shell = await console.shell(request, "requests", "request.title", here=f"{PATH}/{quote(request_id, safe='')}")
    path = wire.REQUEST.format(id=quote(request_id, safe=""))
    try:
        listed = await console.control.ask("GET", path, wire.ListedRequest)
    except ControlGone:
        return await message(request, _GONE, status=502)
    except ControlRefused as refusal:
        seen = await console.watch.look()
        live = running_page(shell, seen.overview, request_id)
        if live is not None:
            return console.answer(request, _DETAIL, live)
        return await message(request, _UNKNOWN if refusal.status == 404 else _GONE, status=refusal.status)
    return console.answer(request, _DETAIL, detail_page(shell, listed))


async def export(request: Request) -> Response:
    """Passed on as it comes: a month of requests is larger than this process should grow."""
    form = request.query_params.get("format", "csv")
    if form not in _FORMS:
        return await message(request, _NOT_EXPORTED, status=400)
    question = Asked.of(request.query_params).export_question(form)
    try:
        chunks = await console_of(request).control.download(f"{wire.REQUEST_EXPORT}?{question}")
    except ControlGone:
        return await message(request, _GONE, status=502)
    except ControlRefused as refusal:
        return await message(request, _NOT_EXPORTED, status=refusal.status)
    name = time.strftime("splash-requests-%Y%m%d-%H%M%SZ", time.gmtime())
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}
    return StreamingResponse(chunks, media_type=_FORMS[form], headers=headers)


async def choose_columns(request: Request, form: Form) -> Response:
    """Kept by this browser. None of them: the default again."""
    console, here = console_of(request), form.get("here", PATH)
    if here.partition("?")[0] != PATH:
        raise BadForm("here")
    response = see_other(here)
    names = [column.name for column in COLUMNS if f"column_{column.name}" in form]
    console.sessions.prefer(response, console.sessions.columns_cookie, ".".join(names or DEFAULT))
    return response


async def _view(request: Request, choices: wire.RequestChoices | None) -> RequestsPage:
    console, asked = console_of(request), Asked.of(request.query_params)
    shell = await console.shell(request, "requests", "requests.title", here=asked.path())
    seen = await console.watch.look()
    page, problem = None, None
    try:
        page = await console.control.ask("GET", f"{wire.REQUESTS}?{asked.question()}", wire.RequestPage)
    except ControlGone:
        problem = shell.text("requests.unknown")
    except ControlRefused as refusal:
        problem = sentence_for(refusal, shell.text)
    return requests_page(
        shell,
        asked,
        request.cookies.get(console.sessions.columns_cookie, "").split("."),
        page,
        choices=choices,
        problem=problem,
        api_base=seen.overview.api_base if seen.overview is not None else "",
    )


async def _choices(console: Console) -> wire.RequestChoices | None:
    """None: the filters offer nothing, and what is asked for stays chosen."""
    try:
        return await console.control.ask("GET", wire.REQUEST_CHOICES, wire.RequestChoices)
    except (ControlGone, ControlRefused):
        return None


ROUTES: Final = (
    Route(PATH, show),
    Route(f"{PATH}/live", show_live),
    Route(f"{PATH}/export", export),
    Route(f"{PATH}/columns", order(choose_columns, back=PATH), methods=["POST"]),
    Route(PATH + "/{request_id}", show_one),
)
