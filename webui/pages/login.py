"""In and out: the one-time link, the page that says how to get one, the way out, and the two preferences.

It keeps no passwords and mints no links: control does both.
"""

import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from webui.errors import BadForm, ControlGone, ControlRefused
from webui.guard import LOGIN, is_cross_site_visit
from webui.pages.edge import Form, Message, console_of, message, order, see_other, session_of
from webui.text import LANGUAGES
from webui.views.shell import NEXT_THEME

logger = logging.getLogger(__name__)

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
    logger.info("logged in")
    # Whoever comes in sees the present, not what another tab saw half a second ago.
    console_of(request).watch.forget()
    response = see_other("/")
    console_of(request).sessions.begin(response)
    return response


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


def _local_path(path: str) -> str:
    """`//host` and `/\\host` lead to other sites."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"


ROUTES: Final = (
    Route(LOGIN, log_in),
    Route("/logout", order(log_out), methods=["POST"]),
    Route("/preferences", order(prefer), methods=["POST"]),
)
