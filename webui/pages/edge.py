"""The edge that all pages share: the console's parts, a page's shell, forms read and checked, errors made answers.

It holds no page and no policy of its own.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from webui import numbers
from webui.control_client import ControlClient
from webui.errors import BadForm, ConsoleError, ControlGone, ControlRefused, NotAllowed, OrderUnconfirmed
from webui.farewell import Farewell
from webui.render import Renderer, View
from webui.sessions import Notice, Session, Sessions
from webui.text import Language, Text, choose_language, choose_zone
from webui.typed_numbers import plain_digits
from webui.views.kept import kept_page
from webui.views.message import MessagePage
from webui.views.refusals import refusal_words
from webui.views.shell import (
    NEXT_THEME,
    Ending,
    Masthead,
    NoticeLine,
    PageName,
    Shell,
    Theme,
    Tone,
    farewell_masthead,
    masthead,
)
from webui.watch import Watch

logger = logging.getLogger(__name__)

# The largest form has a dozen short fields.
FORM_LIMIT_BYTES: Final = 16 * 1024
# A trillion: more than any number that a form asks for, and far below what Python refuses to read.
NUMBER_LIMIT_DIGITS: Final = 12
_SERVER_ERROR: Final = 500

Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Console:
    """The parts that pages work with, built once in `webui.app`."""

    control: ControlClient
    watch: Watch
    sessions: Sessions
    farewell: Farewell
    renderer: Renderer
    texts: Mapping[Language, Text]
    has_password: Callable[[], bool]

    def text_for(self, request: Request) -> Text:
        """In the language and the time zone of who asks."""
        chosen = request.cookies.get(self.sessions.language_cookie)
        text = self.texts[choose_language(chosen=chosen, accept_language=request.headers.get("accept-language", ""))]
        return replace(text, zone=choose_zone(unquote(request.cookies.get(self.sessions.zone_cookie, ""))))

    def theme_for(self, request: Request) -> Theme:
        chosen = request.cookies.get(self.sessions.theme_cookie)
        return next((theme for theme in NEXT_THEME if theme == chosen), "system")

    async def shell(self, request: Request, page: PageName, title: str, *, here: str = "/") -> Shell:
        """The surroundings of `page`; with the system's state only inside a session."""
        text = self.text_for(request)
        session = session_of(request)
        notice = self.sessions.notice(request.cookies) if session is not None else None
        return Shell(
            text=text,
            theme=self.theme_for(request),
            page=page,
            title=text(title),
            here=here,
            form_token=session.form_token if session is not None else "",
            masthead=await self._masthead(text) if session is not None else None,
            notice=_notice_line(notice, text) if notice is not None else None,
            ending=self._ending(),
            zone_cookie=self.sessions.zone_cookie,
        )

    def _ending(self) -> Ending:
        if not self.farewell.has_begun:
            return "no"
        return "over" if self.farewell.progress().is_over else "begun"

    async def _masthead(self, text: Text) -> Masthead:
        ending = self._ending()
        if ending != "no":
            return farewell_masthead(await self.watch.look(), text, is_over=ending == "over")
        return masthead(await self.watch.look(), text)

    def answer(
        self, request: Request, template: str, view: View, *, block: str | None = None, status: int = 200
    ) -> Response:
        """The page, or one block of it. A notice is shown on a whole page, once."""
        if block is not None:
            return HTMLResponse(self.renderer.block(template, block, view), status, {"Vary": "HX-Request"})
        response = HTMLResponse(self.renderer.page(template, view), status, {"Vary": "HX-Request"})
        if view.shell.notice is not None:
            self.sessions.drop_notice(response)
        return response


def console_of(request: Request) -> Console:
    return cast(Console, request.app.state.console)


def session_of(request: Request) -> Session | None:
    return cast("Session | None", request.scope.get("state", {}).get("session"))


def _notice_line(notice: Notice, text: Text) -> NoticeLine:
    tone: Tone = "good" if notice.is_good else "wait"
    return NoticeLine(notice.message, numbers.time_of_day(text, notice.left_at_s), tone)


def see_other(path: str) -> Response:
    return RedirectResponse(path, status_code=303)


Order = Callable[[Request, Form], Awaitable[Response]]


def order(action: Order, *, back: str = "/", is_typed: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """A POST endpoint: checks that the form is of this session, does `action`, tells of failures on page `back`.

    `is_typed`: a person filled the form in, so while control can't take it what they typed is kept, to be sent again.
    """

    async def endpoint(request: Request) -> Response:
        form = await _read_form(request)
        console = console_of(request)
        try:
            return await action(request, form)
        except (ControlGone, ControlRefused, BadForm) as error:
            logger.info("order refused path=%r code=%s", request.url.path, error.code)
            if is_typed and may_be_taken_later(error):
                return await _kept(request, form, sentence_for(error, console.text_for(request)), back)
            response = see_other(back)
            console.sessions.leave_notice(response, sentence_for(error, console.text_for(request)))
            return response
        finally:
            console.watch.forget()

    return endpoint


def may_be_taken_later(error: ConsoleError) -> bool:
    """What is wrong is not what was typed."""
    return isinstance(error, ControlGone) or (isinstance(error, ControlRefused) and error.status >= _SERVER_ERROR)


async def _kept(request: Request, form: Form, reason: str, back: str) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "message", "kept.heading", here=back)
    query = f"?{request.url.query}" if request.url.query else ""
    view = kept_page(shell, form, reason=reason, action=f"{request.url.path}{query}", back=back)
    return console.answer(request, "kept.html", view, status=ControlGone.status)


async def message(request: Request, sentence: "Message", *, status: int) -> Response:
    """A page of one message."""
    console = console_of(request)
    shell = await console.shell(request, "message", sentence.heading)
    view = MessagePage(
        shell=shell,
        heading=shell.text(sentence.heading),
        sentence=shell.text(sentence.body),
        command=sentence.command,
        link=sentence.link,
        link_text=shell.text(sentence.link_text) if sentence.link_text else "",
        refresh_to=sentence.refresh_to,
    )
    return console.answer(request, "message.html", view, status=status)


@dataclass(frozen=True, slots=True)
class Message:
    """Keys of the sentences of a message page."""

    heading: str
    body: str
    command: str | None = None
    link: str | None = None
    link_text: str | None = None
    refresh_to: str | None = None


def sentence_for(error: ConsoleError, text: Text) -> str:
    """What a person reads about `error`."""
    if isinstance(error, ControlRefused):
        return refusal_words(error.code, error.message, text)
    if isinstance(error, OrderUnconfirmed):
        return text("error.unconfirmed")
    if isinstance(error, ControlGone):
        return text("error.gone")
    if isinstance(error, BadForm):
        return text("error.bad_form", field=error.field)
    return text("error.not_allowed")


def whole_number(form: Form, field: str) -> int | None:
    """The number in `field`, digits grouped or not; None when it is empty. Raises BadForm."""
    value = plain_digits(form.get(field, "")).strip()
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= NUMBER_LIMIT_DIGITS):
        raise BadForm(field)
    return int(value)


async def read_form(request: Request) -> Form:
    """Whoever has sent it. Raises NotAllowed when it is too long, or no text."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_LIMIT_BYTES:
            raise NotAllowed("the form is too long")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True))
    except UnicodeDecodeError as error:
        raise NotAllowed("the form is not text") from error


async def _read_form(request: Request) -> Form:
    form = await read_form(request)
    session = session_of(request)
    if session is None or not console_of(request).sessions.is_form_of(session, form.get("form_token", "")):
        raise NotAllowed("the form is not from this session")
    return form
