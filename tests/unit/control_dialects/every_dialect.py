"""The four dialects as the tests of what they have in common ask them: a small body, and what becomes of it.

It checks nothing.
"""

import json
from functools import partial
from typing import Any

import pytest

from control.dialects.chat import parse_chat
from control.dialects.completions import parse_completions
from control.dialects.exchange import Exchange, default_heartbeat
from control.dialects.messages import parse_messages
from control.dialects.response_history import ResponseHistory
from control.dialects.responses import parse_responses
from control.errors import InvalidRequest
from engine import wire

USAGE = wire.Usage(prompt=3, completion=2)
PARSERS = {
    "chat": parse_chat,
    "completions": parse_completions,
    "messages": parse_messages,
    "responses": partial(parse_responses, history=ResponseHistory().of("key")),
}
ASKED: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "hi"}]},
    "completions": {"prompt": "hi"},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    "responses": {"input": "hi"},
}
LISTS = {"chat": "messages", "messages": "messages", "responses": "input"}
dialects = pytest.mark.parametrize("dialect", PARSERS)
conversations = pytest.mark.parametrize("dialect", LISTS)


def body_of(dialect: str, **fields: Any) -> bytes:
    return json.dumps({"model": "m", **ASKED[dialect], **fields}).encode()


def parsed(dialect: str, body: bytes) -> Exchange:
    exchange: Exchange = PARSERS[dialect](body, "r")
    return exchange


def generate_of(dialect: str, **fields: Any) -> wire.GenerateRequest:
    return parsed(dialect, body_of(dialect, **fields)).generate


def refusal_of(dialect: str, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        generate_of(dialect, **fields)
    return refused.value


def said(dialect: str, content: list[Any]) -> dict[str, Any]:
    return {LISTS[dialect]: [{"role": "user", "content": content}]}


def called(dialect: str, arguments: Any) -> dict[str, Any]:
    items: dict[str, list[dict[str, Any]]] = {
        "chat": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}],
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": arguments}]},
            {"role": "user", "content": "go on"},
        ],
        "responses": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}],
    }
    return {LISTS[dialect]: items[dialect]}


def resulted(dialect: str, content: Any) -> dict[str, Any]:
    """A call and its result."""
    results: dict[str, dict[str, Any]] = {
        "chat": {"role": "tool", "tool_call_id": "c", "content": content},
        "messages": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]},
        "responses": {"type": "function_call_output", "call_id": "c", "output": content},
    }
    return {LISTS[dialect]: [called(dialect, "{}")[LISTS[dialect]][0], results[dialect]]}


def tool(dialect: str, name: str, **fields: Any) -> dict[str, Any]:
    function = {"name": name, **fields}
    return {"chat": {"function": function}, "messages": function}.get(dialect, {"type": "function", **function})


def texts_of(generate: wire.GenerateRequest, role: str = "user") -> list[str]:
    """Of the last message of this role."""
    message = [each for each in generate.prompt.messages or () if each.role == role][-1]
    return [part.text for part in message.content if isinstance(part, wire.TextPart)]


def answered(dialect: str, *events: wire.AnyEvent, reason: wire.FinishReason = "stop", stream: bool = False) -> bytes:
    """As a client gets it."""
    encoder = parsed(dialect, body_of(dialect, stream=stream)).encoder(heartbeat=default_heartbeat(dialect))
    encoder.expect(model="m", prompt_tokens=3)
    return encoder.encode([wire.Accepted(id="r", prompt_tokens=3), *events, wire.Finished(reason=reason, usage=USAGE)])
