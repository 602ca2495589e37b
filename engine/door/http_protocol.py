"""One HTTP connection to the door, as uvicorn serves it, with the bounds that uvicorn does not set.

1. A request's head has a limited size.
2. Whoever sends no whole head or no whole body for `patience_s` is cut off. Who takes nothing of an answer is not: it
   may be a control that was stopped for a while, and `engine.door.stream` bounds what waits for it.
3. An address that names another host than the Host header does is refused: the doorkeeper sees the header only.

It knows no path and no secret (`engine.door.doorkeeper`).
"""

import asyncio
from http import HTTPStatus
from typing import ClassVar, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from engine.errors import InvalidRequest
from engine.wire import ErrorAnswer

# Of one header: ": " and the end of its line.
SEPARATORS_LEN: Final = 4


class HttpProtocol(HttpToolsProtocol):
    patience_s: ClassVar[float] = 30.0
    """A client that owes us something is looked at so often; the second time it is cut off."""
    head_limit_bytes: ClassVar[int] = 64 * 1024
    """So many may a request line and its headers have, and what follows the last chunk of a body; the parser has no
    limit of its own."""

    _num_head_bytes = 0
    _num_heads = 0
    _is_refused = False
    _owed: tuple[str, int] | None = None
    _look_handle: asyncio.TimerHandle | None = None

    # --- A client that keeps us waiting ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._look_handle is not None:
            self._look_handle.cancel()

    def _look_later(self) -> None:
        self._look_handle = self.loop.call_later(self.patience_s, self._look)

    def _look(self) -> None:
        owed = self._what_is_owed()
        if owed is not None and owed == self._owed:
            self.transport.abort()
            return
        self._owed = owed
        self._look_later()

    def _what_is_owed(self) -> tuple[str, int] | None:
        """What the client has to do next, and of which request; None when the next step is ours."""
        if self.cycle is None or self.cycle.response_complete:
            return ("head", self._num_heads)
        if self.cycle.more_body and not self.cycle.response_started:
            return ("body", self._num_heads)
        return None

    # --- A head without end, or for somebody else ---

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._num_head_bytes += len(data)
        super().data_received(data)
        if self._num_head_bytes > self.head_limit_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers of this request are too large")

    def on_headers_complete(self) -> None:
        self._num_head_bytes = 0
        self._num_heads += 1
        if (
            len(self.url) + sum(len(name) + len(value) + SEPARATORS_LEN for name, value in self.headers)
            > self.head_limit_bytes
        ):
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers of this request are too large")
        elif not self._is_for_this_host():
            self._refuse(HTTPStatus.FORBIDDEN, "this address is of another host")
        elif not self._is_refused:
            super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._num_head_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._num_head_bytes = 0
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_head_bytes = 0
        if not self._is_refused:
            super().on_message_complete()

    def _is_for_this_host(self) -> bool:
        """RFC 9112, 3.2.2: an absolute address counts more than the Host header."""
        if self.url.startswith(b"/"):
            return True
        hosts = [value for name, value in self.headers if name == b"host"]
        return len(hosts) == 1 and self.url.lower().startswith(b"http://" + hosts[0].lower() + b"/")

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not an HTTP request")

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        """Read nothing more, answer without the application, and close; what is being answered is answered first."""
        if self._is_refused:
            return
        self._is_refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            if self.pipeline or self.cycle.response_started or not self.cycle.more_body:
                self.cycle.keep_alive = False
                return
            # The rest of its body can't come any more: to the application it is a client that left.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        error = InvalidRequest(reason)
        body = msgspec.json.encode(ErrorAnswer(code=error.code, message=error.message, retryable=False))
        headers = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + headers.encode() + body)
        self.transport.close()
