"""How deep a value of a client's own may be: what is handed on is walked by recursive code, here and in the engine.

It walks without recursion, and changes nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from control.errors import InvalidRequest

# A schema that a person wrote has a dozen levels; the interpreter gives up at a thousand calls.
NESTING_LIMIT: Final = 100


def is_too_deep(value: object) -> bool:
    """Whether `value`, as JSON was decoded, holds more than NESTING_LIMIT objects and lists inside one another."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(NESTING_LIMIT):
        if not level:
            return False
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
    return bool(level)


def check_depth(value: object, field: str) -> None:
    """Of what is handed on, or repeated in the answer. Raises InvalidRequest."""
    if is_too_deep(value):
        raise _too_deep(field)


@contextmanager
def endless_refused() -> Iterator[None]:
    """Around all that a parser does: what goes deeper than the decoder itself does, it can't say where."""
    try:
        yield
    except RecursionError as error:
        raise _too_deep(None) from error


def _too_deep(field: str | None) -> InvalidRequest:
    return InvalidRequest(f"It is nested too deeply; {NESTING_LIMIT} levels are supported.", param=field)
