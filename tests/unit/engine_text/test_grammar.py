"""Grammars of one tokenizer: what they take, what they refuse, and what can't be compiled."""

import dataclasses
import json
import threading

import pytest

from engine.errors import InvalidRequest
from engine.text import grammar as grammar_module
from engine.text.compiling import Deadline
from engine.text.grammar import MOST_GRAMMAR_BYTES, MOST_KEPT, Grammars
from engine.text.grammar_cost import MOST_PROPERTIES
from engine.wire import Grammar

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars(demo):
    return Grammars(demo)


def schema(value):
    return Grammar(kind="json_schema", schema=value)


def regex(pattern):
    return Grammar(kind="regex", pattern=pattern)


def takes(grammars, demo, grammar, text) -> bool:
    """Whether every token of the text was allowed, and its end."""
    matcher = grammars.answer(grammar)
    for token in [*demo.tokenizer.encode(text, add_special_tokens=False), min(demo.end_tokens)]:
        if not matcher.compute_bitmask()[token // 8] >> token % 8 & 1:
            return False
        assert matcher.consume_token(token)
    return True


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (Grammar(kind="json_object"), '{"a": [1, 2.5e3, null, true], "b": {"ü": "\\n 日本"}}'),
        (Grammar(kind="json_object"), '{\n    "a": 1,\n    "b": {}\n}'),
        (schema(PERSON), '{"name": "Ada", "age": 36}'),
        (schema(PERSON), '{"name":"Ada","age":36}'),
        (schema(True), "[1]"),
        (schema({"enum": [f"word {i}" for i in range(1000)]}), '"word 777"'),
        (schema({"oneOf": [{"type": "string"}, {"type": "integer"}]}), "7"),
        (
            schema({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}),
            "[[], [[]]]",
        ),
        (schema({"type": "string", "frobnicate": 3, "title": "t", "default": 4}), '"a"'),
        (regex(r"[a-z]+/\d{2}"), "ab/12"),
        (regex(r"^(yes|no)$"), "no"),
        (regex('a\nb"?'), 'a\nb"'),
    ],
    ids=str,
)
def test_an_answer_that_the_grammar_describes_is_allowed_token_by_token(grammars, demo, grammar, text):
    assert takes(grammars, demo, grammar, text)


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (Grammar(kind="json_object"), "[1]"),
        (Grammar(kind="json_object"), "{'a': 1}"),
        (Grammar(kind="json_object"), '{"a": 1} and more'),
        (Grammar(kind="json_object"), '{"a": 1'),
        (Grammar(kind="json_object"), '{   "a": 1}'),
        (schema(PERSON), '{"name": "Ada"}'),
        (schema(PERSON), '{"name": "Ada", "age": -1}'),
        (schema(PERSON), '{"name": "Ada", "age": 36, "more": 1}'),
        (schema({"enum": ["a", "b"]}), '"c"'),
        (schema({"type": "string"}), '"<|im_start|>"'),
        (schema({"type": "string"}), '"<tool_call>"'),
        (regex(r"\d{2}"), "123"),
        (regex(r"yes|no"), "yes, no"),
    ],
    ids=str,
)
def test_another_answer_is_refused_where_it_goes_wrong(grammars, demo, grammar, text):
    assert not takes(grammars, demo, grammar, text)


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (schema({"not": {"type": "string"}}), 'cannot be compiled: Unimplemented keys: ["not"]'),
        (schema({"type": "array", "uniqueItems": True}), 'cannot be compiled: Unimplemented keys: ["uniqueItems"]'),
        (schema({"x-guidance": {"lenient": True}, "not": {}}), 'cannot be compiled: Unimplemented keys: ["not"]'),
        (schema({"type": "string", "format": "zork"}), "cannot be compiled: Unknown format: zork"),
        (schema({"type": "strin"}), "cannot be compiled: Invalid type: strin"),
        (schema({"$ref": "#/$defs/none"}), "Pointer '/$defs/none' does not exist"),
        (schema({"type": "integer", "minimum": 5, "maximum": 1}), "Unsatisfiable schema"),
        (schema({"$ref": "#"}), "cannot be compiled: nothing satisfies it"),
        (schema(False), "Nothing satisfies the schema false."),
        (regex("(a"), "cannot be compiled: unclosed group"),
        (regex(r"(a)\1"), "cannot be compiled: backreferences are not supported"),
        (regex("(?=a)b"), "look-around, including look-ahead and look-behind, is not supported"),
    ],
    ids=str,
)
def test_what_cannot_be_compiled_is_refused_with_one_line_of_reason(grammars, grammar, reason):
    with pytest.raises(InvalidRequest) as refused:
        grammars.answer(grammar)

    assert reason in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.param == "grammar"


