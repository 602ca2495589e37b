"""One answer of the page *Try it* on its way to the browser: the gateway's chunks become text, thoughts and sentences.

It keeps nothing. Format: SSE; `text` and `thought` {"text"}, `state` and `end` {"phase", "numbers"}, `problem`
{"words"}; the last frame is an `end` or a `problem`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

import httpx
import msgspec
from starlette.types import Receive, Scope, Send

from webui.text import Text
from webui.views.playground import Heard, Progress, end_of, problem_words, progress_of
from webui.watch import Watch

logger = logging.getLogger(__name__)

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
)
TELL_EVERY_S: Final = 0.25
DATA: Final = "data: "
DONE: Final = "[DONE]"


class Account:
    """What is said of one answer: it reads chunks, and measures on its own clock, from the question on."""

    def __init__(self, text: Text, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._text = text
        self._now_s = now_s
        self._asked_at_s = now_s()
        self._first_at_s: float | None = None
        self._last_at_s = 0.0
        self._finish_reason = ""
        self._num_tokens = 0
        self._num_pieces = 0
        self.is_over = False

    def frames(self, line: str) -> Iterator[bytes]:
        """Of one line of the gateway's stream; most lines but data are heartbeats, and say nothing."""
        if not line.startswith(DATA) or self.is_over:
            return
        data = line.removeprefix(DATA)
        if data == DONE:
            yield self._end()
            return
        chunk = msgspec.json.decode(data)
        if "error" in chunk:
            yield self.problem(chunk["error"]["code"], chunk["error"]["message"])
            return
        if chunk.get("usage"):
            self._num_tokens = chunk["usage"]["completion_tokens"]
        for choice in chunk["choices"]:
            yield from self._pieces(choice)

    @property
    def heard(self) -> Heard:
        since_s = 0.0 if self._first_at_s is None else self._last_at_s - self._first_at_s
        return Heard(num_pieces=self._num_pieces, seconds=since_s)

    def problem(self, code: str, message: str) -> bytes:
        self.is_over = True
        return frame("problem", {"words": problem_words(code, message, self._text)})

    def broke_off(self) -> bytes:
        self.is_over = True
        return frame("problem", {"words": self._text("talk.broke_off")})

    def _pieces(self, choice: dict[str, Any]) -> Iterator[bytes]:
        self._finish_reason = choice["finish_reason"] or self._finish_reason
        for field, name in (("reasoning_content", "thought"), ("content", "text")):
            if piece := choice["delta"].get(field):
                self._last_at_s = self._now_s()
                self._num_pieces += 1
                if self._first_at_s is None:
                    self._first_at_s = self._last_at_s
                yield frame(name, {"text": piece})

    def _end(self) -> bytes:
        self.is_over = True
        first_at_s = self._now_s() if self._first_at_s is None else self._first_at_s
        end = end_of(
            finish_reason=self._finish_reason,
            first_token_s=first_at_s - self._asked_at_s,
            decode_s=max(self._last_at_s - first_at_s, 0.0),
            num_tokens=self._num_tokens,
            text=self._text,
        )
        return frame("end", asdict(end))


class PlaygroundAnswer:
    """An ASGI answer, for as long as the browser listens: when it hangs up, so do we, and the request is cancelled."""

    def __init__(self, response: httpx.Response, account: Account, watch: Watch, text: Text) -> None:
        self._response = response
        self._account = account
        self._watch = watch
        self._text = text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._pass_on(send))
                others = (group.create_task(self._tell(send)), group.create_task(_cancel_when_gone(receive, work)))
                work.add_done_callback(lambda _: [other.cancel() for other in others])
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self._response.aclose()

    async def _pass_on(self, send: Send) -> None:
        try:
            async for line in self._response.aiter_lines():
                for each in self._account.frames(line):
                    await _write(send, each)
        except httpx.HTTPError as error:
            logger.info("talk broke off reason=%s", type(error).__name__)
        if not self._account.is_over:
            await _write(send, self._account.broke_off())

    async def _tell(self, send: Send) -> None:
        """Where the answer is, each time that it is somewhere else; until it is over."""
        request_id, told = self._response.headers.get("x-request-id", ""), None
        while not self._account.is_over:
            progress = await self._progress(request_id)
            if progress is not None and progress != told and not self._account.is_over:
                told = progress
                await _write(send, frame("state", asdict(progress)))
            await asyncio.sleep(TELL_EVERY_S)

    async def _progress(self, request_id: str) -> Progress | None:
        overview = (await self._watch.look()).overview
        return None if overview is None else progress_of(request_id, self._account.heard, overview, self._text)


async def _cancel_when_gone(receive: Receive, work: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    work.cancel()


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def frame(name: str, content: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(content) + b"\n\n"
