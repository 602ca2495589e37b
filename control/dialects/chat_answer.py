"""The two ways to write an answer of /v1/chat/completions: as chunks, or as one body.

Format: OpenAI chat.completion.chunk and chat.completion, with `reasoning_content` for what the model thought.
It reads no request, and never sees a failure.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from engine import wire

DONE: Final = b"data: [DONE]\n\n"


class ChatStreamEncoder:
    """Each event becomes a chunk, the same id, time and model on all: the role first, the finish reason last."""

    def __init__(self, answer_id: str, model: str, created: int, *, has_usage_chunk: bool) -> None:
        self._frame = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "system_fingerprint": None,
        }
        self._has_usage_chunk = has_usage_chunk
        self._has_role = False

    def encode(self, events: Sequence[wire.AnyEvent]) -> bytes:
        return b"".join(frame for event in events for frame in self._frames(event))

    def _frames(self, event: wire.AnyEvent) -> Iterator[bytes]:
        match event:
            case wire.TextDelta():
                yield from self._delta({"content": event.text}, logprobs=_logprobs(event.logprobs, ()))
            case wire.ReasoningDelta():
                yield from self._delta({"reasoning_content": event.text}, logprobs=_logprobs((), event.logprobs))
            case wire.ToolCallBegin():
                function = {"name": event.name, "arguments": ""}
                call = {"index": event.index, "id": event.id, "type": "function", "function": function}
                yield from self._delta({"tool_calls": [call]})
            case wire.ToolCallDelta():
                yield from self._arguments(event.index, event.arguments)
            case wire.Finished():
                yield from self._delta({}, finish_reason=event.reason)
                if self._has_usage_chunk:
                    yield _sse({**self._frame, "choices": [], "usage": _usage(event.usage)})
                yield DONE

    def _arguments(self, index: int, arguments: str) -> Iterator[bytes]:
        yield from self._delta({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})

    def _delta(
        self, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> Iterator[bytes]:
        if not self._has_role:
            self._has_role = True
            yield self._chunk({"role": "assistant", "content": ""}, None, None)
        yield self._chunk(delta, logprobs, finish_reason)

    def _chunk(self, delta: dict[str, Any], logprobs: dict[str, Any] | None, finish_reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return _sse({**self._frame, "choices": [choice]})


class ChatBodyEncoder:
    """Collects, and comes out with the whole body at the end."""

    def __init__(self, answer_id: str, model: str, created: int) -> None:
        self._answer_id = answer_id
        self._model = model
        self._created = created
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._text_logprobs: list[wire.TokenLogprob] = []
        self._reasoning_logprobs: list[wire.TokenLogprob] = []
        self._calls: dict[int, wire.ToolCallBegin] = {}
        self._arguments: dict[int, list[str]] = {}

    def encode(self, events: Sequence[wire.AnyEvent]) -> bytes:
        for event in events:
            match event:
                case wire.TextDelta():
                    self._text.append(event.text)
                    self._text_logprobs.extend(event.logprobs)
                case wire.ReasoningDelta():
                    self._reasoning.append(event.text)
                    self._reasoning_logprobs.extend(event.logprobs)
                case wire.ToolCallBegin():
                    self._calls[event.index] = event
                    self._arguments[event.index] = []
                case wire.ToolCallDelta():
                    self._arguments[event.index].append(event.arguments)
                case wire.Finished():
                    return self._body(event)
        return b""

    def _body(self, finished: wire.Finished) -> bytes:
        choice = {
            "index": 0,
            "message": self._message(),
            "logprobs": _logprobs(self._text_logprobs, self._reasoning_logprobs),
            "finish_reason": finished.reason,
        }
        return msgspec.json.encode(
            {
                "id": self._answer_id,
                "object": "chat.completion",
                "created": self._created,
                "model": self._model,
                "system_fingerprint": None,
                "choices": [choice],
                "usage": _usage(finished.usage),
            }
        )

    def _message(self) -> dict[str, Any]:
        text = "".join(self._text)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["content"] = text or None
            message["tool_calls"] = [self._call(call) for call in self._calls.values()]
        return message

    def _call(self, call: wire.ToolCallBegin) -> dict[str, Any]:
        arguments = "".join(self._arguments[call.index])
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _sse(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _usage(usage: wire.Usage) -> dict[str, Any]:
    """Cached tokens are part of the prompt's, reasoning tokens of the completion's; both details are always there."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _logprobs(text: Sequence[wire.TokenLogprob], reasoning: Sequence[wire.TokenLogprob]) -> dict[str, Any] | None:
    """What the model thought has a list of its own, as its text has."""
    if not text and not reasoning:
        return None
    logprobs: dict[str, Any] = {"content": [_token_logprob(token) for token in text], "refusal": None}
    if reasoning:
        logprobs["reasoning_content"] = [_token_logprob(token) for token in reasoning]
    return logprobs


def _token_logprob(token: wire.TokenLogprob) -> dict[str, Any]:
    top = [{"token": each.token, "logprob": each.logprob, "bytes": _bytes(each.token)} for each in token.top]
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.bytes), "top_logprobs": top}


def _bytes(text: str) -> list[int] | None:
    """None when the text is a lone part of a character: its bytes are not known here."""
    return None if "\ufffd" in text else list(text.encode())
