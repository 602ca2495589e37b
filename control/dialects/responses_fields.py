"""Where something is in the body of a Responses request: an error names what the client sent.

It knows names only; which field is wrong, msgspec or the engine found.
"""

import re
from collections.abc import Sequence
from typing import Final

from control.dialects.fields import renamed

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


def client_field(engine_field: str, *, messages: Sequence[str], tools: Sequence[str]) -> str | None:
    """None for a field that no client sends. `messages` and `tools` say where the client sent each of the engine's."""
    if match_ := _INDEXED.match(engine_field):
        places = messages if match_["list"] == "messages" else tools
        index = int(match_["index"])
        if index < len(places):
            rest = match_["rest"] if match_["list"] == "tools" else ""
            return f"{places[index]}{rest}"
    return renamed(engine_field, _RENAMED)
