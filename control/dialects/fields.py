"""How the fields of the engine's door are renamed to those of a client: an error names what the client sent.

It knows no dialect's names, and does not find what is wrong.
"""

import re
from collections.abc import Sequence
from typing import Final

# Control writes these itself.
_NOT_SENT: Final = ("id", "request_class", "ignore_eos")


def renamed(engine_field: str, names: Sequence[tuple[re.Pattern[str], str]]) -> str | None:
    """By the first pattern that its beginning matches; None for a field that no client sends."""
    if engine_field in _NOT_SENT:
        return None
    for pattern, name in names:
        if pattern.match(engine_field):
            return pattern.sub(name, engine_field, count=1)
    return engine_field
