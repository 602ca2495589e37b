"""The way of one answer to its client over ASGI: headers as late as possible, whole frames, heartbeats between them.

It does not know what the bytes mean, nor notice that the client left.

Heartbeats are of two kinds. Every few seconds of silence the connection needs bytes; and some clients count events,
not bytes (Claude Code gives up after 300 s without one), so less often a heartbeat is one that they count.
Source: the real clients, measured; `docs/api.md`, "Keep-alive".
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from starlette.types import Send

from control.dialects.error_answers import ErrorAnswer

JSON_HEADERS: Final = ((b"content-type", b"application/json"),)
SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)

# Well below the 300 s of the clients that count events, and a few intervals of the heartbeats that they don't.
YIELD_LIMIT_S: Final = 60.0

Heartbeat = Callable[[bool], bytes]
"""Makes the frames of a heartbeat when it is due; given whether it must be one that clients count as an event."""


class Delivery:
    """A stream is any number of `write`, then one `end`; any other answer is one `end`. Either may `fail` instead."""

    def __init__(self, send: Send, *, is_stream: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._is_stream = is_stream
        self._monotonic = monotonic
        # Two tasks write, and a write waits for a slow client: a frame must not begin before the other has gone.
        self._turn = asyncio.Lock()
        self._wrote_at = self._yielded_at = monotonic()
        self.is_over = False
        """The last bytes are on their way, or were sent."""
        self.has_begun = False
        """The status line went out: from now on an error can only be a frame."""
        self.has_emitted = False
        """More than heartbeats went out: from now on the request cannot be run again."""

    async def beat(self, heartbeat: Heartbeat, *, grace_s: float, interval_s: float) -> None:
        """For ever: a heartbeat after `grace_s` if nothing was sent by then, and after each `interval_s` of silence."""
        if not self._is_stream:
            return
        await asyncio.sleep(grace_s)
        if not self.has_begun:
            await self._write_heartbeat(heartbeat, is_yielded=True)
        while True:
            silence_s = self._monotonic() - self._wrote_at
            if silence_s >= interval_s:
                # The next one would come an interval later: in time is now, if it would be too late then.
                unyielded_s = self._monotonic() - self._yielded_at + interval_s
                await self._write_heartbeat(heartbeat, is_yielded=unyielded_s > YIELD_LIMIT_S)
            else:
                await asyncio.sleep(interval_s - silence_s)

    async def write(self, frames: bytes) -> None:
        self.has_emitted = True
        self._yielded_at = self._monotonic()
        await self._write(frames, is_last=False)

    async def end(self, frames: bytes) -> None:
        """The last bytes. No heartbeat follows them."""
        self.is_over = True
        self.has_emitted = True
        await self._write(frames, is_last=True)

    async def fail(self, *, answer: Callable[[], ErrorAnswer], frames: Callable[[], bytes]) -> None:
        """End with an error: an answer of its own when nothing was sent, else as frames. Nothing when it had ended."""
        if self.is_over:
            return
        self.is_over = True
        if self.has_begun:
            await self._write(frames(), is_last=True)
            return
        self.has_begun = True
        error = answer()
        headers = [*error.headers, (b"content-length", str(len(error.body)).encode())]
        await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": error.body})

    async def _write_heartbeat(self, heartbeat: Heartbeat, *, is_yielded: bool) -> None:
        # While a write is under way the client is the one that is slow, and needs no sign of life.
        if not self.is_over and not self._turn.locked():
            await self._write(heartbeat(is_yielded), is_last=False)
            if is_yielded:
                self._yielded_at = self._monotonic()
        self._wrote_at = self._monotonic()

    async def _write(self, data: bytes, *, is_last: bool) -> None:
        async with self._turn:
            if not self.has_begun:
                self.has_begun = True
                await self._send({"type": "http.response.start", "status": 200, "headers": self._headers(data)})
            await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
            self._wrote_at = self._monotonic()

    def _headers(self, data: bytes) -> list[tuple[bytes, bytes]]:
        if self._is_stream:
            return list(SSE_HEADERS)
        return [*JSON_HEADERS, (b"content-length", str(len(data)).encode())]
