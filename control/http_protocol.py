"""One HTTP connection of a client, as uvicorn serves it, with what a gateway needs beyond that.

1. A client that stops reading is cut off; to the application it is a client that left.
2. It answers one request at a time: what comes before the answer is out is not read, so that a leaving is always seen.
3. HTTP/1.0 knows no chunks: its answers end with the connection.
4. What is no HTTP at all is refused in the API's own shape.
5. It speaks HTTP/1.1 whatever else is offered: an Upgrade header is left out, and the body is read.
6. Whoever does not say in time, and in bounded room, what is wanted is cut off; one client too many is told so, and
   other machines never have all of the places, nor one of them most.
7. An address that names another host than the Host header does is refused: the application sees the header only.

It knows no key and no request, and no path but for the shape of a refusal.
"""

import asyncio
import logging
import socket
import uuid
from typing import ClassVar, Final

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from control.dialects.error_answers import answers_of
from control.errors import ApiError, HeadTooLarge, HostNotAllowed, NotHttp, TooManyConnections
from control.lan import is_loopback

logger = logging.getLogger(__name__)


# The kernel tells that a client took something only when a third is free: with its own 4 MB, a slow client would seem
# to have stopped. It keeps twice as much.
SEND_BUFFER_BYTES: Final = 128 * 1024
# So many beyond the limit are told why; to answer takes a connection, so whoever comes then is only cut off.
TOLD_LIMIT: Final = 32
# Of the places of clients, so many quarters may other machines have together, and one address of theirs.
GUEST_QUARTERS: Final = 3
GUEST_QUARTERS_EACH: Final = 1
# Of one header: ": " and the end of its line.
SEPARATORS_LEN: Final = 4


