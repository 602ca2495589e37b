"""The answer of one /generate: events from the worker thread, written as lines while the client listens.

It makes no events but those it is given, and the last one when an answer can't go on. What is ready together leaves in
one write.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from engine.errors import ClientTooSlow, EngineError, TextFailed, traced
from engine.wire import NDJSON, Event, Failed, Finished

logger = logging.getLogger(__name__)

MOST_UNREAD_BYTES: Final = 8 * 2**20
"""Lines that may wait while a write hangs: 200,000 tokens of plain text, or 4,000 with 20 alternatives each.

Who leaves that much unread reads no more, and four of them hold 32 MiB.
"""

_HEADERS: Final = [(b"content-type", NDJSON.encode()), (b"cache-control", b"no-cache")]
_encoder = msgspec.json.Encoder()


class EventStream:
    """An ASGI response. `cancel` is called once, if the answer ends before the worker has ended the request."""

    def __init__(self, *, request_id: str, cancel: Callable[[], object]) -> None:
        self._request_id = request_id
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._lines: list[bytes] = []
        self._num_bytes = 0
        self._is_writing = False
        self._is_over = False  # the last line is here, or nobody reads it
        self._is_cut = False  # by us: what the worker still sends is dropped
        self._client_gone = False

    def deliver(self, events: Sequence[Event]) -> None:
        """Take events from any thread. Does not block."""
        self._loop.call_soon_threadsafe(self.put, events)

    def put(self, events: Sequence[Event]) -> None:
        """Take events on the loop's own thread."""
        for event in events:
            if self._is_over:
                if not (self._is_cut or self._client_gone):
                    logger.error("event after the end id=%s event=%s", self._request_id, type(event).__name__)
                break
            if self._is_writing and self._num_bytes > MOST_UNREAD_BYTES:
                logger.warning("client does not read id=%s unread_bytes=%d", self._request_id, self._num_bytes)
                self._lines.clear()
                self._cut(ClientTooSlow(unread_bytes=self._num_bytes))
                break
            try:
                line = _encoder.encode_lines([event])
            except (TypeError, ValueError, OverflowError) as error:
                kind = type(event).__name__
                logger.error("event not encoded id=%s event=%s error=%s", self._request_id, kind, traced(error))
                self._cut(TextFailed())
                break
            self._lines.append(line)
            self._num_bytes += len(line)
            self._is_over = isinstance(event, (Finished, Failed))
        self._ready.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive), name=f"watch {self._request_id}")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            is_last = False
            while not is_last and not self._client_gone:
                await self._ready.wait()
                self._ready.clear()
                body, is_last = self._take(), self._is_over
                self._is_writing = True
                await send({"type": "http.response.body", "body": body, "more_body": not is_last})
                self._is_writing = False
        finally:
            watch.cancel()
            self._leave()

    def _take(self) -> bytes:
        body = b"".join(self._lines)
        self._lines.clear()
        self._num_bytes = 0
        return body

    def _cut(self, error: EngineError) -> None:
        """End the answer with an error of the door, and the request with it."""
        failed = Failed(code=error.code, message=error.message, retryable=error.retryable)
        self._lines.append(_encoder.encode_lines([failed]))
        self._is_over = self._is_cut = True
        self._cancel()

    async def _watch(self, receive: Receive) -> None:
        """Return when the client is gone; the request is cancelled then, even while a write hangs."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave()
        self._ready.set()

    def _leave(self) -> None:
        if not self._is_over:
            self._is_over = self._client_gone = True
            logger.debug("client left id=%s", self._request_id)
            self._cancel()
