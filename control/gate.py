"""What every request to the public API passes before its path is looked at: the host, the key. It names each request.

It knows no path but those that need no key, and reads no body.
"""

import hashlib
import logging
import re
import uuid
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from control.dialects.error_answers import ErrorAnswer, answers_of
from control.errors import ApiError, HostNotAllowed, NotAuthenticated, UnknownModel
from control.keys import Key, KeyRing
from control.lan import LanHosts

logger = logging.getLogger(__name__)

_MODEL_NAME: Final = re.compile(r"[\w./:@+-]{1,80}")
_LONGEST_LOGGED: Final = 80
_FINGERPRINT_LEN: Final = 8
_MOST_FINGERPRINTS: Final = 2
# Paths without a key: Claude Code asks HEAD / first; a load balancer asks for health.
OPEN_PATHS: Final = ("/", "/healthz")


def loopback_hosts(port: int) -> frozenset[str]:
    """The Host headers that a client on this machine sends."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


class Gate:
    """Before a path is looked at or a byte of a body is read: the host, the key. Every answer gets a request id.

    `lan` None: other machines are not served.
    """

    def __init__(self, app: ASGIApp, *, keys: KeyRing, hosts: frozenset[str], lan: LanHosts | None = None) -> None:
        self.app = app
        self._keys = keys
        self._hosts = hosts
        self._lan = lan

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
            log_refusal(request_id, error, path=scope["path"], key=_fingerprints(scope))
            await error_response(answer_of(error))(scope, receive, send_with_id)
            return
        scope.setdefault("state", {}).update(request_id=request_id, key=key, answer_of=answer_of)
        await self.app(scope, receive, send_with_id)

    def _check_host(self, scope: Scope) -> None:
        sent = _values(scope, b"host")
        host = sent[0].decode("latin-1").lower() if len(sent) == 1 else ""
        if host in self._hosts:
            return
        if self._lan is None or not self._lan.allows(host, scope.get("server")):
            raise HostNotAllowed

    def _key(self, scope: Scope) -> Key:
        for token in _tokens(scope):
            key = self._keys.verify(token)
            if key is not None:
                return key
        raise NotAuthenticated


def log_refusal(request_id: str, error: ApiError, *, path: str, key: str) -> None:
    """`key`: its name as a literal, or what tells it from others without being it.

    A model's name is written for whoever looks for a client's mistake; what can't be one may be somebody's words.
    """
    model = None
    if isinstance(error, UnknownModel):
        model = error.name if _MODEL_NAME.fullmatch(error.name) else "(not a name)"
    logger.info(
        "request refused id=%s key=%s path=%r status=%d error=%s param=%r model=%r",
        request_id,
        key,
        path[:_LONGEST_LOGGED],
        error.status,
        error.code,
        None if error.param is None else error.param[:_LONGEST_LOGGED],
        model,
    )


def error_response(answer: ErrorAnswer) -> Response:
    response = Response(answer.body, status_code=answer.status)
    response.raw_headers.extend(answer.headers)
    return response


def _tokens(scope: Scope) -> list[bytes]:
    """Every key that was sent, by either header: clients differ in which they use for what."""
    tokens = list(_values(scope, b"x-api-key"))
    for value in _values(scope, b"authorization"):
        scheme, _, token = value.partition(b" ")
        if scheme.lower() == b"bearer":
            tokens.append(token.strip())
    return tokens


def _fingerprints(scope: Scope) -> str:
    """The beginning of the hash of each key that was sent, as many as say something."""
    found = [hashlib.sha256(token).hexdigest()[:_FINGERPRINT_LEN] for token in _tokens(scope)[:_MOST_FINGERPRINTS]]
    return ",".join(found) or "-"


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for header, value in scope["headers"] if header == name]
