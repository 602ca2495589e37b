"""In and out: the one-time link, the password, the page that asks for either, the way out, and the two preferences.

It keeps no passwords and mints no links: control does both.
"""

import asyncio
import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from webui.errors import BadForm, ControlGone, ControlRefused, NotAllowed
from webui.guard import LOGIN, is_cross_site_visit
from webui.pages.edge import Form, Message, console_of, message, order, read_form, see_other, session_of
from webui.text import LANGUAGES
from webui.views.login import LoginPage
from webui.views.shell import NEXT_THEME

logger = logging.getLogger(__name__)

# Whoever sends a password has no session yet: such a form may not be kept open.
PASSWORD_FORM_S: Final = 10.0

LOG_IN: Final = Message("login.heading", "login.body", command="splash open")
LINK_USED: Final = Message("login.used_heading", "login.used_body", command="splash open")
GATEWAY_GONE: Final = Message("login.gone_heading", "login.gone_body", command="splash up")
NO_TOKEN: Final = Message("login.no_token_heading", "login.body", command="splash open")


async def log_in(request: Request) -> Response:
    """GET /login?token=…: the one GET that changes something, because a link can do nothing else."""
    if request.method == "HEAD" or request.headers.get("sec-purpose", request.headers.get("purpose", "")):
        # A preview or a prefetch must not use up the link.
        return PlainTextResponse("Open this link to log in.", status_code=403)
    token = request.query_params.get("token", "")
    if not token and console_of(request).has_password():
        return await _password_page(request, status=200)
    if not token:
        return await message(request, NO_TOKEN, status=400)
    try:
        await console_of(request).control.redeem(token)
    except ControlRefused as refusal:
        if refusal.status != 404:
            raise
        logger.warning("login refused code=%s", refusal.code)
        return await message(request, LINK_USED, status=403)
    except ControlGone:
        return await message(request, GATEWAY_GONE, status=502)
    return _let_in(request, "/")


async def log_in_by_password(request: Request) -> Response:
    """POST /login, from a browser that has no session, and so no form token: the guard has seen where it comes from."""
    try:
        async with asyncio.timeout(PASSWORD_FORM_S):
            form = await read_form(request)
    except TimeoutError as error:
        raise NotAllowed("the form came too slowly") from error
    next_path = _local_path(form.get("next", "/"))
    assert request.client is not None, "a browser has an address"
    try:
        await console_of(request).control.check_password(form.get("password", ""), request.client.host)
    except ControlRefused as refusal:
        logger.warning("login refused code=%s", refusal.code)
        return await _refused(request, refusal, next_path)
    except ControlGone:
        return await message(request, GATEWAY_GONE, status=502)
    return _let_in(request, next_path)


def _let_in(request: Request, next_path: str) -> Response:
    logger.info("logged in")
    # Whoever comes in sees the present, not what another tab saw half a second ago.
    console_of(request).watch.forget()
    response = see_other(next_path)
    console_of(request).sessions.begin(response)
    return response


async def _refused(request: Request, refusal: ControlRefused, next_path: str) -> Response:
    text = console_of(request).text_for(request)
    if refusal.code == "wrong_password":
        problem = text("login.wrong_password")
        return await _password_page(request, status=403, next_path=next_path, problem=problem, is_password_wrong=True)
    if refusal.code == "too_many_attempts":
        wait_s = refusal.retry_after_s or 0
        problem = text.count("login.too_many", wait_s)
        response = await _password_page(request, status=429, next_path=next_path, problem=problem)
        response.headers["Retry-After"] = str(wait_s)
        return response
    if refusal.code == "no_password":
        return await message(request, LOG_IN, status=403)
    raise refusal


async def _password_page(
    request: Request, *, status: int, next_path: str = "/", problem: str = "", is_password_wrong: bool = False
) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "message", "login.password_heading")
    view = LoginPage(shell, next_path=next_path, problem=problem, is_password_wrong=is_password_wrong)
    return console.answer(request, "login.html", view, status=status)


async def log_out(request: Request, _: Form) -> Response:
    response = see_other("/")
    session = session_of(request)
    assert session is not None, "a form is read only inside a session"
    console_of(request).sessions.end(response, session)
    return response


async def ask_to_log_in(request: Request) -> Response:
    """The answer to everything without a session."""
    if "hx-request" in request.headers:
        # htmx would put this page into a corner of the old one: make it load the whole.
        return PlainTextResponse("", status_code=401, headers={"HX-Refresh": "true"})
    if is_cross_site_visit(request):
        return await message(request, _come_in(request), status=200)
    if console_of(request).has_password():
        return await _password_page(request, status=401, next_path=_asked_for(request))
    return await message(request, LOG_IN, status=401)


async def prefer(request: Request, form: Form) -> Response:
    """Language or theme, kept by this browser."""
    sessions = console_of(request).sessions
    response = see_other(_local_path(form.get("here", "/")))
    if "language" in form:
        if form["language"] not in LANGUAGES:
            raise BadForm("language")
        sessions.prefer(response, sessions.language_cookie, form["language"])
    if "theme" in form:
        if form["theme"] not in NEXT_THEME:
            raise BadForm("theme")
        sessions.prefer(response, sessions.theme_cookie, form["theme"])
    return response


def _come_in(request: Request) -> Message:
    """A page of ours that goes on to the same address: then the visit is from our own site and brings its cookie."""
    path = _local_path(request.url.path)
    return Message("login.entering", "login.entering_body", link=path, link_text="login.enter", refresh_to=path)


def _asked_for(request: Request) -> str:
    """The page that was asked for, with its filters; the first one after an order, which is not given again."""
    if request.method != "GET":
        return "/"
    query = f"?{request.url.query}" if request.url.query else ""
    return _local_path(f"{request.url.path}{query}")


def _local_path(path: str) -> str:
    """`//host` and `/\\host` lead to other sites, and so do they with a tab in between."""
    is_local = path.startswith("/") and path.isprintable() and not path.startswith(("//", "/\\"))
    return path if is_local else "/"


ROUTES: Final = (
    Route(LOGIN, log_in),
    Route(LOGIN, log_in_by_password, methods=["POST"]),
    Route("/logout", order(log_out), methods=["POST"]),
    Route("/preferences", order(prefer), methods=["POST"]),
)
