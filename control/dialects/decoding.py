"""A body as the Struct of its dialect: what is wrong with it is named as the client named it.

It knows no field, and nothing of what the fields mean.
"""

from typing import Any, TypeVar

import msgspec

from control.errors import InvalidRequest

_Kind = TypeVar("_Kind")


def decoded(body: bytes, kind: type[_Kind]) -> _Kind:
    """Raises InvalidRequest, and RecursionError for what is nested deeper than the decoder goes."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, "") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from error


def converted(value: object, kind: type[_Kind], field: str) -> _Kind:
    """The same of a part of a body that was decoded as anything. Raises InvalidRequest."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, field) from error


def text_in(holder: dict[str, Any], key: str, field: str) -> str:
    """Of the part or block at `field`. Null is an empty one; a missing one is not. Raises InvalidRequest."""
    value = holder.get(key, 0)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequest("A text is expected here.", param=f"{field}.{key}")
    return value


def _refusal(error: msgspec.ValidationError, within: str) -> InvalidRequest:
    """`messages[0].role` of msgspec's `$.messages[0].role`; what is missing stands in the sentence, not in the path."""
    sentence, _, path = str(error).partition(" - at `$")
    # `[...]` stands for a key of the client's own.
    field = (within + path.rstrip("`").partition("[...]")[0]).removeprefix(".")
    if "missing required field" in sentence:
        missing = sentence.split("`")[1]
        field = f"{field}.{missing}" if field else missing
    return InvalidRequest(f"{sentence}.", param=field or None)
