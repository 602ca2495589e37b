"""Endpoints of the page *Try it*: the page, the model that would answer, and one question of a conversation.

It stores nothing: the browser sends the whole conversation with each question.
"""

import logging
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control.wire import PLAYGROUND_LIMIT_BYTES, PlaygroundRequest
from webui.errors import BadForm, ConsoleError, ControlRefused, NotAllowed
from webui.pages.edge import console_of, sentence_for, session_of
from webui.playground_answer import Account, PlaygroundAnswer
from webui.text import Text
from webui.views.playground import PlaygroundPage, playground_page, problem_words, usual_limit

logger = logging.getLogger(__name__)

_TEMPLATE: Final = "playground.html"
# A request of a script carries no form, so its token comes here.
FORM_TOKEN_HEADER: Final = "x-form-token"


async def show(request: Request) -> Response:
    return console_of(request).answer(request, _TEMPLATE, await _view(request))


async def show_model(request: Request) -> Response:
    return console_of(request).answer(request, _TEMPLATE, await _view(request), block="model")


async def ask(request: Request) -> Response | PlaygroundAnswer:
    """One question: an answer that streams, or a refusal with its sentence as JSON."""
    console = console_of(request)
    text = console.text_for(request)
    try:
        order = await _order(request)
        if order.max_tokens is None:
            order = msgspec.structs.replace(order, max_tokens=usual_limit(await console.watch.look()))
        account = Account(text)
        return PlaygroundAnswer(await console.control.talk(order), account, console.watch, text)
    except ConsoleError as error:
        logger.info("question refused code=%s", error.code)
        words = msgspec.json.encode({"words": _words(error, text)})
        return Response(words, error.status, media_type="application/json")
    finally:
        console.watch.forget()


async def _order(request: Request) -> PlaygroundRequest:
    """Raises NotAllowed, BadForm."""
    session = session_of(request)
    token = request.headers.get(FORM_TOKEN_HEADER, "")
    if session is None or not console_of(request).sessions.is_form_of(session, token):
        raise NotAllowed("the question is not from this session")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > PLAYGROUND_LIMIT_BYTES:
            raise ControlRefused(code="request_too_large", message="The conversation is too large.", status=413)
    try:
        return msgspec.json.decode(body, type=PlaygroundRequest)
    except msgspec.DecodeError as error:
        raise BadForm("question") from error


def _words(error: ConsoleError, text: Text) -> str:
    if isinstance(error, ControlRefused):
        return problem_words(error.code, error.message, text)
    if isinstance(error, BadForm):
        return text("talk.unreadable")
    return sentence_for(error, text)


async def _view(request: Request) -> PlaygroundPage:
    console = console_of(request)
    shell = await console.shell(request, "playground", "nav.playground", here="/playground")
    return playground_page(shell, await console.watch.look())


ROUTES: Final = (
    Route("/playground", show),
    Route("/playground/model", show_model),
    Route("/playground/chat", ask, methods=["POST"]),
)
