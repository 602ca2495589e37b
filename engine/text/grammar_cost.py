"""What of a schema would take the grammar library too long, or be understood wrongly: refused before it is compiled.

It judges no meaning: what a schema says, and whether it can be compiled, the library finds out.

The costs of `multipleOf`: a number is followed by its remainder, so a compilation takes time and memory in proportion
to the value. Values that meet in one number (below `allOf`, `anyOf` and the like) multiply, those of different places
add up. The library computes with 32 bits, and would take a product beyond them for another number.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from engine.errors import InvalidRequest

# A compilation's time grows with their square.
MOST_PROPERTIES: Final = 1_000
MOST_MULTIPLE_DIGITS: Final = 4
# Source: llguidance 1.9.1 on 2 slow cores: 4 µs and 4 KiB each, so at most 0.2 s.
MOST_REMAINDERS: Final = 40_000
# llguidance's reader of JSON takes no more; Python's writer fails on a few hundred.
MOST_LEVELS: Final = 128
# Of a number with one or two digits before its zeros, however many they are: 0.06 s and 0.6 s were the longest.
_MOST_OF_ROUND: Final = {1: 5_000, 2: MOST_REMAINDERS}
_LARGEST: Final = 2**32
# What makes one value follow several schemas, or a place begin with several kinds of numbers.
_COMBINING: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "contains", "patternProperties", "dependentSchemas"}
)
# What stands beside a `$ref` without changing what it stands for.
_BESIDE_REFERENCE: Final = frozenset(
    {"$ref", "$defs", "definitions", "$schema", "$id", "$comment", "title", "description", "default", "examples"}
)
_DEFINITIONS: Final = frozenset({"$defs", "definitions"})

Multiple = int | float


def check_cost(schema: Mapping[str, Any], param: str) -> None:
    """Raises InvalidRequest, with the number that is too large."""
    _check_sizes(schema, param)
    num_remainders = 0
    for multiples in _combined_multiples(schema):
        num_remainders += _num_remainders(multiples, param)
        if num_remainders > MOST_REMAINDERS:
            raise InvalidRequest(
                f"the values of multipleOf have a least common multiple, or a sum, above {MOST_REMAINDERS}: "
                "use smaller or fewer ones",
                param=param,
            )


def _check_sizes(schema: Mapping[str, Any], param: str) -> None:
    pending: list[tuple[Any, int]] = [(schema, 1)]
    while pending:
        part, level = pending.pop()
        if level > MOST_LEVELS and isinstance(part, (list, Mapping)):
            raise InvalidRequest(f"the schema is nested more than {MOST_LEVELS} levels deep", param=param)
        if isinstance(part, list):
            pending.extend((value, level + 1) for value in part)
        if not isinstance(part, Mapping):
            continue
        pending.extend((value, level + 1) for value in part.values())
        properties = part.get("properties")
        if isinstance(properties, Mapping) and len(properties) > MOST_PROPERTIES:
            raise InvalidRequest(f"an object has more than {MOST_PROPERTIES} properties", param=param)
        for multiple in _own_multiple(part):
            if not abs(multiple) < _LARGEST:
                raise InvalidRequest(f"multipleOf must be below {_LARGEST}", param=param)
            if len(_decimal(multiple).as_tuple().digits) > MOST_MULTIPLE_DIGITS:
                raise InvalidRequest(f"multipleOf has more than {MOST_MULTIPLE_DIGITS} digits: {multiple}", param=param)


def _own_multiple(schema: Mapping[str, Any]) -> Iterator[Multiple]:
    multiple = schema.get("multipleOf")
    if isinstance(multiple, int | float) and not isinstance(multiple, bool) and multiple != 0:
        yield multiple


def _combined_multiples(schema: Mapping[str, Any]) -> Iterator[list[Multiple]]:
    """The values that may meet in one number, group by group. What no reference leads to stands for nothing."""
    root = _Root(schema)
    pending: list[Any] = [schema]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        if part.keys() & _COMBINING or ("$ref" in part and part.keys() - _BESIDE_REFERENCE):
            yield _all_multiples(part, root)
            continue
        yield list(_own_multiple(part))
        pending.extend(root.inside(part))


def _all_multiples(within: Mapping[str, Any], root: "_Root") -> list[Multiple]:
    """Of everything that is in a schema, or that it refers to; those that are reached twice are there twice."""
    found: list[Multiple] = []
    pending: list[Any] = [within]
    num_seen: dict[int, int] = {}
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        if not isinstance(part, Mapping):
            continue
        num_seen[id(part)] = num_seen.get(id(part), 0) + 1
        if num_seen[id(part)] <= 2:
            found.extend(_own_multiple(part))
            pending.extend(root.inside(part))
    return found


class _Root:
    """The whole schema, in which references lead somewhere."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._anything = [schema, *(schema[name] for name in _DEFINITIONS if name in schema)]
        self._has_bases = any(_is_base(part) for value in schema.values() for part in _parts(value))

    def inside(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """What a schema is made of, and what it refers to."""
        for keyword, value in schema.items():
            if keyword not in _DEFINITIONS:
                yield value
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield self._target(reference)

    def _target(self, reference: str) -> Any:
        """Where it is no plain pointer, or pointers begin in several places: all there is."""
        if self._has_bases or "%" in reference or (reference != "#" and not reference.startswith("#/")):
            return self._anything
        part: Any = self._schema
        for step in reference[2:].split("/") if reference != "#" else ():
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(part, list):
                part = part[int(name)] if name.isdecimal() and len(name) < 10 and int(name) < len(part) else None
            else:
                part = part.get(name) if isinstance(part, Mapping) else None
        return self._anything if part is None else part


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, Mapping):
            yield part
            pending.extend(part.values())


def _is_base(schema: Mapping[str, Any]) -> bool:
    return any(isinstance(schema.get(name), str) for name in ("$id", "id"))


def _num_remainders(multiples: Iterable[Multiple], param: str) -> int:
    """Of the least common multiple; as many as cost as much, where it is a round one."""
    decimals = [_decimal(multiple) for multiple in multiples]
    if not decimals:
        return 0
    lowest = min(0, *(int(each.as_tuple().exponent) for each in decimals))
    scaled = [int(each.scaleb(-lowest)) for each in decimals]
    common = math.lcm(*set(scaled))
    if len(scaled) > 1 and common * max(scaled) >= _LARGEST:
        raise InvalidRequest(
            f"the values of multipleOf that are combined have a least common multiple that is too large: {common}",
            param=param,
        )
    digits = str(common).rstrip("0")
    return min(common, _MOST_OF_ROUND.get(len(digits), common))


def _decimal(multiple: Multiple) -> Decimal:
    return abs(Decimal(str(multiple)).normalize())
