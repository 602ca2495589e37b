"""The public API on :8888: which path is whose, and every error in the API's own shape.

It knows no more of a request than its path: the gate checks its key, a dialect parses it, the relay lives it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from control.aliases import Aliases
from control.bodies import BODY_LIMIT_BYTES, BODY_TIMEOUT_S, read_body
from control.delivery import Delivery
from control.dialects import chat, completions, messages, models, responses
from control.dialects.error_answers import AnswerOf
from control.dialects.exchange import Exchange
from control.dialects.response_history import ResponseHistory
from control.engine_client import EngineSource
from control.errors import (
    ApiError,
    InternalError,
    MethodNotAllowed,
    UnknownRoute,
    traced,
)
from control.gate import Gate, error_response, log_refusal
from control.keys import Key, KeyRing
from control.lan import LanHosts
from control.reception import Reception
from control.relay import Relay
from engine.wire import RequestClass

logger = logging.getLogger(__name__)

# A larger body is parsed beside the event loop; for a smaller one the way there takes longer than the parsing.
PARSED_AT_ONCE_BYTES: Final = 64 * 1024

Parsed = TypeVar("Parsed")
Parser = Callable[[bytes, str], Exchange]


def public_api(
    *,
    keys: KeyRing,
    relay: Relay,
    source: EngineSource,
    hosts: Iterable[str],
    lan: LanHosts | None = None,
    aliases: Aliases | None = None,
    reception: Reception | None = None,
    body_limit_bytes: int = BODY_LIMIT_BYTES,
    body_timeout_s: float = BODY_TIMEOUT_S,
    wall: Callable[[], float] = time.time,
) -> ASGIApp:
    """The ASGI application. `hosts` are the Host headers that it answers to, each with its port, compared exactly.

    `lan`: those of this machine on its network, too; None: other machines are not served.
    `aliases`: the default ones when they are left out. `reception` None: nobody will close it.
    """
    started_at_s = wall()
    history = ResponseHistory()
    aliases = aliases or Aliases()
    reception = reception or Reception()

    async def alive(_request: Request) -> Response:
        return _json({"status": "ok"})

    async def body_of(request: Request) -> bytes:
        return await reception.until_closed(read_body(request, limit_bytes=body_limit_bytes, limit_s=body_timeout_s))

    def asked_in(parser_of: Callable[[Key], Parser]) -> Callable[[Request], Awaitable[RelayedAnswer]]:
        """The endpoint of a dialect, by its parser for whoever asks."""

        async def endpoint(request: Request) -> RelayedAnswer:
            body = await body_of(request)
            exchange = await parsed(parser_of(request.state.key), body, request.state.request_id)
            request_class = models.check_model(exchange.model, source, aliases)
            return RelayedAnswer(relay, exchange, request.state.key, request_class, request.state.answer_of)

        return endpoint

    def responses_parser(key: Key) -> Parser:
        return partial(responses.parse_responses, history=history.of(key.id))

    async def count_tokens(request: Request) -> Response:
        body = await body_of(request)
        asked = await parsed(messages.parse_count, body, request.state.request_id)
        models.check_model(asked.model, source, aliases)
        counting = reception.until_closed(relay.count(asked.prompt, request.state.key))
        return Response(messages.count_body(await unless_gone(request, counting)), media_type="application/json")

    async def list_models(_request: Request) -> Response:
        return _json(models.model_list(source, aliases, now_s=started_at_s))

    async def one_model(request: Request) -> Response:
        return _json(models.model_entry(request.path_params["model_id"], source, aliases, now_s=started_at_s))

    app = Starlette(
        routes=[
            Route("/", alive),
            Route("/healthz", alive),
            Route(chat.PATH, asked_in(lambda _: chat.parse_chat), methods=["POST"]),
            Route(completions.PATH, asked_in(lambda _: completions.parse_completions), methods=["POST"]),
            Route(responses.PATH, asked_in(responses_parser), methods=["POST"]),
            Route(messages.PATH, asked_in(lambda _: messages.parse_messages), methods=["POST"]),
            Route(messages.COUNT_PATH, count_tokens, methods=["POST"]),
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
    return Gate(app, keys=keys, hosts=frozenset(hosts), lan=lan)


class RelayedAnswer:
    """An answer that the relay writes, for as long as the client stays."""

    def __init__(
        self, relay: Relay, exchange: Exchange, key: Key, request_class: RequestClass | None, answer_of: AnswerOf
    ) -> None:
        self._relay = relay
        self._exchange = exchange
        self._key = key
        self._request_class = request_class
        self._answer_of = answer_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        delivery = Delivery(send, is_stream=self._exchange.is_stream)
        serving = self._relay.serve(
            self._exchange, self._key, delivery, answer_of=self._answer_of, request_class=self._request_class
        )
        async with asyncio.TaskGroup() as group:
            work = group.create_task(serving)
            watch = group.create_task(_cancel_when_gone(receive, work, delivery))
            work.add_done_callback(lambda _: watch.cancel())


async def _cancel_when_gone(receive: Receive, work: asyncio.Task[None], delivery: Delivery) -> None:
    await _until_gone(receive)
    # uvicorn says so after a whole answer, too; then what is left is tidying up, which must not be cut short.
    if not delivery.is_over:
        work.cancel()


async def unless_gone(request: Request, work: Coroutine[Any, Any, Parsed]) -> Parsed:
    """The result of `work`. Raises ClientDisconnect when the client leaves first; `work` is cancelled then."""
    working = asyncio.create_task(work)
    watch = asyncio.create_task(_until_gone(request.receive))
    try:
        await asyncio.wait((working, watch), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watch.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def parsed(parse: Callable[[bytes, str], Parsed], body: bytes, request_id: str) -> Parsed:
    """Raises what `parse` raises on purpose, and InternalError for a mistake of ours, whose text is not logged."""
    try:
        if len(body) <= PARSED_AT_ONCE_BYTES:
            return parse(body, request_id)
        return await asyncio.to_thread(parse, body, request_id)
    except ApiError:
        raise
    except Exception as error:
        logger.error("parsing broke id=%s error=%s", request_id, traced(error))
        raise InternalError from None


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _refused(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path, or not by this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        response = _refused(request, MethodNotAllowed(request.method))
        response.headers.update(error.headers or {})
        return response
    # Not the path of `request.url`, which takes the first part of //v1/messages for a host.
    return _refused(request, UnknownRoute(request.scope["path"]))


def _refused(request: Request, error: ApiError) -> Response:
    """What never became a request has no row: this line is all that is left of it."""
    key = request.state.key
    log_refusal(request.state.request_id, error, path=request.scope["path"], key="-" if key is None else repr(key.name))
    return error_response(request.state.answer_of(error))


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """While its body was read: there is nobody to answer."""
    return Response(status_code=499)


async def _our_mistake(request: Request, _error: Exception) -> Response:
    # Starlette raises it again afterwards, so that it is logged with its trace.
    return error_response(request.state.answer_of(InternalError()))