def nested(depth):
    inside = {"type": "string"}
    for _ in range(depth):
        inside = {"type": "object", "properties": {"a": inside}, "required": ["a"]}
    return inside


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "grammar",
    [
        schema(nested(200)),
        schema({"properties": {f"p{i}": True for i in range(MOST_PROPERTIES + 1)}}),
        schema({"type": "integer", "multipleOf": 1000003}),
        schema({"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(20)]}),
        schema({"allOf": [{"type": "string", "pattern": f"^.*{letter}.*$"} for letter in "abcdefghijklmnopqrst"]}),
        schema({"enum": ["x" * 100] * (MOST_GRAMMAR_BYTES // 100)}),
        regex("(" * 100_000 + "a" + ")" * 100_000),
        regex("((((a{1,50}){1,50}){1,50}){1,50}){1,50}|" * 40 + "b"),
    ],
    ids=["depth", "properties", "multiple", "choices", "intersections", "size", "parentheses", "repetitions"],
)
def test_a_hostile_grammar_is_refused_soon_or_costs_little(grammars, grammar):
    try:
        matcher = grammars.answer(grammar)
    except InvalidRequest:
        return

    assert len(matcher.compute_bitmask()) > 0


@pytest.mark.parametrize("depth", [100, 2_000])
def test_a_schema_that_is_nested_too_deep_is_refused_and_fails_nothing(grammars, depth):
    with pytest.raises(InvalidRequest, match="nested more than 128 levels deep"):
        grammars.answer(schema(nested(depth)))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "described",
    [{"items": None}, {"properties": {"": None}}, {"anyOf": [{"items": None}, True]}],
    ids=["items", "properties", "choices"],
)
def test_a_chain_of_references_as_long_as_a_grammar_may_be_does_not_overflow_the_stack(grammars, described):
    written = json.dumps({"0000": described})
    length = (MOST_GRAMMAR_BYTES - 10_000) // (len(written) + len('{"$ref": "#/d/0000"}'))
    definitions = {
        f"{i:04}": json.loads(json.dumps(described).replace("null", f'{{"$ref": "#/d/{i + 1:04}"}}'))
        for i in range(length)
    }

    grammar = schema({"$ref": "#/d/0000", "d": {**definitions, f"{length:04}": {"type": "null"}}})
    try:
        grammars.answer(grammar)
    except InvalidRequest as refused:
        assert "schema too large" in refused.message

    assert length > 3_000


def test_a_grammar_that_takes_too_long_is_refused_and_the_next_one_is_compiled(demo, monkeypatch):
    grammars = Grammars(demo)
    done = threading.Event()
    really = grammar_module._compiled
    monkeypatch.setattr(
        grammar_module, "_compiled", lambda rules, *rest: done.wait(30) if "slow" in rules else really(rules, *rest)
    )

    with pytest.raises(InvalidRequest, match="takes longer than 5 s to compile"):
        grammars.compile("start: /slow/", param="grammar", deadline=Deadline(0.05))
    others = takes(grammars, demo, regex("other"), "other")
    is_told = grammars.compilations.longest_s() > 0
    done.set()

    assert others and is_told


def test_a_multiple_with_few_digits_is_no_hostile_one(grammars, demo):
    assert takes(grammars, demo, schema({"type": "integer", "multipleOf": 1_000_000}), "3000000")
    assert takes(grammars, demo, schema({"type": "number", "multipleOf": 0.01}), "3.25")
    assert takes(grammars, demo, schema({"properties": {"multipleOf": {"type": "string"}}}), '{"multipleOf": "a"}')


def test_a_grammar_is_compiled_once_and_each_answer_begins_at_its_beginning(grammars, demo, monkeypatch):
    compiled = []
    really = grammar_module._compiled
    monkeypatch.setattr(grammar_module, "_compiled", lambda *given: (compiled.append(given), really(*given))[1])

    for _ in range(3):
        assert takes(grammars, demo, regex("only once"), "only once")

    assert len(compiled) == 1


def test_the_most_recently_used_are_kept(demo, monkeypatch):
    grammars = Grammars(demo)
    compiled = []
    really = grammar_module._compiled
    monkeypatch.setattr(grammar_module, "_compiled", lambda *given: (compiled.append(given[0]), really(*given))[1])
    grammars.answer(regex("first"))
    for i in range(MOST_KEPT - 1):
        grammars.answer(regex(f"other {i}"))
        grammars.answer(regex("first"))
    grammars.answer(regex("one more"))

    grammars.answer(regex("first"))
    grammars.answer(regex("other 0"))

    assert compiled.count("start: /first/") == 1
    assert compiled.count("start: /other 0/") == 2


def test_answers_of_one_grammar_can_be_followed_on_other_threads(grammars, demo):
    grammar = schema(PERSON)
    results = []
    threads = [
        threading.Thread(
            target=lambda i=i: results.append(takes(grammars, demo, grammar, f'{{"name": "A{i}", "age": {i}}}'))
        )
        for i in range(8)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [True] * 8


def test_without_an_end_token_nothing_could_end_the_answer(demo):
    grammars = Grammars(dataclasses.replace(demo, end_tokens=frozenset()))

    with pytest.raises(InvalidRequest, match="no end-of-text token"):
        grammars.answer(regex("a"))
