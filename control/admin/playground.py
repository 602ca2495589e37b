"""The admin door for the console's page *Try it*: a chat without a key, in the same line as everybody's.

It holds no conversation, and nothing of it is kept: the caller sends all of it each time.
"""

import uuid
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from control import wire
from control.admin.edge import require_json
from control.admin.errors import OrderInvalid
from control.bodies import read_body
from control.dialects import chat
from control.dialects.error_answers import ErrorAnswer, sentence_of
from control.dialects.models import known_as
from control.engine_client import EngineSource
from control.errors import ApiError
from control.keys import Key
from control.public_api import RelayedAnswer, parsed
from control.reception import Reception
from control.relay import Relay

BODY_TIMEOUT_S: Final = 10.0
# No row of the table of keys has this id: nothing is counted against a key of a client.
CONSOLE_KEY: Final = Key(id=0, name="console", request_class="interactive")
# Any name will do while nobody knows which model comes.
ANY_MODEL: Final = "default"


@dataclass(frozen=True, slots=True)
class PlaygroundApi:
    relay: Relay
    source: EngineSource
    reception: Reception

    def routes(self) -> list[Route]:
        return [Route(wire.PLAYGROUND, self._chat, methods=["POST"])]

    async def _chat(self, request: Request) -> ASGIApp:
        require_json(request)
        reading = read_body(request, limit_bytes=wire.PLAYGROUND_LIMIT_BYTES, limit_s=BODY_TIMEOUT_S)
        order = _order(await self.reception.until_closed(reading))
        request_id = uuid.uuid4().hex
        exchange = await parsed(chat.parse_chat, _chat_body(order, self._model()), request_id)
        return _named(RelayedAnswer(self.relay, exchange, CONSOLE_KEY, None, _answer_of), request_id)

    def _model(self) -> str:
        if self.source.model is not None:
            return self.source.model.id
        return ANY_MODEL if self.source.wanted_model is None else known_as(self.source.wanted_model)


def _order(body: bytes) -> wire.PlaygroundRequest:
    try:
        return msgspec.json.decode(body, type=wire.PlaygroundRequest)
    except msgspec.DecodeError as error:
        raise OrderInvalid(f"{error}.") from error
    except RecursionError as error:
        raise OrderInvalid("The body is nested too deeply.") from error


def _chat_body(order: wire.PlaygroundRequest, model: str) -> bytes:
    """As any client would send it: the dialect checks it like theirs."""
    body: dict[str, Any] = {
        "model": model,
        "messages": order.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": order.temperature,
        "max_tokens": order.max_tokens,
    }
    return msgspec.json.encode(body)


def _answer_of(error: ApiError) -> ErrorAnswer:
    """What the relay refuses before anything was sent, in the shape of the admin API."""
    content = msgspec.json.encode(wire.AdminError(code=error.code, message=sentence_of(error)))
    return ErrorAnswer(error.status, ((b"content-type", b"application/json"),), content)


def _named(answer: RelayedAnswer, request_id: str) -> ASGIApp:
    """`answer` with the header that says which request of the overview it is."""

    async def with_id(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        await answer(scope, receive, send_with_id)

    return with_id
