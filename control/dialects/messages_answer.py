"""An answer of /v1/messages as a stream. Format: Anthropic's message events, each with its `event:` line.

It reads no request, and never sees a failure of the engine.

The order that every consumer is content with: `message_start`; blocks with indexes from 0, one open at a time, each a
start, deltas of its own type and a stop; `message_delta` with the true counts, which overwrite those of the start;
`message_stop`. There is one block at least, and only a text block that stands for nothing at all is empty.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

from control.dialects.error_answers import anthropic_error
from control.dialects.exchange import HeartbeatMode
from control.dialects.messages_body import SIGNATURE, ending, input_usage, message_head, usage_of
from control.dialects.sse import COMMENT, named
from control.errors import ApiError
from engine import wire

PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'

Kind = Literal["text", "thinking", "tool_use"]
_EMPTY_DELTAS: Final[dict[Kind, dict[str, str]]] = {
    "text": {"type": "text_delta", "text": ""},
    "thinking": {"type": "thinking_delta", "thinking": ""},
    "tool_use": {"type": "input_json_delta", "partial_json": ""},
}


class MessagesStreamEncoder:
    """`estimate` tells the prompt's length roughly, for a stream that must begin before anybody could count it."""

    def __init__(self, *, request_id: str, heartbeat: HeartbeatMode, estimate: Callable[[], int]) -> None:
        self._request_id = request_id
        self._heartbeat = heartbeat
        self._estimate = estimate
        self._model = ""
        self._prompt_tokens: int | None = None
        self._cached_tokens = 0
        self._has_started = False
        self._num_blocks = 0
        self._open: Kind | None = None
        self._call: int | None = None
        """The engine's index of the call whose block is open."""

    def expect(self, *, model: str, prompt_tokens: int | None) -> None:
        self._model = model
        self._prompt_tokens = prompt_tokens

    def encode(self, events: Sequence[wire.AnyEvent]) -> bytes:
        return b"".join(frame for event in events for frame in self._frames(event))

    def heartbeat(self, *, is_yielded: bool) -> bytes:
        """Claude Code gives up a stream in which nothing but pings and comments came for 300 s.

        Its yielded no-op is an empty delta of the open block, or else a `message_delta` that says nothing.
        Source: Claude Code 2.1.197, measured; `docs/api.md`, "Keep-alive".
        """
        if self._heartbeat == "comment":
            return COMMENT
        if self._heartbeat == "ping":
            return PING
        if not self._has_started:
            return b"".join(self._start()) + PING
        if not is_yielded:
            return PING
        if self._open is not None:
            return self._delta(_EMPTY_DELTAS[self._open])
        return _message_delta({"stop_reason": None, "stop_sequence": None}, {"output_tokens": 0})

    def error(self, error: ApiError) -> bytes:
        return named(anthropic_error(error, self._request_id))

    def _frames(self, event: wire.AnyEvent) -> Iterator[bytes]:
        match event:
            case wire.Accepted():
                # A run begins. Nothing is written for it: until there is more than heartbeats, another can follow.
                self._prompt_tokens = event.prompt_tokens
                self._cached_tokens = 0
            case wire.Prefill():
                self._prompt_tokens = event.total
                self._cached_tokens = event.cached
            case wire.TextDelta() if event.text:
                yield from self._words("text", {"type": "text_delta", "text": event.text})
            case wire.ReasoningDelta() if event.text:
                yield from self._words("thinking", {"type": "thinking_delta", "thinking": event.text})
            case wire.ToolCallBegin():
                block = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
                yield from self._begin("tool_use", block)
                self._call = event.index
            case wire.ToolCallDelta() if event.arguments and event.index == self._call:
                yield self._delta({"type": "input_json_delta", "partial_json": event.arguments})
            case wire.ToolCallEnd() if event.index == self._call:
                yield from self._end()
            case wire.Finished():
                yield from self._finish(event)

    def _start(self) -> Iterator[bytes]:
        if self._has_started:
            return
        self._has_started = True
        prompt_tokens = self._estimate() if self._prompt_tokens is None else self._prompt_tokens
        message = {
            **message_head(f"msg_{self._request_id}", self._model),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                **input_usage(prompt_tokens=prompt_tokens, cached_tokens=self._cached_tokens),
                "output_tokens": 0,
            },
        }
        yield named({"type": "message_start", "message": message})

    def _words(self, kind: Literal["text", "thinking"], delta: dict[str, str]) -> Iterator[bytes]:
        if self._open != kind:
            block = {"type": "text", "text": ""}
            if kind == "thinking":
                block = {"type": "thinking", "thinking": "", "signature": ""}
            yield from self._begin(kind, block)
        yield self._delta(delta)

    def _begin(self, kind: Kind, block: dict[str, Any]) -> Iterator[bytes]:
        yield from self._start()
        yield from self._end()
        self._open = kind
        self._num_blocks += 1
        yield named({"type": "content_block_start", "index": self._num_blocks - 1, "content_block": block})

    def _end(self) -> Iterator[bytes]:
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": SIGNATURE})
        self._open = self._call = None
        yield named({"type": "content_block_stop", "index": self._num_blocks - 1})

    def _finish(self, finished: wire.Finished) -> Iterator[bytes]:
        if not self._num_blocks:
            yield from self._begin("text", {"type": "text", "text": ""})
        yield from self._end()
        yield _message_delta(ending(finished), usage_of(finished.usage))
        yield named({"type": "message_stop"})

    def _delta(self, delta: dict[str, str]) -> bytes:
        return named({"type": "content_block_delta", "index": self._num_blocks - 1, "delta": delta})


def _message_delta(delta: dict[str, str | None], usage: dict[str, Any]) -> bytes:
    return named({"type": "message_delta", "delta": delta, "usage": usage})
