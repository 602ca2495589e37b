"""The edge of the admin API: the secret and the Host, JSON bodies and answers, and every refusal as `AdminError`.

It knows no route and nobody that an order goes to.
"""

import asyncio
import hmac
import logging
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from control import wire
from control.admin.errors import AdminRefusal, AdminSecretWrong, OrderInvalid, OrderNotJson
from control.errors import BodyTooLarge, BodyTooSlow, ControlError, HostNotAllowed
from control.gate import loopback_hosts
from control.metrics.database import cause_of, is_busy

logger = logging.getLogger(__name__)

BODY_LIMIT_BYTES: Final = 64 * 1024
BODY_TIMEOUT_S: Final = 30.0
BUSY_RETRY_S: Final = 2
# What an id or a limit can be at most, in the database too.
NUMBER: Final = re.compile("[0-9]{1,18}")
# Of a name that was sent, in a sentence.
SHOWN_LIMIT: Final = 64
PATH_SHOWN_LIMIT: Final = 200

Body = TypeVar("Body", bound=msgspec.Struct)


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
        if (_header(scope["headers"], b"host") or b"").lower() not in self._hosts:
            return HostNotAllowed()
        # The path as it was sent: `request.url` is built from headers that the client chooses.
        if scope["path"] == wire.HEALTHZ:
            return None
        given = _header(scope["headers"], b"authorization") or b""
        return None if hmac.compare_digest(given, self._secret) else AdminSecretWrong()


async def body_of(request: Request, kind: type[Body]) -> Body:
    """The JSON body. Raises OrderInvalid with the field that is wrong, or that no such order has.

    Raises OrderNotJson, BodyTooLarge and BodyTooSlow, too.
    """
    assert kind.__struct_config__.forbid_unknown_fields, "a misspelt field must not count as one left out"
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            content = await _read(request)
    except TimeoutError as error:
        raise BodyTooSlow(limit_s=BODY_TIMEOUT_S) from error
    if content:
        require_json(request)
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise OrderInvalid(f"{error}.") from error
    except RecursionError as error:
        raise OrderInvalid("The body is nested too deeply.") from error


def require_json(request: Request) -> None:
    """Raises OrderNotJson."""
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() != "application/json":
        raise OrderNotJson


async def _read(request: Request) -> bytes:
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_LIMIT_BYTES:
            raise BodyTooLarge(limit_bytes=BODY_LIMIT_BYTES)
    return content


def require_known_parameters(request: Request, names: Iterable[str]) -> None:
    """Of the query. Raises OrderInvalid with the first that the route does not have."""
    names = tuple(names)
    for name in request.query_params:
        if name not in names:
            shown = name[:SHOWN_LIMIT]
            raise OrderInvalid(f"There is no parameter {shown!r} here; there are {', '.join(names)}.")


def number_of(text: str) -> int | None:
    return int(text) if NUMBER.fullmatch(text) else None


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """None when it is missing, and when it is there twice: then it is not clear which one counts."""
    values = [value for key, value in headers if key == name]
    return values[0] if len(values) == 1 else None


def json_answer(answer: msgspec.Struct, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status_code=status, media_type="application/json")


def on_one_line(sentence: str) -> str:
    """What was sent may be part of it: line breaks and what can't be seen are shown as Python writes them."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in sentence)


def _error_answer(code: str, message: str, *, status: int) -> Response:
    return json_answer(wire.AdminError(code=code, message=on_one_line(message)), status=status)


def _refusal_answer(error: ControlError) -> Response:
    answer = _error_answer(error.code, str(error), status=error.status)
    if error.status == HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, AdminRefusal) and error.retry_after_s is not None:
        answer.headers["Retry-After"] = str(error.retry_after_s)
    return answer


async def _refused(request: Request, error: Any) -> Response:
    return _refusal_answer(error)


async def _not_kept(request: Request, error: Any) -> Response:
    logger.warning("admin request not kept path=%r reason=%s", request.scope["path"], cause_of(error))
    if is_busy(error):
        answer = _error_answer("database_busy", "Another program holds the database; try again.", status=503)
        answer.headers["Retry-After"] = str(BUSY_RETRY_S)
        return answer
    message = "The database did not take or give it (it is full, read-only or gone); try again."
    return _error_answer("database_unusable", message, status=503)


async def _no_such_thing(request: Request, error: Any) -> Response:
    """What Starlette's routing says: no such path, or not with this method."""
    path = request.scope["path"][:PATH_SHOWN_LIMIT]
    if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        return _error_answer("not_found", f"The admin API has no {path}.", status=error.status_code)
    allowed = (error.headers or {}).get("Allow", "")
    answer = _error_answer(
        "method_not_allowed", f"{path} takes {allowed}, not {request.method}.", status=error.status_code
    )
    answer.headers["Allow"] = allowed
    return answer


async def _broke(request: Request, error: Any) -> Response:
    logger.error("admin request broke path=%r", request.scope["path"], exc_info=error)
    return _error_answer("internal_error", "Control made a mistake; its log says more.", status=500)


HANDLERS: Final[dict[Any, ExceptionHandler]] = {
    ControlError: _refused,
    SQLAlchemyError: _not_kept,
    HTTPException: _no_such_thing,
    Exception: _broke,
}
"""For Starlette: what each exception is to the one who asked."""
