"""Clients that wait for a stream as Codex and Claude Code do, and what heartbeats there are in what they got.

Source: both clients, measured; `docs/api.md`, "Keep-alive".
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tests.unit.control_gateway.dialect_calls import Dialect


def codex_counts(frame: bytes) -> bool:
    """Its timer wraps an event stream that drops comments."""
    return b"data: " in frame


def claude_code_counts(frame: bytes) -> bool:
    """Its watchdog is wound up by what can be a part of the answer; not by pings."""
    event = frame.removeprefix(b"event: ").partition(b"\n")[0]
    return event in (b"message_start", b"message_delta") or event.startswith(b"content_block_")


def bytes_count(_frame: bytes) -> bool:
    """As for all others."""
    return True


@dataclass(frozen=True)
class Patience:
    counts: Callable[[bytes], bool]
    limit_s: float = 1.0

    async def read(self, stage, dialect: Dialect, *, on_counted: Callable[[int], None] = lambda _: None) -> bytes:
        """The whole stream. TimeoutError when nothing that counts came for too long.

        `on_counted` is given the number of frames that counted.
        """
        received, rest, num_counted = b"", b"", 0
        async with (
            asyncio.timeout(self.limit_s) as timer,
            stage.client.stream("POST", dialect.path, json=dialect.body(stream=True), timeout=None) as answer,
        ):
            assert answer.status_code == 200
            async for chunk in answer.aiter_raw():
                received += chunk
                *frames, rest = (rest + chunk).split(b"\n\n")
                for _ in filter(self.counts, frames):
                    num_counted += 1
                    timer.reschedule(asyncio.get_running_loop().time() + self.limit_s)
                    on_counted(num_counted)
        assert rest == b""
        return received


CODEX = Patience(codex_counts)
CLAUDE_CODE = Patience(claude_code_counts)
ANYBODY = Patience(bytes_count)

MARKS = {
    "comment": b": keep-alive\n\n",
    "ping": b"event: ping\n",
    "keepalive": b"event: keepalive\n",
    "message_delta": b'"stop_reason":null,"stop_sequence":null},"usage":{"output_tokens":0}}',
    "empty_delta": b'"delta":{"type":"text_delta","text":""}',
}


def num_by_kind(content: bytes) -> dict[str, int]:
    num_in_progress = max(0, content.count(b"event: response.in_progress\n") - 1)
    return {"in_progress": num_in_progress} | {kind: content.count(mark) for kind, mark in MARKS.items()}


def num_heartbeats(content: bytes) -> int:
    return sum(num_by_kind(content).values())


def kinds_of(content: bytes) -> set[str]:
    return {kind for kind, number in num_by_kind(content).items() if number}
