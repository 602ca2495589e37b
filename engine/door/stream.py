"""The answer of one /generate: events from the worker thread, written as lines while the client listens.

It makes no events but those it is given. What is ready together leaves in one write.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from engine.wire import NDJSON, Event, Failed, Finished

logger = logging.getLogger(__name__)

_HEADERS: Final = [(b"content-type", NDJSON.encode()), (b"cache-control", b"no-cache")]
_encoder = msgspec.json.Encoder()


class EventStream:
    """An ASGI response. `cancel` is called once, if the client leaves before the last event."""

    def __init__(self, *, request_id: str, cancel: Callable[[], object]) -> None:
        self._request_id = request_id
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._pending: list[Event] = []
        self._end: Finished | Failed | None = None
        self._client_gone = False

    def deliver(self, events: Sequence[Event]) -> None:
        """Take events from any thread. Does not block."""
        self._loop.call_soon_threadsafe(self.put, events)

    def put(self, events: Sequence[Event]) -> None:
        """Take events on the loop's own thread."""
        for event in events:
            if self._end is not None:
                logger.error("event after the end id=%s event=%s", self._request_id, type(event).__name__)
                break
            self._pending.append(event)
            if isinstance(event, (Finished, Failed)):
                self._end = event
        self._ready.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive), name=f"watch {self._request_id}")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            is_last = False
            while not is_last and not self._client_gone:
                await self._ready.wait()
                self._ready.clear()
                events, self._pending = self._pending, []
                is_last = bool(events) and isinstance(events[-1], (Finished, Failed))
                await send(
                    {"type": "http.response.body", "body": _encoder.encode_lines(events), "more_body": not is_last}
                )
        finally:
            watch.cancel()
            self._leave()

    async def _watch(self, receive: Receive) -> None:
        """Return when the client is gone; the request is cancelled then, even while a write hangs."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave()
        self._ready.set()

    def _leave(self) -> None:
        if self._end is None and not self._client_gone:
            self._client_gone = True
            logger.debug("client left id=%s", self._request_id)
            self._cancel()
