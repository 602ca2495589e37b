"""The public API on :8888: who may come in, which path is whose, and every error in the API's own shape.

It knows no more of a request than its path and its key: a dialect parses it, the relay lives it.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from control.bodies import BODY_LIMIT_BYTES, BODY_TIMEOUT_S, read_body
from control.delivery import Delivery
from control.dialects import chat, models
from control.dialects.error_answers import AnswerOf, ErrorAnswer, answers_of
from control.dialects.exchange import Exchange
from control.engine_client import EngineSource
from control.errors import (
    ApiError,
    HostNotAllowed,
    InternalError,
    MethodNotAllowed,
    NotAuthenticated,
    UnknownRoute,
)
from control.keys import Key, KeyRing
from control.relay import Relay

logger = logging.getLogger(__name__)

# A larger body is parsed beside the event loop; for a smaller one the way there takes longer than the parsing.
PARSED_AT_ONCE_BYTES: Final = 64 * 1024
# Paths without a key: Claude Code asks HEAD / first; a load balancer asks for health.
OPEN_PATHS: Final = ("/", "/healthz")


def loopback_hosts(port: int) -> frozenset[str]:
    """The Host headers that a client on this machine sends."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


def public_api(
    *,
    keys: KeyRing,
    relay: Relay,
    source: EngineSource,
    hosts: Iterable[str],
    body_limit_bytes: int = BODY_LIMIT_BYTES,
    body_timeout_s: float = BODY_TIMEOUT_S,
    wall: Callable[[], float] = time.time,
) -> ASGIApp:
    """The ASGI application. `hosts` are the Host headers that it answers to, each with its port, compared exactly."""
    started_at_s = wall()

    async def alive(_request: Request) -> Response:
        return _json({"status": "ok"})

    def asked_in(parse: Callable[[bytes, str], Exchange]) -> Callable[[Request], Awaitable[RelayedAnswer]]:
        """The endpoint of a dialect, by its parser."""

        async def endpoint(request: Request) -> RelayedAnswer:
            body = await read_body(request, limit_bytes=body_limit_bytes, limit_s=body_timeout_s)
            exchange = await _parsed(parse, body, request.state.request_id)
            models.check_model(exchange.model, source)
            return RelayedAnswer(relay, exchange, request.state.key, request.state.answer_of)

        return endpoint

    async def list_models(_request: Request) -> Response:
        return _json(models.model_list(source, now_s=started_at_s))

    async def one_model(request: Request) -> Response:
        return _json(models.model_entry(request.path_params["model_id"], source, now_s=started_at_s))

    app = Starlette(
        routes=[
            Route("/", alive),
            Route("/healthz", alive),
            Route(chat.PATH, asked_in(chat.parse_chat), methods=["POST"]),
            Route(models.PATH, list_models),
            Route(models.PATH + "/{model_id:path}", one_model),
        ],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientDisconnect: _client_gone,
            Exception: _our_mistake,
        },
    )
    app.router.redirect_slashes = False
    return Gate(app, keys=keys, hosts=frozenset(hosts))


class Gate:
    """Before a path is looked at or a byte of a body is read: the host, the key. Every answer gets a request id."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing, hosts: frozenset[str]) -> None:
        self.app = app
        self._keys = keys
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = uuid.uuid4().hex
        answer_of = answers_of(scope["path"], request_id)
        # OpenAI's clients read the first, Anthropic's the second.
        id_headers = [(name, request_id.encode()) for name in (b"x-request-id", b"request-id")]

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *id_headers]
            await send(message)

        try:
            self._check_host(scope)
            key = None if scope["path"] in OPEN_PATHS else self._key(scope)
        except ApiError as error:
            await _error_response(answer_of(error))(scope, receive, send_with_id)
            return
        scope.setdefault("state", {}).update(request_id=request_id, key=key, answer_of=answer_of)
        await self.app(scope, receive, send_with_id)

    def _check_host(self, scope: Scope) -> None:
        sent = _values(scope, b"host")
        if len(sent) != 1 or sent[0].decode("latin-1").lower() not in self._hosts:
            raise HostNotAllowed

    def _key(self, scope: Scope) -> Key:
        for token in _tokens(scope):
            key = self._keys.verify(token)
            if key is not None:
                return key
        raise NotAuthenticated


class RelayedAnswer:
    """An answer that the relay writes, for as long as the client stays."""

    def __init__(self, relay: Relay, exchange: Exchange, key: Key, answer_of: AnswerOf) -> None:
        self._relay = relay
        self._exchange = exchange
        self._key = key
        self._answer_of = answer_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        delivery = Delivery(send, is_stream=self._exchange.is_stream)
        serving = self._relay.serve(self._exchange, self._key, delivery, answer_of=self._answer_of)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(serving)
            watch = group.create_task(_cancel_when_gone(receive, work))
            work.add_done_callback(lambda _: watch.cancel())


async def _cancel_when_gone(receive: Receive, work: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    work.cancel()


async def _parsed(parse: Callable[[bytes, str], Exchange], body: bytes, request_id: str) -> Exchange:
    if len(body) <= PARSED_AT_ONCE_BYTES:
        return parse(body, request_id)
    return await asyncio.to_thread(parse, body, request_id)


def _tokens(scope: Scope) -> list[bytes]:
    """Every key that was sent, by either header: clients differ in which they use for what."""
    tokens = list(_values(scope, b"x-api-key"))
    for value in _values(scope, b"authorization"):
        scheme, _, token = value.partition(b" ")
        if scheme.lower() == b"bearer":
            tokens.append(token.strip())
    return tokens


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for header, value in scope["headers"] if header == name]


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _error_response(answer: ErrorAnswer) -> Response:
    response = Response(answer.body, status_code=answer.status)
    response.raw_headers.extend(answer.headers)
    return response


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _error_response(request.state.answer_of(error))


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path, or not by this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        response = _error_response(request.state.answer_of(MethodNotAllowed(request.method)))
        response.headers.update(error.headers or {})
        return response
    return _error_response(request.state.answer_of(UnknownRoute(request.url.path)))


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """While its body was read: there is nobody to answer."""
    return Response(status_code=499)


async def _our_mistake(request: Request, _error: Exception) -> Response:
    # Starlette raises it again afterwards, so that it is logged with its trace.
    return _error_response(request.state.answer_of(InternalError()))
