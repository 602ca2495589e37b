"""Endpoints of the page *Logs*: the page, its lines as they come, and each log as a file.

It knows no file: names are from the list that control has.
"""

from typing import Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from control import wire
from webui.errors import ControlGone, ControlRefused
from webui.pages.edge import Message, console_of, message, sentence_for
from webui.views.logs import CHOSEN_LEVELS, TEXT_LIMIT, Asked, LogsPage, logs_page

_TEMPLATE: Final = "logs.html"
_LINES: Final = 200
# A filter that fits little makes control read 8 MiB.
_PAGE_TIMEOUT_S: Final = 10.0
_GONE: Final = Message("logs.title", "logs.gone", command="splash logs")


async def show(request: Request) -> Response:
    return console_of(request).answer(request, _TEMPLATE, await _view(request))


async def show_live(request: Request) -> Response:
    return console_of(request).answer(request, _TEMPLATE, await _view(request), block="lines")


async def download(request: Request) -> Response:
    """Passed on as it comes: a log may be larger than this process should grow."""
    name = _asked(request).name
    try:
        chunks = await console_of(request).control.download(wire.LOG_FILE.format(name=name))
    except (ControlGone, ControlRefused):
        return await message(request, _GONE, status=502)
    headers = {"Content-Disposition": f'attachment; filename="splash-{name}.log"'}
    return StreamingResponse(chunks, media_type="text/plain; charset=utf-8", headers=headers)


async def _view(request: Request) -> LogsPage:
    console = console_of(request)
    asked = _asked(request)
    shell = await console.shell(request, "logs", "logs.title", here="/logs")
    query = {"limit": str(_LINES), "before": asked.before, "level": asked.level, "text": asked.text}
    path = f"{wire.LOGS.format(name=asked.name)}?{urlencode({name: value for name, value in query.items() if value})}"
    try:
        page = await console.control.ask("GET", path, wire.LogPage, timeout_s=_PAGE_TIMEOUT_S)
    except ControlGone:
        return logs_page(shell, asked, None, problem=shell.text("logs.unknown", name=asked.name))
    except ControlRefused as refusal:
        return logs_page(shell, asked, None, problem=sentence_for(refusal, shell.text))
    return logs_page(shell, asked, page)


def _asked(request: Request) -> Asked:
    """A name that is not there is no page; a filter that can't be is left out, as an address may be typed by hand."""
    wanted, query = request.path_params.get("name", "control"), request.query_params
    name = next((name for name in wire.LOG_NAMES if name == wanted), None)
    if name is None:
        raise HTTPException(404)
    return Asked(
        name=name,
        level=next((level for level in CHOSEN_LEVELS if level == query.get("level")), None),
        text=query.get("text", "").strip()[:TEXT_LIMIT],
        before=query.get("before") or None,
        is_followed=query.get("follow") != "off",
    )


ROUTES: Final = (
    Route("/logs", show),
    Route("/logs/{name}", show),
    Route("/logs/{name}/live", show_live),
    Route("/logs/{name}/file", download),
)
