"""The admin API on :18084: what the console and the command line ask of control, behind the admin secret.

It checks who asks and what is asked, and passes it on; it does nothing itself. Paths and bodies are in `control.wire`.
"""

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from control import wire
from control.engine_questions import EngineQuestions
from control.errors import (
    AdminSecretWrong,
    BodyTooLarge,
    ControlError,
    HostNotAllowed,
    LoginLinkInvalid,
    OrderInvalid,
    UnknownRequest,
)
from control.fifo import Line
from control.keys import KeyRing
from control.login_links import LoginLinks
from control.metrics.questions import Questions
from control.metrics.settings import Settings
from control.overview import OverviewSource
from control.public_api import loopback_hosts
from control.relay import Relay
from control.supervisor import Supervisor

logger = logging.getLogger(__name__)

BODY_LIMIT_BYTES: Final = 64 * 1024
REQUESTS_DEFAULT: Final = 50
REQUESTS_LIMIT: Final = 1000
LINK_LIMIT_S: Final = 600.0
CONCURRENCY_SETTING: Final = "concurrency"
# What an id or a limit can be at most, in the database too.
NUMBER: Final = re.compile("[0-9]{1,18}")

Handler = Callable[[Request], Awaitable[Response]]
Body = TypeVar("Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class AdminApi:
    """Everybody that an order can go to."""

    supervisor: Supervisor
    relay: Relay
    line: Line
    keys: KeyRing
    links: LoginLinks
    questions: Questions
    settings: Settings
    engine_questions: EngineQuestions
    overviews: OverviewSource
    health: wire.Health

    def app(self, *, secret: str, port: int) -> ASGIApp:
        routes = [
            Route(wire.HEALTHZ, self._healthz, methods=["GET"]),
            Route(wire.OVERVIEW, self._overview, methods=["GET"]),
            Route(wire.LOAD, self._load, methods=["POST"]),
            Route(wire.UNLOAD, self._unload, methods=["POST"]),
            Route(wire.RESTART, self._restart, methods=["POST"]),
            Route(wire.CACHE_CLEAR, self._clear_cache, methods=["POST"]),
            Route(wire.CONCURRENCY, self._concurrency, methods=["POST"]),
            Route(wire.REQUESTS, self._requests, methods=["GET"]),
            Route(wire.CANCEL, self._cancel, methods=["POST"]),
            Route(wire.KEYS, self._list_keys, methods=["GET"]),
            Route(wire.KEYS, self._new_key, methods=["POST"]),
            Route(wire.KEY, self._revoke_key, methods=["DELETE"]),
            Route(wire.MODELS, self._models, methods=["GET"]),
            Route(wire.LOGIN_LINKS, self._new_link, methods=["POST"]),
            Route(wire.REDEEM, self._redeem, methods=["POST"]),
            Route(wire.QUIT, self._quit, methods=["POST"]),
        ]
        handlers = {
            ControlError: _refused,
            SQLAlchemyError: _not_kept,
            HTTPException: _no_such_thing,
            Exception: _broke,
        }
        return Guard(Starlette(routes=routes, exception_handlers=handlers), secret=secret, port=port)

    async def _healthz(self, request: Request) -> Response:
        return _json(self.health)

    async def _overview(self, request: Request) -> Response:
        return _json(await self.overviews.overview())

    async def _load(self, request: Request) -> Response:
        return _json(await self.supervisor.load(await _body(request, wire.LoadRequest)), status=202)

    async def _unload(self, request: Request) -> Response:
        order = await _body(request, wire.UnloadRequest)
        return _json(self.supervisor.unload(force=order.force), status=202)

    async def _restart(self, request: Request) -> Response:
        return _json(await self.supervisor.restart(), status=202)

    async def _clear_cache(self, request: Request) -> Response:
        return _json(await self.supervisor.clear_cache())

    async def _concurrency(self, request: Request) -> Response:
        order = await _body(request, wire.ConcurrencyRequest)
        try:
            self.line.set_concurrency(order.concurrency)
        except ValueError as error:
            raise OrderInvalid(f"{error}.") from error
        await self.settings.put(CONCURRENCY_SETTING, order.concurrency)
        return _json(order)

    async def _requests(self, request: Request) -> Response:
        text = request.query_params.get("limit", str(REQUESTS_DEFAULT))
        limit = _number(text)
        if limit is None or not 1 <= limit <= REQUESTS_LIMIT:
            raise OrderInvalid(f"limit must be a number from 1 to {REQUESTS_LIMIT}.")
        return _json(wire.RequestList(requests=await self.questions.recent_requests(limit)))

    async def _cancel(self, request: Request) -> Response:
        request_id = request.path_params["id"]
        if not self.relay.cancel(request_id):
            raise UnknownRequest(request_id)
        return Response(status_code=204)

    async def _list_keys(self, request: Request) -> Response:
        return _json(wire.KeyList(keys=self.keys.list()))

    async def _new_key(self, request: Request) -> Response:
        order = await _body(request, wire.NewKey)
        return _json(await self.keys.create(order.name, order.request_class), status=201)

    async def _revoke_key(self, request: Request) -> Response:
        key_id = _number(request.path_params["id"])
        if key_id is None:
            raise OrderInvalid("The id of a key is a number.")
        return _json(await self.keys.revoke(key_id))

    async def _models(self, request: Request) -> Response:
        return _json(wire.ModelList(models=await self.engine_questions.models()))

    async def _new_link(self, request: Request) -> Response:
        order = await _body(request, wire.NewLoginLink)
        if not 0 < order.valid_s <= LINK_LIMIT_S:
            raise OrderInvalid(f"valid_s must be more than 0 and at most {LINK_LIMIT_S:.0f}.")
        return _json(self.links.mint(order.valid_s), status=201)

    async def _redeem(self, request: Request) -> Response:
        order = await _body(request, wire.Redeem)
        if not self.links.redeem(order.token):
            raise LoginLinkInvalid
        return Response(status_code=204)

    async def _quit(self, request: Request) -> Response:
        order = await _body(request, wire.QuitRequest)
        return _json(self.supervisor.quit(force=order.force), status=202)


class Guard:
    """In front of every route: an allowed Host, then the secret, before anything of the request is read."""

    def __init__(self, app: ASGIApp, *, secret: str, port: int) -> None:
        self._app = app
        self._secret = f"Bearer {secret}".encode()
        self._hosts = {host.encode() for host in loopback_hosts(port)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _refusal_answer(refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ControlError | None:
        if _header(scope["headers"], b"host") not in self._hosts:
            return HostNotAllowed()
        # The path as it was sent: `request.url` is built from headers that the client chooses.
        if scope["path"] == wire.HEALTHZ:
            return None
        given = _header(scope["headers"], b"authorization") or b""
        return None if hmac.compare_digest(given, self._secret) else AdminSecretWrong()


async def _body(request: Request, kind: type[Body]) -> Body:
    """The JSON body. Raises OrderInvalid with the field that is wrong, BodyTooLarge."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_LIMIT_BYTES:
            raise BodyTooLarge(limit_bytes=BODY_LIMIT_BYTES)
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise OrderInvalid(f"{error}.") from error
    except RecursionError as error:
        raise OrderInvalid("The body is nested too deeply.") from error


def _number(text: str) -> int | None:
    return int(text) if NUMBER.fullmatch(text) else None


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """None when it is missing, and when it is there twice: then it is not clear which one counts."""
    values = [value for key, value in headers if key == name]
    return values[0] if len(values) == 1 else None


def _json(answer: msgspec.Struct, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status_code=status, media_type="application/json")


def _refusal_answer(error: ControlError) -> Response:
    return _json(wire.AdminError(code=error.code, message=str(error)), status=error.status)


async def _refused(request: Request, error: Any) -> Response:
    return _refusal_answer(error)


async def _not_kept(request: Request, error: Any) -> Response:
    logger.warning("admin request not kept path=%s reason=%s", request.scope["path"], error)
    message = "The database did not take or give it (it is locked, full or read-only); try again."
    return _json(wire.AdminError(code="database_unusable", message=message), status=503)


async def _no_such_thing(request: Request, error: Any) -> Response:
    message = f"{error.detail}: {request.method} {request.scope['path']}"
    return _json(wire.AdminError(code="not_found", message=message), status=error.status_code)


async def _broke(request: Request, error: Any) -> Response:
    logger.error("admin request broke path=%s", request.scope["path"], exc_info=error)
    return _json(
        wire.AdminError(code="internal_error", message="Control made a mistake; its log says more."), status=500
    )
