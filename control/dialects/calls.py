"""Calls that the model made earlier, from a client's history to the engine's neutral form.

It checks no arguments against a schema: what the model wrote, it wrote.
"""

from typing import Any

import msgspec

from control.dialects.nesting import NESTING_LIMIT, check_depth, is_too_deep
from engine import wire


def neutral_call(call_id: str, name: str, arguments: object, field: str) -> wire.ToolCall:
    """`arguments` are text, as the model wrote them, or already parsed. None at all, or blank, are `{}`.

    History is replayed as it was: text that is cut off or not JSON stays. Raises InvalidRequest, with `field`, for
    parsed ones that are too deep.
    """
    if isinstance(arguments, str):
        raw = arguments if arguments and not arguments.isspace() else "{}"
        return wire.ToolCall(id=call_id, name=name, arguments_raw=raw, arguments=parsed_arguments(raw))
    check_depth(arguments, field)
    known: Any = arguments or {}
    return wire.ToolCall(
        id=call_id,
        name=name,
        arguments_raw=msgspec.json.encode(known).decode(),
        arguments=known if isinstance(known, dict) else None,
    )


def parsed_arguments(raw: str) -> dict[str, Any] | None:
    """None for what is not JSON, no object, or too deep to be handed on as one: the text has it all the same."""
    try:
        arguments = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    # To count the brackets of a text is a hundred times faster than to walk through what it says.
    may_be_deep = raw.count("{") + raw.count("[") > NESTING_LIMIT
    return None if may_be_deep and is_too_deep(arguments) else arguments