class HttpProtocol(HttpToolsProtocol):
    stall_limit_s: ClassVar[float] = 60.0
    """So long may a client take nothing of what waits for it."""
    head_limit_s: ClassVar[float] = 30.0
    """So long may a request line and its headers take; between two requests a connection is closed sooner."""
    head_limit_bytes: ClassVar[int] = 64 * 1024
    """So many may a request line and its headers have, and what follows the last chunk of a body; the parser has no
    limit of its own."""
    connection_limit: ClassVar[int | None] = None
    """So many clients at once are served."""

    guest: str | None = None
    """The address of another machine; None: it is this one."""
    _is_deaf = False
    _is_one_too_many = False
    _is_upgrade = False
    _num_head_bytes = 0
    _stall_check: asyncio.TimerHandle | None = None
    _head_check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._await_head()
        if self.connection_limit is not None:
            self._find_a_place(self.connection_limit)

    @classmethod
    def limited_to(cls, connection_limit: int) -> type["HttpProtocol"]:
        """As uvicorn takes it: it makes one for each connection."""
        return type("LimitedProtocol", (cls,), {"connection_limit": connection_limit})

    # --- A client that stops reading ---

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_for_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()
        self._head_came()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_the_end()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_the_end()

    def _watch_the_end(self) -> None:
        """A closed connection lives until its last byte was taken, which nobody waits for."""
        if self.transport.is_closing():
            self._watch_for_progress()

    def _watch_for_progress(self) -> None:
        """Only while nothing is written, so that what is left can only become less."""
        num_left = self.transport.get_write_buffer_size()
        if num_left > 0 and self._stall_check is None:
            self._stall_check = self.loop.call_later(self.stall_limit_s, self._cut_if_stalled, num_left)

    def _stop_watching(self) -> None:
        if self._stall_check is not None:
            self._stall_check.cancel()
            self._stall_check = None

    def _cut_if_stalled(self, num_left_before: int) -> None:
        self._stall_check = None
        if self.transport.get_write_buffer_size() < num_left_before:
            self._watch_for_progress()
            return
        logger.info("client cut off, it stopped reading unread_bytes=%d", num_left_before)
        self.transport.abort()

    # --- A client that sends more before it has its answer ---

    def on_message_begin(self) -> None:
        if self._is_answering():
            self._go_deaf()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._is_deaf:
            return
        self._num_head_bytes = 0
        refusal = self._refusal_of_head()
        if refusal is not None:
            self._refuse(refusal)
            return
        self._is_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._is_upgrade:
            self._head_came()
            super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._num_head_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._num_head_bytes = 0
        if not self._is_deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_head_bytes = 0
        if not self._is_deaf and not self._is_upgrade:
            super().on_message_complete()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _go_deaf(self) -> None:
        # RFC 9112, 9.3.2: a client must send again what was not answered when the connection closed.
        self._is_deaf = True
        self.cycle.keep_alive = False

    # --- A client that offers another protocol ---

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        self._num_head_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            logger.info("no HTTP, refused reason=%r", str(error))
            self.send_400_response("")
        if self._num_head_bytes > self.head_limit_bytes:
            self._refuse(HeadTooLarge(limit_bytes=self.head_limit_bytes))
        if not self._is_answering():
            self._await_head()

    def _parse(self, data: bytes) -> None:
        while data and not self._is_deaf:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as end:
                # The parser takes what follows the headers for the other protocol, and can't be told otherwise.
                data = data[end.args[0] :]
                if self._is_upgrade:
                    self._parse_head_without_upgrade()
                else:
                    self._is_deaf = True

    def _parse_head_without_upgrade(self) -> None:
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", self.parser.get_http_version().encode(), b"\r\n"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn has it: what follows a last request is not an error, but thrown away.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"".join([*head, b"\r\n"]))

    # --- A client that does not say what it wants, and one too many ---

    def _find_a_place(self, limit: int) -> None:
        num_too_many = len(self.connections) - limit
        # Who has left already has no address.
        host = self.client[0] if self.client else "unknown"
        if not is_loopback(host):
            self.guest = host
            guests = [each.guest for each in self.connections if isinstance(each, HttpProtocol) and each.guest]
            num_too_many = max(num_too_many, guests.count(host) - _quarters(limit, GUEST_QUARTERS_EACH))
            if len(guests) > _quarters(limit, GUEST_QUARTERS):
                # Telling would take one of the places that are kept.
                self._turn_out()
        self._is_one_too_many = num_too_many > 0
        if num_too_many > TOLD_LIMIT:
            self._turn_out()

    def _turn_out(self) -> None:
        # It has no place from now on, though it is gone a moment later only.
        self.connections.discard(self)
        self.transport.abort()

    def _await_head(self) -> None:
        if self._head_check is None and not self.transport.is_closing():
            self._head_check = self.loop.call_later(self.head_limit_s, self._cut_without_head)

    def _head_came(self) -> None:
        if self._head_check is not None:
            self._head_check.cancel()
            self._head_check = None

    def _cut_without_head(self) -> None:
        logger.debug("client cut off, its headers did not come")
        self.transport.close()
        self._watch_the_end()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if self._is_one_too_many:
            app = _turn_away
        if cycle.scope["http_version"] == "1.0":
            app = _until_close(app, cycle)
        super()._start_asgi_task(cycle, _silent_when_cancelled(app, cycle))

    # --- A client that speaks no HTTP, or none that is served ---

    def _refusal_of_head(self) -> ApiError | None:
        if (
            len(self.url) + sum(len(name) + len(value) + SEPARATORS_LEN for name, value in self.headers)
            > self.head_limit_bytes
        ):
            return HeadTooLarge(limit_bytes=self.head_limit_bytes)
        if self.url.startswith(b"/"):
            return None
        if b"://" not in self.url:
            return NotHttp()
        # RFC 9112, 3.2.2: an absolute address counts more than the Host header.
        hosts = [value for name, value in self.headers if name == b"host"]
        is_same = len(hosts) == 1 and self.url.lower().startswith(b"http://" + hosts[0].lower() + b"/")
        return None if is_same else HostNotAllowed()

    def send_400_response(self, msg: str) -> None:
        self._refuse(NotHttp())

    def _refuse(self, error: ApiError) -> None:
        """Answer without the application, and read nothing more."""
        if self._is_answering():
            if self.cycle.response_started or not self.cycle.more_body:
                # In the middle of an answer these bytes would be taken for a part of it.
                self._go_deaf()
                return
            # The rest of its body can't come any more: to the application it is a client that left.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._is_deaf = True
        answer = answers_of("", "")(error)
        headers = (
            f"content-type: application/json\r\ncontent-length: {len(answer.body)}\r\n"
            f"x-request-id: {uuid.uuid4().hex}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[answer.status] + headers.encode() + answer.body)
        self.transport.close()
        self._watch_the_end()


def _quarters(limit: int, number: int) -> int:
    return max(1, limit * number // 4)


async def _turn_away(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    request_id = uuid.uuid4().hex
    answer = answers_of(scope["path"], request_id)(TooManyConnections())  # type: ignore[typeddict-item]  # HTTP only
    headers = [
        *answer.headers,
        (b"content-length", str(len(answer.body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"request-id", request_id.encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _silent_when_cancelled(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """`app`, which uvicorn cancels when it closes and a client takes nothing; it would log a fault, and answer it."""

    async def cut(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            cycle.disconnected = True
            cycle.transport.close()

    return cut


def _until_close(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """`app`, with answers that are framed by the end of the connection; uvicorn closes it after each of HTTP/1.0."""

    async def framed(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def send_plainly(message: ASGISendEvent) -> None:
            # False is "not chunked", and then uvicorn wants every byte to have been announced.
            cycle.chunked_encoding = False
            if message["type"] == "http.response.body":
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plainly)

    return framed
