"""Turns the text of a tool call into its name and arguments as JSON, through the parser that mlx-lm has for the model.

It finds no calls in running text (`engine.text.markup` does), and it guesses nothing: what does not parse is no call.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# What the parsers raise on text that they do not understand: they index, unpack and convert without looking first.
PARSER_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError)

ToolParser = Callable[[str, Sequence[dict[str, Any]]], Any]


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """`arguments` is a JSON object as text."""

    name: str
    arguments: str


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def parse_calls(text: str, parser: ToolParser, tools: Sequence[dict[str, Any]]) -> tuple[ParsedCall, ...]:
    """The calls in `text`, the part between the markers; none when any does not parse. `tools` give the types."""
    try:
        parsed = parser(text, tools)
        calls = parsed if isinstance(parsed, list) else [parsed]
        return tuple(_call(call) for call in calls)
    except PARSER_ERRORS:
        return ()


def _call(call: dict[str, Any]) -> ParsedCall:
    """Raises one of PARSER_ERRORS when it is no call."""
    name = call["name"]
    if not isinstance(name, str) or not name:
        raise ValueError("a call needs a name")
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        # Some models write the arguments as JSON inside a JSON string.
        arguments = json.loads(arguments) if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise ValueError("arguments are an object")
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    # Half of a surrogate pair can be escaped in JSON, but it is no text: no client could be sent it.
    name.encode()
    text.encode()
    return ParsedCall(name=name, arguments=text)
