"""The frames of a stream. Format: server-sent events, each whole.

It knows no event.
"""

from typing import Any, Final

import msgspec

DONE: Final = b"data: [DONE]\n\n"
# OpenAI's SDKs read every event as JSON, so that in Chat and Completions a comment is all that they leave alone.
COMMENT: Final = b": keep-alive\n\n"


def unnamed(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def named(event: dict[str, Any]) -> bytes:
    """By its `type`: Anthropic's SDKs see no event without that line."""
    event_type: str = event["type"]
    return b"event: " + event_type.encode() + b"\n" + unnamed(event)
