"""Bodies of /v1/messages in the shape that Claude Code 2.1.197 really sends; the words are ours."""

import json
from typing import Any

# The smallest PNG there is.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def claude_code_body(*, cch: str = "a1b2c", tokens_left: int = 190_000) -> dict[str, Any]:
    """The third request of a session: a thought, two calls, their results (one an image, one an error), a reminder."""
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32_000,
        "stream": True,
        "system": [
            {
                "type": "text",
                "text": f"x-anthropic-billing-header: cc_version=2.1.197.0d9; cc_entrypoint=cli; cch={cch};",
            },
            {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Work in /tmp.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>"},
                    {
                        "type": "text",
                        "text": f"<total_tokens>{tokens_left} tokens left</total_tokens>\nWhat is in the picture?",
                        "cache_control": {"type": "ephemeral"},
                    },
                ],
            },
            {"role": "system", "content": "Available agent types: none"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I must look.", "signature": "RXJhc2VkIGJ5IHVz"},
                    {"type": "redacted_thinking", "data": "b3BhcXVl"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "/tmp/a.png"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                            }
                        ],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "content": "no command",
                        "is_error": True,
                        "cache_control": {"type": "ephemeral"},
                    },
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        "tools": [
            {
                "name": "Read",
                "description": "Reads a file.",
                "input_schema": {
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "minLength": 1, "pattern": "^/", "format": "path"},
                        "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
                        "mode": {"anyOf": [{"const": "text"}, {"const": "image"}], "default": "text"},
                        "env": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}},
                    },
                    "required": ["path"],
                    "additionalProperties": False,
                },
            },
            {"name": "Bash", "input_schema": {"type": "object"}, "eager_input_streaming": True, "defer_loading": True},
        ],
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s"})},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
    }


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


def asking(**fields: Any) -> bytes:
    """A body that asks for one word, with these fields."""
    messages = [{"role": "user", "content": "hi"}]
    return encoded({"model": "m", "max_tokens": 100, "messages": messages} | fields)


def saying(*messages: tuple[str, Any], **fields: Any) -> bytes:
    """A body with these messages: pairs of a role and a content."""
    return asking(messages=[{"role": role, "content": content} for role, content in messages], **fields)
