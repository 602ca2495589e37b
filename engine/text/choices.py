"""Rewrites `oneOf` as `anyOf` where no value can satisfy two of its choices, so that the two mean the same.

llguidance does so itself for choices that are written out; here are those behind a `$ref`, and those that the client
tells apart by a `discriminator`. What it can't prove it leaves as it is, for llguidance to judge.

Of a discriminator only its property counts. Choices for which it is optional (pydantic's, when it has a default) are
given it as required: an answer without it could satisfy two choices, so `oneOf` would be wrong for it.
Format: JSON schema 2020-12; `discriminator` is OpenAPI 3.1's.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Final

_OF_ONE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_OF_LIST: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_MOST_REFERENCES: Final = 16
# Pairs are compared.
_MOST_CHOICES: Final = 200

Schema = dict[str, Any]


def with_exclusive_choices(schema: Mapping[str, Any]) -> Schema:
    """A copy, if anything in it is rewritten."""
    written = json.dumps(schema)
    if '"oneOf"' not in written:
        return dict(schema)
    root: Schema = json.loads(written)
    pending: list[Any] = [root]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            # The parts first: a rewritten choice is a copy.
            pending.extend(_parts(part))
            _rewrite(part, root)
    return root


def _parts(schema: Schema) -> Iterator[Any]:
    for keyword, value in schema.items():
        if keyword in _OF_ONE and isinstance(value, dict):
            yield value
        elif keyword in _OF_LIST and isinstance(value, list):
            yield from value
        elif keyword in _BY_NAME and isinstance(value, dict):
            yield from value.values()


def _rewrite(schema: Schema, root: Schema) -> None:
    choices = schema.get("oneOf")
    if not isinstance(choices, list) or not 2 <= len(choices) <= _MOST_CHOICES or "anyOf" in schema:
        return
    discriminator = schema.get("discriminator")
    name = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
    resolved = [_resolved(choice, root) for choice in choices]
    named = name if isinstance(name, str) else None
    if all(_are_apart(first, second, named) for first, second in combinations(resolved, 2)):
        del schema["oneOf"]
        schema["anyOf"] = [_requiring(choice, meant, named) for choice, meant in zip(choices, resolved, strict=True)]


def _resolved(choice: Any, root: Schema) -> Schema:
    """What the choice says itself, where it is no more than a reference: what that stands for. Nothing if unknown."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(choice, dict):
            return {}
        pointer = choice.get("$ref")
        if pointer is None:
            return choice
        if not isinstance(pointer, str) or not pointer.startswith("#/"):
            return {}
        choice = root
        for step in pointer[2:].split("/"):
            choice = choice.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(choice, dict) else None
    return {}


def _are_apart(first: Schema, second: Schema, name: str | None) -> bool:
    types = _types(first), _types(second)
    if types[0] and types[1] and not types[0] & types[1]:
        return True
    if types != ({"object"}, {"object"}):
        return False
    names = [name] if name is not None else [key for key in _properties(first) if key in _properties(second)]
    return any(
        _values(first, key).isdisjoint(_values(second, key))
        for key in names
        if _values(first, key)
        and _values(second, key)
        and (key == name or (_requires(first, key) and _requires(second, key)))
    )


def _types(schema: Schema) -> set[str]:
    """Integers are numbers. Nothing where it is not said."""
    given = schema.get("type")
    names = given if isinstance(given, list) else [given]
    return {"number" if name == "integer" else name for name in names if isinstance(name, str)}


def _properties(schema: Schema) -> Schema:
    given = schema.get("properties")
    return given if isinstance(given, dict) else {}


def _requires(schema: Schema, name: str) -> bool:
    given = schema.get("required")
    return isinstance(given, list) and name in given


def _values(schema: Schema, name: str) -> frozenset[str]:
    """The texts that the property may have; none where it may have others."""
    of_property = _properties(schema).get(name)
    if not isinstance(of_property, dict):
        return frozenset()
    values = [of_property["const"]] if "const" in of_property else of_property.get("enum")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return frozenset()
    return frozenset(values)


def _requiring(choice: Any, meant: Schema, name: str | None) -> Any:
    if name is None or name not in _properties(meant) or _requires(meant, name):
        return choice
    required = choice.get("required")
    return choice | {"required": [*(required if isinstance(required, list) else ()), name]}
