"""Calls that the model made earlier, from a client's history to the engine's neutral form.

It checks no arguments against a schema: what the model wrote, it wrote.
"""

from typing import Any, Final

import msgspec

from control.dialects.decoding import json_of
from control.dialects.nesting import NESTING_LIMIT, check_depth, is_too_deep
from control.dialects.surrogates import without_halves
from engine import wire

# Of a call in a client's history that has none: without the call, its result would belong to nothing.
UNKNOWN_NAME: Final = "unknown"


def neutral_call(call_id: str, name: str | None, arguments: object, field: str) -> wire.ToolCall:
    """`arguments` are text, as the model wrote them, or already parsed. None at all, or blank, are `{}`.

    History is replayed as it was: text that is cut off or not JSON stays. Raises InvalidRequest, with `field`, for
    parsed ones that are too deep.
    """
    if isinstance(arguments, str):
        raw = whole_arguments(arguments) or arguments if arguments and not arguments.isspace() else "{}"
        return wire.ToolCall(id=call_id, name=name or UNKNOWN_NAME, arguments_raw=raw, arguments=_parsed_arguments(raw))
    check_depth(arguments, field)
    known: Any = arguments or {}
    return wire.ToolCall(
        id=call_id,
        name=name or UNKNOWN_NAME,
        arguments_raw=json_of(known),
        arguments=known if isinstance(known, dict) else None,
    )


def whole_arguments(written: str) -> str | None:
    """What the model wrote of a call that is over, as JSON; None when it was cut off, or went wrong.

    Nothing at all is not whole either: for a call without arguments the engine writes `{}`. A lone half of a surrogate
    pair is U+FFFD.
    """
    text = written.encode()
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except RecursionError:
        return None
    except msgspec.DecodeError:
        mended = without_halves(text)
        return None if mended == text else whole_arguments(mended.decode())
    return written


def _parsed_arguments(raw: str) -> dict[str, Any] | None:
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
