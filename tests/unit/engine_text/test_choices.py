"""`oneOf` whose choices exclude each other: behind references, and told apart by a discriminator."""

import pytest

from engine.errors import InvalidRequest
from engine.text.choices import with_exclusive_choices
from engine.text.grammar import Grammars
from engine.wire import Grammar


@pytest.fixture(scope="module")
def grammars(demo):
    return Grammars(demo)


def choice(kind, *, required=("kind",), **properties):
    return {
        "type": "object",
        "properties": {"kind": kind, **properties},
        "required": list(required),
        "additionalProperties": False,
    }


CAT = choice({"const": "cat"}, lives={"type": "integer"})
DOG = choice({"type": "string", "enum": ["dog", "wolf"]}, name={"type": "string"})
# As pydantic writes a field with a default.
LAZY_CAT = choice({"const": "cat", "default": "cat"}, required=(), lives={"type": "integer"})
LAZY_DOG = choice({"const": "dog", "default": "dog"}, required=(), name={"type": "string"})
REFERENCES = [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]
BY_KIND = {"discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}}}


def takes(grammars, demo, schema, text) -> bool:
    matcher = grammars.answer(Grammar(kind="json_schema", schema=schema))
    for token in [*demo.tokenizer.encode(text, add_special_tokens=False), min(demo.end_tokens)]:
        if not matcher.compute_bitmask()[token // 8] >> token % 8 & 1:
            return False
        assert matcher.consume_token(token)
    return True


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [CAT, DOG]},
        {"oneOf": [CAT, DOG], **BY_KIND},
        {"oneOf": REFERENCES, "$defs": {"Cat": CAT, "Dog": DOG}},
        {"oneOf": REFERENCES, **BY_KIND, "$defs": {"Cat": CAT, "Dog": DOG}},
        {"oneOf": REFERENCES, **BY_KIND, "$defs": {"Cat": LAZY_CAT, "Dog": LAZY_DOG}},
        {"oneOf": [LAZY_CAT, LAZY_DOG], **BY_KIND},
        {"oneOf": [*REFERENCES, {"type": "null"}], "$defs": {"Cat": CAT, "Dog": DOG}},
        {"oneOf": [{"$ref": "#/$defs/Pet"}, DOG], "$defs": {"Pet": {"$ref": "#/$defs/a~1b"}, "a/b": CAT}},
    ],
)
def test_exactly_the_choices_are_taken(grammars, demo, schema):
    assert takes(grammars, demo, schema, '{"kind": "cat", "lives": 9}')
    assert takes(grammars, demo, schema, '{"kind": "dog", "name": "Rex"}')
    assert not takes(grammars, demo, schema, '{"kind": "cat", "name": "Tom"}')
    assert not takes(grammars, demo, schema, '{"kind": "cow"}')
    assert not takes(grammars, demo, schema, "{}")
    assert not takes(grammars, demo, schema, '{"lives": 9}')


def test_choices_that_contain_each_other_are_told_apart(grammars, demo):
    pair = choice({"const": "pair"}, first={"$ref": "#/$defs/Tree"}, second={"$ref": "#/$defs/Tree"})
    tree = {"oneOf": [{"$ref": "#/$defs/Leaf"}, {"$ref": "#/$defs/Pair"}]}
    schema = {"$ref": "#/$defs/Tree", "$defs": {"Tree": tree, "Leaf": choice({"const": "leaf"}), "Pair": pair}}

    assert takes(grammars, demo, schema, '{"kind": "pair", "first": {"kind": "leaf"}, "second": {"kind": "leaf"}}')
    assert not takes(grammars, demo, schema, '{"kind": "pair", "first": {"kind": "tree"}}')


def test_choices_below_other_keywords_are_found_and_data_is_left_alone(grammars, demo):
    defs = {"Cat": CAT, "Dog": DOG}
    pets = {"type": "array", "items": {"oneOf": REFERENCES}}
    schema = {"type": "object", "properties": {"oneOf": pets}, "required": ["oneOf"], "$defs": defs}
    data = {"const": {"oneOf": [{"type": "integer"}, {"type": "string"}]}}

    assert takes(grammars, demo, schema, '{"oneOf": [{"kind": "cat"}, {"kind": "wolf"}]}')
    assert with_exclusive_choices(data) == data


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"oneOf": [LAZY_CAT, LAZY_DOG]},
        {"oneOf": [CAT, CAT | {"properties": {"kind": {"enum": ["cat", "lion"]}}}], **BY_KIND},
        {"oneOf": REFERENCES, **BY_KIND, "$defs": {"Cat": choice({"type": "string"}), "Dog": DOG}},
        # A text satisfies both: properties bind objects only.
        {"oneOf": REFERENCES, "$defs": {"Cat": {"properties": {"kind": {"const": "cat"}}}, "Dog": DOG}},
    ],
)
def test_choices_that_may_overlap_are_refused_and_the_reason_says_what_to_do(grammars, schema):
    with pytest.raises(InvalidRequest, match="two choices of a oneOf may be satisfied by one value: use anyOf, or"):
        grammars.answer(Grammar(kind="json_schema", schema=schema))


@pytest.mark.parametrize("reference", ["#/$defs/Loop", "#/$defs/None", "other.json#/a", "#/$defs/Cat/required/0", 7])
def test_a_reference_that_leads_nowhere_is_refused_too(grammars, reference):
    schema = {"oneOf": [{"$ref": reference}, DOG], "$defs": {"Loop": {"$ref": "#/$defs/Loop"}, "Cat": CAT}}

    with pytest.raises(InvalidRequest):
        grammars.answer(Grammar(kind="json_schema", schema=schema))


def test_choices_within_choices_without_end_are_refused(grammars):
    nested = {"type": "null"}
    for _ in range(150):
        nested = {"oneOf": [{"type": "array", "items": nested}, {"type": "integer"}]}

    with pytest.raises(InvalidRequest, match="nested more than 128 levels deep"):
        grammars.answer(Grammar(kind="json_schema", schema=nested))


@pytest.mark.timeout(20)
def test_hundreds_of_choices_are_not_compared_in_pairs_and_followed_all_the_same(grammars, demo):
    """llguidance itself tells those apart that are written out."""
    schema = {"oneOf": [choice({"const": f"k{i}"}, **{f"p{j}": True for j in range(3)}) for i in range(300)]}

    assert with_exclusive_choices(schema) == schema
    assert takes(grammars, demo, schema, '{"kind": "k299"}')
    assert not takes(grammars, demo, schema, '{"kind": "k300"}')
