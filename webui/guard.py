"""The console's door-keeper: who may talk to it at all, and what every answer carries.

It checks Host, Origin and the fetch metadata before any page runs, and demands a session for all but the open paths.
It does not read bodies: the token of a form is checked where the form is read (`webui.pages.edge`).
"""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui.lan import LanHosts, is_loopback
from webui.sessions import Sessions

HEALTHZ: Final = "/healthz"
LOGIN: Final = "/login"
STATIC: Final = "/static/"

_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with it a browser sends `Origin: null` with our own forms, and we refuse that.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}

Refuse = Callable[[Request], Awaitable[Response]]


class Guard:
    """ASGI middleware. `ask_to_log_in` makes the answer for a browser without a session.

    `lan` None: other machines are not served.
    """

    def __init__(
        self, app: ASGIApp, *, sessions: Sessions, port: int, ask_to_log_in: Refuse, lan: LanHosts | None = None
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._ask_to_log_in = ask_to_log_in
        self._lan = lan
        # Exact names, whole header: no prefixes, no X-Forwarded-Host. Against DNS rebinding.
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _with_headers(send, is_static=scope["path"].startswith(STATIC))
        refusal = self._refusal(scope)
        if refusal is not None:
            await PlainTextResponse(refusal, status_code=403)(scope, receive, answer)
            return
        request = Request(scope)
        session = self._sessions.read(request.cookies)
        if session is None and not _is_open(scope["path"]):
            await (await self._ask_to_log_in(request))(scope, receive, answer)
            return
        scope["state"] = {**scope.get("state", {}), "session": session}
        await self._app(scope, receive, answer)

    def _refusal(self, scope: Scope) -> str | None:
        """Why this request is not served, None when it is."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0].lower(), scope):
            return self._unknown_host
        if scope["method"] in _SAFE_METHODS:
            return None
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{hosts[0].lower()}":
            return "This form was sent from another page."
        # Another port of this machine is same-site, and still not us.
        if headers.get("sec-fetch-site") in _FOREIGN_SITES:
            return "This form was sent from another site."
        return None

    def _is_ours(self, host: str, scope: Scope) -> bool:
        return host in self._hosts or (self._lan is not None and self._lan.allows(host, scope.get("server")))

    @property
    def _unknown_host(self) -> str:
        if self._lan is None:
            return "Unknown host. The console answers as 127.0.0.1, localhost and [::1] only."
        return "Unknown host. The console answers to this machine's name in the network and to its IP address only."


def is_cross_site_visit(request: Request) -> bool:
    """A link on another site was followed to us: the browser holds SameSite=Strict cookies back this once."""
    headers = request.headers
    return (
        request.method == "GET"
        and headers.get("sec-fetch-site") == "cross-site"
        and headers.get("sec-fetch-mode") == "navigate"
    )


def is_on_this_machine(request: Request) -> bool:
    """Who asks is a program or a browser here, by the address that the connection comes from."""
    return request.client is not None and is_loopback(request.client.host)


def _is_open(path: str) -> bool:
    return path in (HEALTHZ, LOGIN) or path.startswith(STATIC)


def _with_headers(send: Send, *, is_static: bool) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers["Cache-Control"] = "no-cache" if is_static else "no-store"
        await send(message)

    return send_with_headers
