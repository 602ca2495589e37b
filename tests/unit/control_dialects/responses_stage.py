"""What the tests of /v1/responses share: bodies as clients send them, and an answer played from a script of events.

It checks nothing (`responses_checker`).
"""

import json
from collections.abc import Sequence
from typing import Any

from control.dialects.exchange import Encoder, HeartbeatMode
from control.dialects.response_history import OwnHistory, ResponseHistory
from control.dialects.responses import ResponsesExchange, parse_responses
from engine import wire

USAGE = wire.Usage(prompt=100, cached=75, completion=20, reasoning=5)
ACCEPTED = wire.Accepted(id="1", prompt_tokens=100)
NAMESPACE = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Agents.",
    "tools": [{"type": "function", "name": "spawn_agent", "parameters": {"type": "object"}, "strict": False}],
}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin"},
}
SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Runs a command.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}},
}
PIXEL = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def codex_body() -> dict[str, Any]:
    """The second turn of a session, with the shape that Codex 0.171 sends."""
    return {
        "model": "demo",
        "stream": True,
        "input": [
            {
                "type": "message",
                "id": "m1",
                "role": "developer",
                "content": [{"type": "input_text", "text": "You are a coding agent."}],
            },
            {
                "type": "message",
                "id": "m2",
                "role": "developer",
                "content": [
                    {"type": "input_text", "text": "Permissions."},
                    {"type": "input_text", "text": "Skills."},
                ],
            },
            {
                "type": "message",
                "id": "m3",
                "role": "user",
                "content": [{"type": "input_text", "text": "<environment_context/>"}],
            },
            {
                "type": "message",
                "id": "m4",
                "role": "user",
                "content": [{"type": "input_text", "text": "List the files."}],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "I should look."}],
                "content": None,
                "encrypted_content": None,
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "shell",
                "arguments": '{"command":["ls"]}',
                "status": "completed",
            },
            {"type": "function_call_output", "id": "o1", "call_id": "c1", "output": "README.md"},
            {
                "type": "function_call",
                "id": "fc_2",
                "call_id": "c2",
                "name": "spawn_agent",
                "namespace": "multi_agent_v1",
                "arguments": "{bad",
            },
            {
                "type": "function_call_output",
                "id": "o2",
                "call_id": "c2",
                "output": [{"type": "input_image", "image_url": PIXEL, "detail": "high"}],
            },
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c3", "name": "apply_patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "id": "o3", "call_id": "c3", "output": "Done"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        ],
        "tools": [SHELL, NAMESPACE, {"type": "web_search", "external_web_access": True}, PATCH],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto", "effort": "high"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0d3a",
        "client_metadata": {"session": "0d3a"},
    }


def own_history(**settings: Any) -> OwnHistory:
    return ResponseHistory(**settings).of("key")


def parsed(history: OwnHistory | None = None, request_id: str = "r1", **fields: Any) -> ResponsesExchange:
    """Of a small body with these fields; a field that is `...` is left out."""
    body = {"model": "demo", "input": "hello", **fields}
    content = json.dumps({name: value for name, value in body.items() if value is not ...}).encode()
    return parse_responses(content, request_id, history=history or own_history(), wall=lambda: 1_700_000_000.9)


def streaming(
    history: OwnHistory | None = None,
    request_id: str = "r1",
    *,
    heartbeat: HeartbeatMode = "typed",
    **fields: Any,
) -> Encoder:
    """The encoder of a stream whose model is known."""
    encoder = parsed(history, request_id, stream=True, **fields).encoder(heartbeat=heartbeat)
    encoder.expect(model="demo-4bit", prompt_tokens=100)
    return encoder


def played(encoder: Encoder, events: Sequence[wire.AnyEvent], *, reason: wire.FinishReason = "stop") -> bytes:
    """A run of these events, each alone, to its end."""
    script = [ACCEPTED, *events, wire.Finished(reason=reason, usage=USAGE)]
    return b"".join(encoder.encode([event]) for event in script)


def whole_body(
    events: Sequence[wire.AnyEvent],
    *,
    history: OwnHistory | None = None,
    request_id: str = "r1",
    reason: wire.FinishReason = "stop",
    **fields: Any,
) -> dict[str, Any]:
    """The answer to a request that is no stream."""
    encoder = parsed(history, request_id, **fields).encoder(heartbeat="typed")
    encoder.expect(model="demo-4bit", prompt_tokens=100)
    body: dict[str, Any] = json.loads(played(encoder, events, reason=reason))
    return body


def call(name: str, *pieces: str, index: int = 0, call_id: str = "call_1") -> list[wire.AnyEvent]:
    return [
        wire.ToolCallBegin(index=index, id=call_id, name=name),
        *(wire.ToolCallDelta(index=index, arguments=piece) for piece in pieces),
        wire.ToolCallEnd(index=index),
    ]


def text_of(message: wire.Message) -> str:
    return "".join(part.text for part in message.content if isinstance(part, wire.TextPart))
