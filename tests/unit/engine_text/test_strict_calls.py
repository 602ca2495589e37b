"""Strict tools that the model may call: text is free, and a call that has begun follows the schema."""

import dataclasses

import msgspec
import pytest

from engine.door.intake import Intake
from engine.errors import ConstraintFailed, InvalidRequest
from engine.text.grammar import Grammars
from engine.text.markup import THOUGHT
from engine.wire import Tool
from tests.unit.engine_text.test_grammar_constraint import (
    CLOCK,
    UNIQUE,
    WEATHER,
    YES_OR_NO,
    allows,
    constraint,
    encoded,
    goes,
    json_demo,
    may_end,
    xml,
)

__all__ = ["json_demo"]
STRICT = msgspec.structs.replace(WEATHER, strict=True)
LOOSE = Tool(name="loose", parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


@pytest.fixture(scope="module")
def grammars(demo):
    return Grammars(demo)


def json_call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


WRITTEN = {
    "json": {
        "right": json_call("weather", '{"city": "Rome", "days": 3}'),
        "wrong type": json_call("weather", '{"city": 3}'),
        "missing": json_call("weather", "{}"),
        "unknown": json_call("weather", '{"city": "Rome", "more": 1}'),
        "loose": json_call("loose", '{"anything": ["goes"]}'),
        "not offered": json_call("other", "{}"),
    },
    "xml": {
        "right": xml("weather", ("city", "Rome"), ("days", "3")),
        "wrong type": xml("weather", ("city", "Rome"), ("days", "many")),
        "missing": xml("weather"),
        "unknown": xml("weather", ("city", "Rome"), ("more", "1")),
        "loose": xml("loose", ("anything", "goes")),
        "not offered": xml("other"),
    },
}


@pytest.fixture(params=["json", "xml"])
def family(request, demo, json_demo):
    return json_demo if request.param == "json" else demo, WRITTEN[request.param]


def followed(model, grammars, *, tools=(STRICT, LOOSE), grammar=None, **more):
    return constraint(model, grammars, tools=tools, grammar=grammar, **more)


def test_plain_text_stays_free_and_may_end_anywhere(family, grammars):
    model, _ = family
    answer = followed(model, grammars)

    assert answer.allowed() is None
    assert goes(model, answer, 'I know the weather: {"city": 3}, <b>not</b> a call.')
    assert answer.allowed() is None


def test_a_call_that_follows_the_schema_is_allowed_and_text_and_calls_may_follow_it(family, grammars):
    model, written = family
    answer = followed(model, grammars)

    assert goes(model, answer, f"I will look.\n{written['right']}")
    assert answer.allowed() is None
    assert goes(model, answer, f"\n{written['right']}\n{written['loose']} Done.")
    assert not goes(model, answer, written["missing"])


@pytest.mark.parametrize("fault", ["wrong type", "missing", "unknown", "not offered"])
def test_a_call_that_does_not_is_refused_where_it_goes_wrong(family, grammars, fault):
    model, written = family

    assert not goes(model, followed(model, grammars), f"Well: {written[fault]}")


def test_within_a_call_the_answer_does_not_end(family, grammars):
    model, written = family
    answer = followed(model, grammars)
    goes(model, answer, written["right"].removesuffix("</tool_call>"))

    assert not may_end(model, answer)
    assert goes(model, answer, "</tool_call>")
    assert may_end(model, answer)


def test_tools_that_are_not_strict_take_any_object_and_alone_leave_all_free(family, grammars):
    model, written = family

    assert goes(model, followed(model, grammars), written["loose"])
    assert followed(model, grammars, tools=(WEATHER, LOOSE)) is None


def test_a_thought_is_free_and_the_call_behind_it_is_bound(family, grammars):
    model, written = family
    answer = followed(model, grammars, state=THOUGHT)

    assert goes(model, answer, f"I could write {written['missing']} or not</think>\n\nLet me see. ")
    assert not goes(model, answer, written["missing"])


def test_a_call_instead_of_an_answer_that_has_a_grammar_is_bound_too(family, grammars):
    model, written = family

    assert goes(model, followed(model, grammars, grammar=YES_OR_NO), "yes")
    assert goes(model, followed(model, grammars, grammar=YES_OR_NO), f"{written['right']} and more")
    assert not goes(model, followed(model, grammars, grammar=YES_OR_NO), written["missing"])


def test_a_strict_tool_whose_schema_cannot_be_compiled_is_refused(family, grammars):
    with pytest.raises(InvalidRequest, match="uniqueItems") as refused:
        followed(family[0], grammars, tools=(Tool(name="f", parameters=UNIQUE, strict=True), WEATHER))

    assert refused.value.param == "prompt.tools"
    assert followed(family[0], grammars, tools=(Tool(name="f", parameters=UNIQUE), STRICT)) is not None


def test_a_marker_of_several_tokens_binds_what_follows_it(json_demo, grammars):
    markers = {
        state: tuple(dataclasses.replace(m, text=m.text.replace("<tool_call>", "[call:")) for m in of_state)
        for state, of_state in json_demo.markup.markers.items()
    }
    markup = dataclasses.replace(json_demo.markup, markers=markers, call_start="[call:")
    model = dataclasses.replace(json_demo, markup=markup)
    assert len(encoded(model, "[call:")) > 1

    right, wrong = (json_call("weather", arguments) for arguments in ('{"city": "Rome"}', "{}"))

    assert goes(model, followed(model, grammars), "So: " + right.replace("<tool_call>", "[call:"))
    assert not goes(model, followed(model, grammars), "So: " + wrong.replace("<tool_call>", "[call:"))


def test_a_token_that_was_not_allowed_fails_the_constraint(json_demo, grammars):
    answer = followed(json_demo, grammars)
    goes(json_demo, answer, '<tool_call>\n{"name": ')

    assert not allows(answer.allowed(), encoded(json_demo, "maybe")[0])
    with pytest.raises(ConstraintFailed):
        answer.accept(encoded(json_demo, "maybe")[0])


def test_where_the_models_way_of_calling_has_no_grammar_strictness_is_a_wish(json_demo, grammars):
    tokenizer = type("Tokenizer", (), {"tool_parser": staticmethod(lambda text, tools: {})})()

    assert followed(dataclasses.replace(json_demo, tokenizer=tokenizer), grammars) is None


def test_a_request_with_a_strict_tool_is_admitted_with_a_constraint(demo):
    intake = Intake(lambda: demo, 10_000)

    def admitted(*tools, mode="auto"):
        messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
        prompt = {"messages": messages, "tools": tools, "tool_choice": {"mode": mode}}
        return intake.admit(msgspec.json.encode({"id": "a", "prompt": prompt})).constraint

    assert admitted(STRICT, CLOCK) is not None
    assert admitted(STRICT, mode="none") is None
    assert admitted(CLOCK) is None
