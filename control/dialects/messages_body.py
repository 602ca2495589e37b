"""An answer of /v1/messages as one body, and what of it is the same in a stream. Format: Anthropic Message.

It reads no request, writes no stream (`messages_answer`), and never sees a failure.
"""

from typing import Any, Final

import msgspec

from control.dialects.calls import whole_arguments
from control.dialects.collected import Call, Collected, Words
from engine import wire

# A thought without one is dropped by some clients; what they send back is read whoever signed it.
SIGNATURE: Final = "c3BsYXNo"

_STOP_REASONS: Final[dict[wire.FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "cancelled": "end_turn",
}


def messages_body(message_id: str, answer: Collected) -> bytes:
    # A client reads `content[0]`, so there is one at least.
    content = [block for part in answer.parts if (block := _block(part)) is not None]
    return msgspec.json.encode(
        {
            **message_head(message_id, answer.model),
            "content": content or [{"type": "text", "text": ""}],
            **ending(answer.finished),
            "usage": usage_of(answer.finished.usage),
        }
    )


def message_head(message_id: str, model: str) -> dict[str, Any]:
    return {"id": message_id, "type": "message", "role": "assistant", "model": model}


def ending(finished: wire.Finished) -> dict[str, str | None]:
    """That the context was full is not told apart from the client's own limit: both are `max_tokens`."""
    if finished.stop_sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.stop_sequence}
    return {"stop_reason": _STOP_REASONS[finished.reason], "stop_sequence": None}


def usage_of(usage: wire.Usage) -> dict[str, Any]:
    return {
        **input_usage(prompt_tokens=usage.prompt, cached_tokens=usage.cached),
        "output_tokens": usage.completion,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def input_usage(*, prompt_tokens: int, cached_tokens: int) -> dict[str, int]:
    """The three are disjoint, and clients add them up: cached is not input, and writing to the cache is free."""
    return {
        "input_tokens": max(prompt_tokens - cached_tokens, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
    }


def _block(part: Words | Call) -> dict[str, Any] | None:
    """None for words that are none."""
    if isinstance(part, Call):
        return {"type": "tool_use", "id": part.begin.id, "name": part.begin.name, "input": _input(part)}
    if not part.text:
        return None
    if part.kind == "reasoning":
        return {"type": "thinking", "thinking": part.text, "signature": SIGNATURE}
    return {"type": "text", "text": part.text}


def _input(call: Call) -> msgspec.Raw | dict[str, str]:
    """As the model wrote it, whatever JSON it is. What was cut off is no JSON, and no tool takes it for its input."""
    whole = whole_arguments(call.arguments)
    return {"raw": call.arguments} if whole is None else msgspec.Raw(whole.encode())
