"""What schemas are refused for their cost before they are compiled: multiples that meet in one number, above all."""

import pytest

from engine.errors import InvalidRequest
from engine.text.grammar import Grammars
from engine.text.grammar_cost import check_cost
from engine.wire import Grammar


def multiples(*values, **more):
    return {"type": "integer", "allOf": [{"multipleOf": value} for value in values], **more}


def fields(*values):
    return {"type": "object", "properties": {f"f{i}": described for i, described in enumerate(values)}}


def number(multiple):
    return {"type": "number", "multipleOf": multiple}


def optional(described):
    return {"anyOf": [described, {"type": "null"}]}


TWO = {"a": {"type": "integer", "multipleOf": 9973}, "b": {"multipleOf": 9967}}

HOSTILE = {
    "four in one number": multiples(9973, 9967, 9949, 9941),
    "two in one number": multiples(997, 991),
    "beside allOf": multiples(997, multipleOf=991),
    "below others": fields({"type": "array", "items": multiples(997, 991)}),
    "choices": {"anyOf": [number(9973 - i) for i in range(5)]},
    "exclusive choices": {"oneOf": [number(9973 - i) for i in range(5)]},
    "references": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": TWO},
    "beside a reference": {"$ref": "#/$defs/a", "multipleOf": 9967, "$defs": TWO},
    "far away": fields({"allOf": [{"$ref": "#/x/1/b"}, {"$ref": "#/x/1/a"}]}) | {"x": [0, TWO]},
    "a reference with an escape": {"allOf": [{"$ref": "#/$defs/%61"}, {"$ref": "#/$defs/b"}], "$defs": TWO},
    "an anchor": {"allOf": [{"$ref": "#b"}, number(997)], "$defs": {"x": {"$anchor": "b", "multipleOf": 991}}},
    "a name": {"allOf": [{"$ref": "b"}, number(997)], "definitions": {"x": {"$id": "b", "multipleOf": 991}}},
    "another base": {
        "allOf": [{"$ref": "#/$defs/x/y"}, number(997)],
        "$defs": {"x": {"$id": "b", "y": {"$ref": "#/z"}, "z": {"multipleOf": 991}}},
    },
    "many fields": fields(*(number(9973 - i) for i in range(200))),
    "fractions": multiples(0.997, 0.991),
    "zeros that hide it": number(409600000),
    "more than 32 bits": multiples(100000, 100000),
    "far more": number(10**400),
    "without an end": number(float("inf")),
}

SENSIBLE = {
    "prices and minutes": fields(*map(number, (0.01, 0.01, 0.1, 0.5, 5, 7, 12, 15, 45, 60, 100, 256, 1024, 1_000_000))),
    "all of them optional": fields(*(optional(number(each)) for each in (0.01, 0.1, 5, 7, 15, 60, 1024, 100_000))),
    "all of them below one allOf": {"allOf": [fields(*map(number, (0.01, 0.05, 0.25, 5, 15, 60)))]},
    "one that is used often": fields(*[{"$ref": "#/$defs/a"}] * 50) | {"$defs": TWO},
    "a tree": {"$ref": "#/$defs/t", "$defs": {"t": fields(number(9973), {"$ref": "#/$defs/t"})}},
    "a field of that name": fields({"type": "string"}) | {"default": {"multipleOf": True}},
    "zero": number(0),
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE.keys())
def test_multiples_that_would_take_long_are_refused_by_name(schema):
    with pytest.raises(InvalidRequest, match="multipleOf") as refused:
        check_cost(schema, "grammar")

    assert refused.value.param == "grammar"


@pytest.mark.parametrize("schema", SENSIBLE.values(), ids=SENSIBLE.keys())
def test_multiples_of_a_sensible_schema_are_taken(schema):
    check_cost(schema, "grammar")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "schema",
    [multiples(199, 197), fields(*map(number, (9973, 9967, 9949, 9941))), number(96_000_000)],
    ids=["one", "four", "round"],
)
def test_the_most_costly_that_are_taken_are_compiled_in_time(demo, schema):
    matcher = Grammars(demo).answer(Grammar(kind="json_schema", schema=schema))

    assert len(matcher.compute_bitmask()) > 0
