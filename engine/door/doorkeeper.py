"""Who may come in: the secret on every path but one, this machine's own names as Host, and bodies of a bounded size.

It knows no route and reads no body that it has not been asked to read.
"""

import hmac
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.door.answers import error_response
from engine.errors import BodyTooLarge, EngineError, InvalidRequest, Unauthorized
from engine.wire import HEALTHZ

# Contexts are long: 262k tokens are about 1 MiB of text, and images travel as base64.
LARGEST_BODY_BYTES: Final = 64 * 1024 * 1024


class Doorkeeper:
    """ASGI middleware. The secret is compared in constant time; a wrong Host is a page elsewhere that found us."""

    def __init__(self, app: ASGIApp, *, secret: str, port: int) -> None:
        self._app = app
        self._expected = f"Bearer {secret}".encode()
        self._hosts = frozenset(f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            response: Response = error_response(refusal)
            await response(scope, receive, send)

    def _refusal(self, scope: Scope) -> EngineError | None:
        if _only(scope, b"host").lower() not in self._hosts:
            return InvalidRequest("this door answers to its own loopback address only", param="Host")
        if scope["path"] == HEALTHZ:
            return None
        if not hmac.compare_digest(_only(scope, b"authorization"), self._expected):
            return Unauthorized("the secret of this launch is missing or wrong")
        return None


def _only(scope: Scope, name: bytes) -> bytes:
    """Empty when the header is missing, and when it is there twice: then it is not clear which one counts."""
    values: list[bytes] = [value for header, value in scope["headers"] if header == name]
    return values[0] if len(values) == 1 else b""


async def read_body(request: Request, *, limit_bytes: int = LARGEST_BODY_BYTES) -> bytes:
    """Raises BodyTooLarge, before reading when the length is announced."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    chunks: list[bytes] = []
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > limit_bytes:
            raise BodyTooLarge(limit_bytes=limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)
