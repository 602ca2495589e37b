"""The console as one ASGI app: its routes, its parts put together, and errors turned into pages.

It opens no socket and knows no files but those of `frontend/`.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from control.wire import Health
from webui.control_client import ControlClient
from webui.errors import ConsoleError
from webui.farewell import Farewell
from webui.guard import HEALTHZ, Guard, is_on_this_machine
from webui.lan import LanHosts
from webui.pages import (
    clients,
    cost,
    engine_orders,
    load,
    login,
    logs,
    model,
    now,
    performance,
    playground,
    quitting,
    requests,
    settings,
)
from webui.pages.edge import Console, Message, message
from webui.render import FRONTEND, Renderer
from webui.sessions import Sessions
from webui.text import load_texts
from webui.watch import Watch

logger = logging.getLogger(__name__)

_NOT_FOUND: Final = Message("error.not_found", "error.not_found_body", link="/", link_text="error.to_now")
_WRONG_METHOD: Final = Message("error.wrong_method", "error.wrong_method_body", link="/", link_text="error.to_now")
_NOT_ALLOWED: Final = Message("error.not_allowed_heading", "error.not_allowed", link="/", link_text="error.to_now")
# What other machines are told: who runs here is no business of theirs.
_ALIVE: Final = {"status": "ok"}
_INTERNAL: Final = Message("error.internal", "error.internal_body", link="/", link_text="error.to_now")


def make_app(
    *,
    control: ControlClient,
    watch: Watch,
    sessions: Sessions,
    farewell: Farewell,
    health: Health,
    port: int,
    has_password: Callable[[], bool],
    is_lan_on: bool = False,
) -> ASGIApp:
    """The app behind its guard. Its end closes `control`, `watch` and `farewell`."""

    async def healthz(request: Request) -> Response:
        answer = health if is_on_this_machine(request) else _ALIVE
        return Response(msgspec.json.encode(answer), media_type="application/json")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await farewell.close()
            await watch.close()
            await control.close()

    app = Starlette(
        routes=[
            Route(HEALTHZ, healthz),
            *login.ROUTES,
            *now.ROUTES,
            *engine_orders.ROUTES,
            *model.ROUTES,
            *load.ROUTES,
            *clients.ROUTES,
            *logs.ROUTES,
            *settings.ROUTES,
            *cost.ROUTES,
            *performance.ROUTES,
            *playground.ROUTES,
            *requests.ROUTES,
            *quitting.ROUTES,
            Mount("/static", StaticFiles(directory=FRONTEND / "static")),
        ],
        exception_handlers={HTTPException: _http_error, ConsoleError: _console_error, Exception: _internal_error},
        lifespan=lifespan,
    )
    app.state.console = Console(
        control=control,
        watch=watch,
        sessions=sessions,
        farewell=farewell,
        renderer=Renderer(),
        texts=load_texts(),
        has_password=has_password,
    )

    async def ask_to_log_in(request: Request) -> Response:
        request.scope["app"] = app
        return await login.ask_to_log_in(request)

    lan = LanHosts(port) if is_lan_on else None
    return Guard(app, sessions=sessions, port=port, ask_to_log_in=ask_to_log_in, lan=lan)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await message(request, _WRONG_METHOD if error.status_code == 405 else _NOT_FOUND, status=error.status_code)


async def _console_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ConsoleError)
    return await message(request, _NOT_ALLOWED if error.status == 403 else _INTERNAL, status=error.status)


async def _internal_error(request: Request, error: Exception) -> Response:
    logger.error("request failed path=%r error=%r", request.url.path, error)
    return await message(request, _INTERNAL, status=500)
