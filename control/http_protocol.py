"""One HTTP connection of a client, as uvicorn serves it, with what a gateway needs beyond that.

1. A client that stops reading is cut off; to the application it is a client that left.
2. It answers one request at a time: what comes before the answer is out is not read, so that a leaving is always seen.
3. HTTP/1.0 knows no chunks: its answers end with the connection.
4. What is no HTTP at all is refused in the API's own shape.

It knows no path, no key and no request.
"""

import asyncio
import logging
import socket
import uuid
from typing import ClassVar, Final

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from control.dialects.error_answers import answers_of
from control.errors import NotHttp

logger = logging.getLogger(__name__)


# The kernel tells that a client took something only when a third is free: with its own 4 MB, a slow client would seem
# to have stopped. It keeps twice as much.
SEND_BUFFER_BYTES: Final = 128 * 1024


class HttpProtocol(HttpToolsProtocol):
    stall_limit_s: ClassVar[float] = 60.0
    """So long may a client take nothing of what waits for it."""

    _is_deaf = False
    _stall_check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

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

    def data_received(self, data: bytes) -> None:
        if not self._is_deaf:
            super().data_received(data)

    def on_message_begin(self) -> None:
        if self._is_answering():
            self._go_deaf()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if not self._is_deaf:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._is_deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_deaf:
            super().on_message_complete()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _go_deaf(self) -> None:
        # RFC 9112, 9.3.2: a client must send again what was not answered when the connection closed.
        self._is_deaf = True
        self.cycle.keep_alive = False

    # --- A client that speaks HTTP/1.0, or none ---

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        is_old = cycle.scope["http_version"] == "1.0"
        super()._start_asgi_task(cycle, _until_close(app, cycle) if is_old else app)

    def send_400_response(self, msg: str) -> None:
        if self._is_answering():
            # In the middle of an answer these bytes would be taken for a part of it.
            self._go_deaf()
            return
        body = answers_of("", "")(NotHttp()).body
        headers = (
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {uuid.uuid4().hex}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[NotHttp.status] + headers.encode() + body)
        self.transport.close()
        self._watch_the_end()


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
