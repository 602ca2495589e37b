"""One HTTP connection of a browser, as uvicorn serves it, with the bounds that uvicorn does not set.

1. A request's head has a limited size; what is no HTTP at all is refused with the headers of every other answer.
2. Whoever sends no whole head, no whole body, or takes nothing of an answer for `patience_s` is cut off.
3. An address that names another host than the Host header does is refused: the guard sees the header only.
4. So many browsers at once, and no more: other machines never have all of the places, and one of them few.

It knows no page and no session (`webui.guard`).
"""

import asyncio
from http import HTTPStatus
from typing import ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from webui.lan import is_loopback

# Of one header: ": " and the end of its line.
SEPARATORS_LEN: Final = 4
_HEADERS: Final = (
    b"content-type: text/plain; charset=utf-8\r\n"
    b"content-security-policy: default-src 'none'; frame-ancestors 'none'\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"cache-control: no-store\r\n"
    b"connection: close\r\n"
)


class HttpProtocol(HttpToolsProtocol):
    patience_s: ClassVar[float] = 30.0
    """A client that owes us something is looked at so often; the second time it is cut off."""
    head_limit_bytes: ClassVar[int] = 64 * 1024
    """So many may a request line and its headers have, and what follows the last chunk of a body; the parser has no
    limit of its own."""
    connection_limit: ClassVar[int] = 128
    """macOS lets a process have 256 files open; as many again may lead on to control."""
    guest_limit: ClassVar[int] = 96
    """So many of them may be of other machines, so that whoever sits here always finds a place."""
    guest_limit_each: ClassVar[int] = 32
    """So many of one address of another machine: a browser keeps six."""

    guest: str | None = None
    """The address of another machine; None: it is this one."""
    _num_head_bytes = 0
    _num_heads = 0
    _num_resumed = 0
    _is_paused = False
    _is_refused = False
    _owed: tuple[str, int, int] | None = None
    _look_handle: asyncio.TimerHandle | None = None

    # --- A client that keeps us waiting ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self.connection_limit or self._is_one_guest_too_many():
            # It has no place from now on, though it is gone a moment later only.
            self.connections.discard(self)
            transport.abort()
            return
        self._look_later()

    def _is_one_guest_too_many(self) -> bool:
        # Who has left already has no address.
        host = self.client[0] if self.client else "unknown"
        if is_loopback(host):
            return False
        self.guest = host
        guests = [each.guest for each in self.connections if isinstance(each, HttpProtocol) and each.guest]
        return len(guests) > self.guest_limit or guests.count(host) > self.guest_limit_each

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._look_handle is not None:
            self._look_handle.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_paused = True

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_paused = False
        self._num_resumed += 1

    def _look_later(self) -> None:
        self._look_handle = self.loop.call_later(self.patience_s, self._look)

    def _look(self) -> None:
        owed = self._what_is_owed()
        if owed is not None and owed == self._owed:
            self.transport.abort()
            return
        self._owed = owed
        self._look_later()

    def _what_is_owed(self) -> tuple[str, int, int] | None:
        """What the client has to do next, and how far it is; None when the next step is ours."""
        num_unread_bytes = self.transport.get_write_buffer_size()
        if num_unread_bytes > 0 and (self._is_paused or self.transport.is_closing()):
            return ("take", self._num_resumed, num_unread_bytes)
        if self.cycle is None or self.cycle.response_complete:
            return ("head", self._num_heads, 0)
        if self.cycle.more_body and not self.cycle.response_started:
            return ("body", self._num_heads, 0)
        return None

    # --- A head without end, or for somebody else ---

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._num_head_bytes += len(data)
        super().data_received(data)
        if self._num_head_bytes > self.head_limit_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers of this request are too large.")

    def on_headers_complete(self) -> None:
        self._num_head_bytes = 0
        self._num_heads += 1
        if (
            len(self.url) + sum(len(name) + len(value) + SEPARATORS_LEN for name, value in self.headers)
            > self.head_limit_bytes
        ):
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers of this request are too large.")
        elif not self._is_for_this_host():
            self._refuse(HTTPStatus.FORBIDDEN, "This address is of another host.")
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
        self._refuse(HTTPStatus.BAD_REQUEST, "This is not an HTTP request.")

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
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
        length = f"content-length: {len(sentence)}\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + _HEADERS + length.encode() + sentence.encode())
        self.transport.close()
