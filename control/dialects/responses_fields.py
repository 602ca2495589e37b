"""Where something is in the body of a Responses request: an error names what the client sent.

It knows names only; which field is wrong, msgspec or the engine found.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from control.errors import InvalidRequest

T = TypeVar("T")

_RENAMED: Final = (
    (re.compile(r"prompt\.effort\b"), "reasoning.effort"),
    (re.compile(r"prompt\.tool_choice\b"), "tool_choice"),
    (re.compile(r"sampling\.logprobs\b"), "top_logprobs"),
    (re.compile(r"sampling\."), ""),
    (re.compile(r"max_tokens\b"), "max_output_tokens"),
    (re.compile(r"grammar\b"), "text.format"),
    (re.compile(r"prompt\b.*"), "input"),
)
_INDEXED: Final = re.compile(r"prompt\.(?P<list>messages|tools)\[(?P<index>\d+)\](?P<rest>.*)")
# Control writes these itself.
_NOT_SENT: Final = ("id", "request_class")


def converted(value: object, kind: type[T], field: str) -> T:
    """`value`, as JSON was decoded, as a `kind`. Raises InvalidRequest that names what is wrong below `field`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise invalid(error, field) from error


def invalid(error: msgspec.ValidationError, field: str = "") -> InvalidRequest:
    """What is missing stands in msgspec's sentence, not in its path."""
    sentence, _, path = str(error).partition(" - at `$")
    # `[...]` stands for a key of the client's own.
    names = [field, path.rstrip("`").removeprefix(".").partition("[...]")[0]]
    if "missing required field" in sentence:
        names.append(sentence.split("`")[1])
    return InvalidRequest(f"{sentence}.", param=".".join(name for name in names if name) or None)


def client_field(engine_field: str, *, messages: Sequence[str], tools: Sequence[str]) -> str | None:
    """None for a field that no client sends. `messages` and `tools` say where the client sent each of the engine's."""
    if engine_field in _NOT_SENT:
        return None
    if match_ := _INDEXED.match(engine_field):
        places = messages if match_["list"] == "messages" else tools
        index = int(match_["index"])
        if index < len(places):
            rest = match_["rest"] if match_["list"] == "tools" else ""
            return f"{places[index]}{rest}"
    for pattern, name in _RENAMED:
        if pattern.match(engine_field):
            return pattern.sub(name, engine_field, count=1)
    return engine_field


def as_raw(value: Any) -> msgspec.Raw:
    """Encoded once, for what is written several times."""
    return msgspec.Raw(msgspec.json.encode(value))
