"""The two ways to write an answer of /v1/chat/completions: as chunks, or as one body.

Format: OpenAI chat.completion.chunk and chat.completion, with `reasoning_content` for what the model thought.
It reads no request, and never sees a failure.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from control.dialects.chat_tools import CallForm
from control.dialects.collected import BETWEEN_THOUGHTS, Call, Collected
from control.dialects.custom_input import CustomInput, input_of
from control.dialects.error_answers import openai_error
from control.dialects.logprobs import token_logprob
from control.dialects.sse import COMMENT, DONE, unnamed
from control.errors import ApiError
from engine import wire


class ChatStreamEncoder:
    """Each event becomes a chunk, the same id, time and model on all: the role first, the finish reason last."""

    def __init__(self, answer_id: str, created: int, *, has_usage_chunk: bool, form: CallForm) -> None:
        self._frame = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": "",
            "system_fingerprint": None,
        }
        self._has_usage_chunk = has_usage_chunk
        self._form = form
        self._has_role = False
        self._is_thinking = False
        self._has_thought = False
        self._inputs: dict[int, CustomInput] = {}

    def expect(self, *, model: str, prompt_tokens: int | None) -> None:
        self._frame["model"] = model

    def heartbeat(self, *, is_yielded: bool) -> bytes:
        return COMMENT

    def error(self, error: ApiError) -> bytes:
        """The SDKs raise APIError on any event whose `error` is truthy."""
        return unnamed(openai_error(error))

    def encode(self, events: Sequence[wire.AnyEvent]) -> bytes:
        return b"".join(frame for event in events for frame in self._frames(event))

    def _frames(self, event: wire.AnyEvent) -> Iterator[bytes]:
        match event:
            case wire.TextDelta():
                self._is_thinking = self._is_thinking and not (event.text or event.logprobs)
                yield from self._delta({"content": event.text}, logprobs=_logprobs(event.logprobs, ()))
            case wire.ReasoningDelta():
                yield from self._delta(
                    {"reasoning_content": self._thought(event.text)}, logprobs=_logprobs((), event.logprobs)
                )
            case wire.ToolCallBegin() | wire.ToolCallDelta() | wire.ToolCallEnd():
                self._is_thinking = False
                delta = self._legacy_call(event) if self._form.is_legacy else self._call(event)
                if delta is not None:
                    yield from self._delta(delta)
            case wire.Finished():
                yield from self._delta({}, finish_reason=_reason(event.reason, self._form))
                if self._has_usage_chunk:
                    yield unnamed({**self._frame, "choices": [], "usage": usage_of(event.usage)})
                yield DONE

    def _thought(self, text: str) -> str:
        """A client joins all that it gets, so that what stands between two thoughts comes with the second."""
        if not text:
            return ""
        between = BETWEEN_THOUGHTS if self._has_thought and not self._is_thinking else ""
        self._is_thinking = self._has_thought = True
        return between + text

    def _call(self, event: wire.ToolCallBegin | wire.ToolCallDelta | wire.ToolCallEnd) -> dict[str, Any] | None:
        match event:
            case wire.ToolCallBegin() if event.name in self._form.custom:
                self._inputs[event.index] = CustomInput()
                call = {"id": event.id, "type": "custom", "custom": {"name": event.name, "input": ""}}
            case wire.ToolCallBegin():
                call = {"id": event.id, "type": "function", "function": {"name": event.name, "arguments": ""}}
            case _ if event.index in self._inputs:
                reader = self._inputs[event.index]
                text = reader.finish() if isinstance(event, wire.ToolCallEnd) else reader.feed(event.arguments)
                if not text:
                    return None
                call = {"custom": {"input": text}}
            case wire.ToolCallDelta():
                call = {"function": {"arguments": event.arguments}}
            case wire.ToolCallEnd():
                return None
        return {"tool_calls": [{"index": event.index, **call}]}

    def _legacy_call(self, event: wire.ToolCallBegin | wire.ToolCallDelta | wire.ToolCallEnd) -> dict[str, Any] | None:
        match event:
            case wire.ToolCallBegin(index=0):
                return {"function_call": {"name": event.name, "arguments": ""}}
            case wire.ToolCallDelta(index=0):
                return {"function_call": {"arguments": event.arguments}}
        return None

    def _delta(
        self, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> Iterator[bytes]:
        if not self._has_role:
            self._has_role = True
            yield self._chunk({"role": "assistant", "content": ""}, None, None)
        yield self._chunk(delta, logprobs, finish_reason)

    def _chunk(self, delta: dict[str, Any], logprobs: dict[str, Any] | None, finish_reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return unnamed({**self._frame, "choices": [choice]})


def chat_body(answer_id: str, created: int, form: CallForm, answer: Collected) -> bytes:
    logprobs = [[each for words in answer.words(kind) for each in words.logprobs] for kind in ("text", "reasoning")]
    choice = {
        "index": 0,
        "message": _message(answer, form),
        "logprobs": _logprobs(*logprobs),
        "finish_reason": _reason(answer.finished.reason, form),
    }
    return msgspec.json.encode(
        {
            "id": answer_id,
            "object": "chat.completion",
            "created": created,
            "model": answer.model,
            "system_fingerprint": None,
            "choices": [choice],
            "usage": usage_of(answer.finished.usage),
        }
    )


def _message(answer: Collected, form: CallForm) -> dict[str, Any]:
    text, reasoning = answer.text, answer.reasoning
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if answer.calls:
        message["content"] = text or None
        if form.is_legacy:
            message["function_call"] = _function(answer.calls[0])
        else:
            message["tool_calls"] = [_call(call, form) for call in answer.calls]
    return message


def _call(call: Call, form: CallForm) -> dict[str, Any]:
    if call.begin.name in form.custom:
        custom = {"name": call.begin.name, "input": input_of(call.arguments)}
        return {"id": call.begin.id, "type": "custom", "custom": custom}
    return {"id": call.begin.id, "type": "function", "function": _function(call)}


def _function(call: Call) -> dict[str, Any]:
    return {"name": call.begin.name, "arguments": call.arguments}


def _reason(reason: wire.FinishReason, form: CallForm) -> str:
    return "function_call" if form.is_legacy and reason == "tool_calls" else reason


def usage_of(usage: wire.Usage) -> dict[str, Any]:
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
    logprobs: dict[str, Any] = {
        "content": [token_logprob(token, unknown_bytes=None) for token in text],
        "refusal": None,
    }
    if reasoning:
        logprobs["reasoning_content"] = [token_logprob(token, unknown_bytes=None) for token in reasoning]
    return logprobs
