"""What clients write into a prompt and change with every request, taken out, so that the prefix cache still holds.

It touches the client's own headers only, each on a line of its own: never what a person or a model wrote.

Claude Code begins its system prompt with `x-anthropic-billing-header: cc_version=…; cch=…;`, and may count the tokens
that are left in the first user message.
"""

import re
from collections.abc import Iterable
from typing import Final

from engine import wire

_BILLING_HEADER: Final = re.compile(r"^[ \t]*x-anthropic-billing-header:.*\n?", re.IGNORECASE | re.MULTILINE)
_TOKENS_LEFT: Final = re.compile(r"^<total_tokens>[^<>\n]{0,80}</total_tokens>[ \t]*(?:\n|\Z)", re.MULTILINE)


def without_volatile_headers(system_text: str) -> str:
    """Of a system text. Empty when there was nothing else: such a block is none."""
    return without_tokens_left(_BILLING_HEADER.sub("", system_text))


def without_volatile_parts(parts: Iterable[wire.Part]) -> tuple[wire.Part, ...]:
    """Of a system message: without the parts that are empty then."""
    known = (
        part if isinstance(part, wire.ImagePart) else wire.TextPart(text=without_volatile_headers(part.text))
        for part in parts
    )
    return tuple(part for part in known if isinstance(part, wire.ImagePart) or part.text)


def without_tokens_left(text: str) -> str:
    """Of a system text, or one of the first user message. Later messages are history, and stay as they are."""
    # Nearly no text has it, and to look for the words is far faster than the expression.
    return _TOKENS_LEFT.sub("", text) if "<total_tokens>" in text else text
