"""A state machine that every stream of /v1/messages must pass: what the strictest of its consumers would break on.

Sources: `accumulate_event` of anthropic-python 2.14 and MessageStream of anthropic-sdk-typescript 1.14; Claude Code.
"""

import json
from dataclasses import dataclass, field
from typing import Any

_DELTAS = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
}
_STARTS = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
_INPUT_COUNTS = {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"}
_STOP_REASONS = {"end_turn", "max_tokens", "stop_sequence", "tool_use"}


@dataclass
class CheckedStream:
    """What a client would have at the end. A block's `value` is its text, its thought, or its arguments as text."""

    start: dict[str, Any] | None = None
    blocks: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    is_over: bool = False
    names: list[str] = field(default_factory=list)
    """The events in their order; a comment is `:`."""

    def values(self, kind: str) -> list[str]:
        return [block["value"] for block in self.blocks if block["type"] == kind]


def checked(stream: bytes, *, is_cut_off: bool = False) -> CheckedStream:
    """Raises AssertionError. `is_cut_off`: the stream may stop anywhere, and so may the JSON of a call."""
    answer = CheckedStream()
    assert stream.endswith(b"\n\n") or not stream, "the last frame is whole"
    for frame in stream.decode().split("\n\n")[:-1]:
        assert not answer.is_over and answer.error is None, f"nothing follows the end, but {frame!r} does"
        if frame.startswith(":"):
            assert "\n" not in frame
            answer.names.append(":")
            continue
        event_line, data_line = frame.split("\n")
        assert event_line.startswith("event: ") and data_line.startswith("data: ")
        event = json.loads(data_line.removeprefix("data: "))
        assert event["type"] == event_line.removeprefix("event: ")
        answer.names.append(event["type"])
        _step(answer, event, is_cut_off=is_cut_off)
    assert answer.is_over or answer.error is not None or is_cut_off, "a stream has an end"
    return answer


def _step(answer: CheckedStream, event: dict[str, Any], *, is_cut_off: bool) -> None:
    match event["type"]:
        case "ping":
            assert event == {"type": "ping"}
        case "error":
            assert event.keys() == {"type", "error", "request_id"}
            assert event["error"].keys() == {"type", "message"}
            answer.error = event["error"]
        case "message_start":
            _start(answer, event)
        case kind:
            assert answer.start is not None, f"{kind} before message_start"
            _step_within(answer, event, is_cut_off=is_cut_off)


def _step_within(answer: CheckedStream, event: dict[str, Any], *, is_cut_off: bool) -> None:
    match event["type"]:
        case "content_block_start":
            assert event.keys() == {"type", "index", "content_block"}
            _open_block(answer, event)
        case "content_block_delta":
            assert event.keys() == {"type", "index", "delta"}
            _delta(_the_open_block(answer, event), event["delta"])
        case "content_block_stop":
            assert event.keys() == {"type", "index"}
            _close_block(answer, _the_open_block(answer, event), is_cut_off=is_cut_off)
        case "message_delta":
            _message_delta(answer, event)
        case "message_stop":
            assert event == {"type": "message_stop"}
            assert answer.stop_reason is not None, "message_stop comes after the last message_delta"
            answer.is_over = True
        case kind:
            raise AssertionError(f"no client knows {kind}")


def _start(answer: CheckedStream, event: dict[str, Any]) -> None:
    assert answer.start is None, "message_start comes once"
    assert event.keys() == {"type", "message"}
    message = event["message"]
    assert message.keys() >= {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
    assert message["id"] and message["type"] == "message" and message["role"] == "assistant" and message["model"]
    assert message["content"] == [] and message["stop_reason"] is None and message["stop_sequence"] is None
    assert message["usage"].keys() == {*_INPUT_COUNTS, "output_tokens"}
    assert _num_input_tokens(message["usage"]) > 0, "without it Claude Code never compacts"
    answer.start = message


def _open_block(answer: CheckedStream, event: dict[str, Any]) -> None:
    assert answer.stop_reason is None, "no block after the last message_delta"
    assert all(block["is_closed"] for block in answer.blocks), "one block is open at a time"
    assert event["index"] == len(answer.blocks), "indexes are contiguous"
    block = event["content_block"]
    if block["type"] == "tool_use":
        assert block.keys() == {"type", "id", "name", "input"}
        assert block["id"] and block["name"] and block["input"] == {}
    else:
        assert block == _STARTS[block["type"]]
    answer.blocks.append({"type": block["type"], "start": block, "value": "", "signature": "", "is_closed": False})


def _the_open_block(answer: CheckedStream, event: dict[str, Any]) -> dict[str, Any]:
    assert answer.blocks and not answer.blocks[-1]["is_closed"], "no block is open"
    assert event["index"] == len(answer.blocks) - 1
    return answer.blocks[-1]


def _delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    assert delta["type"] in _DELTAS[block["type"]], f"{delta['type']} in a block of {block['type']}"
    name = _DELTAS[block["type"]][delta["type"]]
    assert delta.keys() == {"type", name}
    assert not block["signature"], "a signature is the last of its block"
    if name == "signature":
        assert delta[name], "a signature is not empty"
        block["signature"] = delta[name]
    else:
        block["value"] += delta[name]


def _close_block(answer: CheckedStream, block: dict[str, Any], *, is_cut_off: bool) -> None:
    block["is_closed"] = True
    if block["type"] == "thinking":
        assert block["signature"]
    if block["type"] == "tool_use" and not is_cut_off:
        assert isinstance(json.loads(block["value"]), dict)
    is_alone = block["type"] == "text" and len(answer.blocks) == 1
    is_cut_call = block["type"] == "tool_use" and is_cut_off
    assert block["value"] or is_alone or is_cut_call, "a block is not empty"


def _message_delta(answer: CheckedStream, event: dict[str, Any]) -> None:
    assert event.keys() == {"type", "delta", "usage"}
    assert event["delta"].keys() == {"stop_reason", "stop_sequence"}
    assert answer.stop_reason is None, "nothing but message_stop follows the last message_delta"
    assert all(block["is_closed"] for block in answer.blocks)
    if event["delta"]["stop_reason"] is None:
        assert event["delta"]["stop_sequence"] is None
        assert event["usage"].keys() == {"output_tokens"}, "counts overwrite those of message_start"
        return
    assert answer.blocks, "there is one block at least"
    # A call without arguments was looked at when it closed.
    assert all(block["value"] or block["type"] == "tool_use" for block in answer.blocks) or len(answer.blocks) == 1
    assert event["delta"]["stop_reason"] in _STOP_REASONS
    assert (event["delta"]["stop_reason"] == "stop_sequence") == (event["delta"]["stop_sequence"] is not None)
    assert event["usage"].keys() >= {*_INPUT_COUNTS, "output_tokens"}
    answer.stop_reason, answer.stop_sequence = event["delta"]["stop_reason"], event["delta"]["stop_sequence"]
    answer.usage = event["usage"]


def _num_input_tokens(usage: dict[str, Any]) -> int:
    assert all(usage[name] >= 0 for name in _INPUT_COUNTS)
    return sum(usage[name] for name in _INPUT_COUNTS)
