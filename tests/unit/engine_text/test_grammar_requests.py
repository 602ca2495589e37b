"""Grammars as they arrive in a request: checked, compiled on the text thread, and refused by name."""

import msgspec
import pytest

from engine.door.intake import Intake
from engine.errors import InvalidRequest


@pytest.fixture
def intake(demo):
    return Intake(lambda: demo, 10_000)


def body(**more):
    return msgspec.json.encode({"id": "a", "prompt": {"text": "Hello"}} | more)


def test_a_request_without_a_grammar_is_admitted_without_a_constraint(intake):
    assert intake.admit(body()).constraint is None


@pytest.mark.parametrize(
    "grammar",
    [
        {"kind": "json_object"},
        {"kind": "json_schema", "schema": {"type": "object"}},
        {"kind": "json_schema", "schema": True},
        {"kind": "regex", "pattern": "[0-9]+"},
    ],
)
def test_a_request_with_a_grammar_is_admitted_with_a_constraint(intake, grammar):
    assert intake.admit(body(grammar=grammar)).constraint.allowed() is not None


@pytest.mark.parametrize(
    ("grammar", "param", "message"),
    [
        ({"kind": "json_schema"}, "grammar.schema", "json_schema needs a schema."),
        ({"kind": "regex"}, "grammar.pattern", "Regex needs a pattern."),
        ({"kind": "regex", "pattern": ""}, "grammar.pattern", "Regex needs a pattern."),
        ({"kind": "regex", "pattern": "("}, "grammar", "The grammar cannot be compiled: unclosed group."),
        (
            {"kind": "json_schema", "schema": {"not": {}}},
            "grammar",
            'The grammar cannot be compiled: Unimplemented keys: ["not"].',
        ),
    ],
)
def test_a_grammar_that_is_none_is_refused_by_name(intake, grammar, param, message):
    with pytest.raises(InvalidRequest) as refused:
        intake.admit(body(grammar=grammar))

    assert (refused.value.param, refused.value.message) == (param, message)


def test_a_required_call_binds_the_answer_and_a_free_choice_does_not(intake):
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]

    def admitted(mode):
        prompt = {"messages": messages, "tools": [{"name": "clock"}], "tool_choice": {"mode": mode}}
        return intake.admit(msgspec.json.encode({"id": "a", "prompt": prompt}))

    assert admitted("required").constraint is not None
    assert admitted("auto").constraint is None


@pytest.mark.parametrize(
    ("asked", "begun", "is_begun"),
    [
        ({"effort": "high"}, 'hm, {"b"?\n</think>\n\n{"a": 1}', True),
        ({"effort": "high"}, 'hm</think>{"a": 1}', True),
        ({"effort": "high"}, "hm</think>\nHere it is: {", False),
        ({"effort": "none"}, '{"a": 1}', True),
        ({"effort": "none"}, "<think>", False),
        ({"effort": "none"}, "\n", False),
        ({"template_arguments": {"enable_thinking": False}}, '{"a": 1}', True),
        ({"template_arguments": {"enable_thinking": False}}, "<think>", False),
    ],
)
def test_json_begins_behind_the_thought_that_the_template_opens_and_at_once_without_one(
    intake, demo, asked, begun, is_begun
):
    prompt = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]} | asked
    constraint = intake.admit(body(prompt=prompt, grammar={"kind": "json_object"})).constraint

    def follow(token):
        mask = constraint.allowed()
        if mask is None or mask[token // 8] >> token % 8 & 1:
            constraint.accept(token)
            return True
        return False

    assert all(follow(token) for token in demo.tokenizer.encode(begun, add_special_tokens=False)) == is_begun
