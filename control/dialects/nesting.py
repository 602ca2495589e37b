"""How deep a value of a client's own may be: what is handed on is walked by recursive code, here and in the engine.

It walks without recursion, and changes nothing.
"""

from typing import Final

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
