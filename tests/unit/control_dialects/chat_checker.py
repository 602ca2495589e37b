"""What every stream of /v1/chat/completions must look like, as a state machine, and the answer that it amounts to.

Source: notes of what the strictest clients need (`docs/api.md`). It knows nothing of how the stream was made.
"""

from dataclasses import dataclass, field

import msgspec

CHUNK_KEYS = {"id", "object", "created", "model", "system_fingerprint", "choices"}
CHOICE_KEYS = {"index", "delta", "logprobs", "finish_reason"}
DELTA_KEYS = {"role", "content", "reasoning_content", "tool_calls", "function_call"}
REASONS = {"stop", "length", "tool_calls", "function_call", "content_filter"}


@dataclass
class CheckedCall:
    id: str | None
    type: str
    name: str
    text: str = ""
    """Its arguments, or the input of a custom one."""


@dataclass
class CheckedAnswer:
    content: str = ""
    reasoning: str = ""
    calls: list[CheckedCall] = field(default_factory=list)
    logprobs: list[dict] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict | None = None
    error: dict | None = None
    num_heartbeats: int = 0
    model: str = ""


def check_chat_stream(stream: bytes, *, has_usage_chunk: bool, is_legacy: bool = False) -> CheckedAnswer:
    """Raises AssertionError for a stream that some client would trip over."""
    checker = _Checker(has_usage_chunk, is_legacy)
    assert stream.endswith(b"\n\n")
    for frame in stream.decode().removesuffix("\n\n").split("\n\n"):
        checker.frame(frame)
    assert checker.state in ("done", "failed"), f"the stream stops in the state {checker.state}"
    return checker.answer


class _Checker:
    """States: role → deltas → (usage) → end → done; an error ends it from anywhere before."""

    def __init__(self, has_usage_chunk: bool, is_legacy: bool) -> None:
        self.state = "role"
        self.answer = CheckedAnswer()
        self._has_usage_chunk = has_usage_chunk
        self._is_legacy = is_legacy
        self._same: tuple | None = None

    def frame(self, frame: str) -> None:
        assert self.state not in ("done", "failed"), f"a frame behind the end: {frame}"
        assert "\n" not in frame, "a frame is one line: clients of one data line exist"
        if frame.startswith(":"):
            # Comments only: a frame with an event or an id and no data crashes the SDKs.
            self.answer.num_heartbeats += 1
            return
        assert frame.startswith("data: ")
        data = frame.removeprefix("data: ")
        if data == "[DONE]":
            assert self.state == "end"
            self.state = "done"
            return
        chunk = msgspec.json.decode(data)
        if "error" in chunk:
            assert set(chunk) == {"error"} and set(chunk["error"]) == {"message", "type", "param", "code"}
            self.answer.error = chunk["error"]
            self.state = "failed"
            return
        self._chunk(chunk)

    def _chunk(self, chunk: dict) -> None:
        assert chunk["object"] == "chat.completion.chunk"
        same = (chunk["id"], chunk["created"], chunk["model"])
        assert chunk["id"] and chunk["model"]
        assert self._same in (None, same), "id, time and model are the same on all"
        self._same, self.answer.model = same, chunk["model"]
        if self.state == "usage":
            assert set(chunk) == CHUNK_KEYS | {"usage"} and chunk["choices"] == []
            self.answer.usage = checked_usage(chunk["usage"])
            self.state = "end"
            return
        assert set(chunk) == CHUNK_KEYS, "usage comes in a chunk of its own"
        [choice] = chunk["choices"]
        assert set(choice) == CHOICE_KEYS and choice["index"] == 0
        self._delta(choice["delta"])
        for kind in choice["logprobs"] or {}:
            self.answer.logprobs.extend(choice["logprobs"][kind] or [])
        if choice["finish_reason"] is not None:
            assert choice["finish_reason"] in REASONS and choice["delta"] == {}
            self.answer.finish_reason = choice["finish_reason"]
            self.state = "usage" if self._has_usage_chunk else "end"

    def _delta(self, delta: dict) -> None:
        assert set(delta) <= DELTA_KEYS
        if self.state == "role":
            assert delta == {"role": "assistant", "content": ""}
            self.state = "deltas"
            return
        assert self.state == "deltas", f"a delta in the state {self.state}"
        assert "role" not in delta
        assert len(delta) <= 1, "a tool call's delta has no content, not even null"
        assert isinstance(delta.get("content", ""), str) and isinstance(delta.get("reasoning_content", ""), str)
        self.answer.content += delta.get("content", "")
        self.answer.reasoning += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            assert not self._is_legacy
            self._call(call)
        if "function_call" in delta:
            assert self._is_legacy
            self._function_call(delta["function_call"])

    def _call(self, call: dict) -> None:
        index = call["index"]
        if index == len(self.answer.calls):
            kind = call["type"]
            assert kind in ("function", "custom") and set(call) == {"index", "id", "type", kind}
            assert call["id"] and call[kind]["name"] and call["id"] not in {known.id for known in self.answer.calls}
            assert call[kind] == {"name": call[kind]["name"], _text_key(kind): ""}
            self.answer.calls.append(CheckedCall(call["id"], kind, call[kind]["name"]))
            return
        known = self.answer.calls[index]
        assert set(call) == {"index", known.type} and set(call[known.type]) == {_text_key(known.type)}
        known.text += call[known.type][_text_key(known.type)]

    def _function_call(self, call: dict) -> None:
        if not self.answer.calls:
            assert set(call) == {"name", "arguments"} and call["name"] and call["arguments"] == ""
            self.answer.calls.append(CheckedCall(None, "function", call["name"]))
            return
        assert set(call) == {"arguments"}
        self.answer.calls[0].text += call["arguments"]


def check_chat_body(body: bytes) -> CheckedAnswer:
    """The same of an answer that is no stream."""
    answer = msgspec.json.decode(body)
    assert set(answer) == CHUNK_KEYS | {"usage"} and answer["object"] == "chat.completion"
    [choice] = answer["choices"]
    message = choice["message"]
    assert message["role"] == "assistant" and isinstance(message["content"], str | None)
    assert choice["finish_reason"] in REASONS
    calls = [
        CheckedCall(call["id"], call["type"], call[call["type"]]["name"], call[call["type"]][_text_key(call["type"])])
        for call in message.get("tool_calls", ())
    ]
    if "function_call" in message:
        calls.append(
            CheckedCall(None, "function", message["function_call"]["name"], message["function_call"]["arguments"])
        )
    assert message["content"] is not None or calls
    return CheckedAnswer(
        content=message["content"] or "",
        reasoning=message.get("reasoning_content", ""),
        calls=calls,
        logprobs=[each for kind in choice["logprobs"] or {} for each in choice["logprobs"][kind] or []],
        finish_reason=choice["finish_reason"],
        usage=checked_usage(answer["usage"]),
        model=answer["model"],
    )


def checked_usage(usage: dict) -> dict:
    """Cached is part of prompt, reasoning of completion, and nothing is missing: clients steer by it."""
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    assert 0 <= usage["completion_tokens_details"]["reasoning_tokens"] <= usage["completion_tokens"]
    return usage


def _text_key(kind: str) -> str:
    return "arguments" if kind == "function" else "input"
