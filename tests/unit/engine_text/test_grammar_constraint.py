"""A constraint along one answer: free before it, bound in it; and what else may begin where it does."""

import copy
import dataclasses
from types import SimpleNamespace

import msgspec
import pytest
from mlx_lm.tool_parsers import json_tools

from engine.errors import ConstraintFailed, InvalidRequest
from engine.text.constraint import constraint_of
from engine.text.grammar import Grammars
from engine.text.markup import ANSWER, THOUGHT, Marker
from engine.text.template import Rendered
from engine.wire import GenerateRequest, Grammar, Message, Prompt, TextPart, Tool, ToolChoice

YES_OR_NO = Grammar(kind="regex", pattern="yes|no")
WEATHER = Tool(
    name="weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
CLOCK = Tool(name="clock")


@pytest.fixture(scope="module")
def grammars(demo):
    return Grammars(demo)


@pytest.fixture(scope="module")
def json_demo(demo):
    """The demo, if it wrote its calls as JSON."""
    tokenizer = copy.copy(demo.tokenizer)
    tokenizer._tool_parser = json_tools.parse_tool_call
    return dataclasses.replace(demo, tokenizer=tokenizer)


def constraint(
    demo, grammars, *, grammar=YES_OR_NO, state=ANSWER, tools=(), choice=None, has_markup=True, tokens=(7,), **more
):
    prompt = Prompt(messages=(Message(role="user", content=(TextPart("Hi"),)),), tools=tools, **more)
    if choice is not None:
        prompt = msgspec.structs.replace(prompt, tool_choice=choice)
    rendered = Rendered(tokens, state, has_markup=has_markup, continues_text=False, tools=tuple({} for _ in tools))
    return constraint_of(GenerateRequest(id="a", prompt=prompt, grammar=grammar), rendered, demo, grammars)


def encoded(demo, text):
    return demo.tokenizer.encode(text, add_special_tokens=False)


def allows(mask, token) -> bool:
    return mask is None or bool(mask[token // 8] >> token % 8 & 1)


def goes(demo, constraint, text) -> bool:
    """Whether each token of the text may follow; the constraint is told them up to the first that may not."""
    for token in encoded(demo, text):
        if not allows(constraint.allowed(), token):
            return False
        constraint.accept(token)
    return True


def may_end(demo, constraint) -> bool:
    return allows(constraint.allowed(), min(demo.end_tokens))


def test_a_request_without_a_grammar_has_no_constraint(demo, grammars):
    assert constraint(demo, grammars, grammar=None) is None
    assert constraint(demo, grammars, grammar=None, tools=(WEATHER,)) is None


def test_the_answer_follows_the_grammar_and_only_then_may_end(demo, grammars):
    followed = constraint(demo, grammars)

    assert not may_end(demo, followed)
    assert not goes(demo, followed, "maybe")
    assert goes(demo, followed, "yes")
    assert may_end(demo, followed)
    assert not goes(demo, followed, " or no")


def test_every_end_token_ends_an_answer_and_nothing_but_an_end_follows_an_end(demo, grammars):
    followed = constraint(demo, grammars)
    goes(demo, followed, "yes")

    allowed = [all(allows(followed.allowed(), end) for end in demo.end_tokens)]
    followed.accept(min(demo.end_tokens))

    assert allowed == [True]
    assert not goes(demo, followed, "yes")
    assert may_end(demo, followed)


def test_a_thought_in_which_the_prompt_ends_is_free_and_the_grammar_begins_behind_it(demo, grammars):
    followed = constraint(demo, grammars, state=THOUGHT)

    assert followed.allowed() is None
    assert goes(demo, followed, "maybe { <|im_start|> anything")
    assert followed.allowed() is None
    assert goes(demo, followed, "</think>")
    assert not allows(followed.allowed(), encoded(demo, "<think>")[0])
    assert goes(demo, followed, "\n\nno")
    assert may_end(demo, followed)


def test_newlines_are_allowed_behind_a_thought_only(demo, grammars):
    behind, at_once = constraint(demo, grammars, state=THOUGHT), constraint(demo, grammars)
    goes(demo, behind, "</think>")

    assert goes(demo, behind, "\n")
    assert not goes(demo, at_once, "\n")


def test_a_model_that_may_think_opens_its_thought_instead_of_beginning_the_answer(demo, grammars):
    followed = constraint(demo, grammars)

    assert goes(demo, followed, "<think>")
    assert followed.allowed() is None
    assert goes(demo, followed, "hm</think>")
    assert not goes(demo, followed, "hm")
    assert goes(demo, followed, "yes")


def test_within_the_answer_no_thought_opens(demo, grammars):
    followed = constraint(demo, grammars, grammar=Grammar(kind="json_object"))
    goes(demo, followed, '{"a": "')

    assert not goes(demo, followed, "<think>")


@pytest.mark.parametrize("told", ["effort", "template", "text"])
def test_where_the_thought_is_over_or_unwanted_none_opens(demo, grammars, told):
    closed = tuple(encoded(demo, "<think>\n\n</think>\n\n"))
    given = {
        "effort": {"effort": "none"},
        "template": {"tokens": closed},
        "text": {"has_markup": False},
    }[told]

    assert not goes(demo, constraint(demo, grammars, **given), "<think>")


def test_where_tools_are_offered_a_call_may_stand_instead_and_is_free(demo, grammars):
    followed = constraint(demo, grammars, tools=(WEATHER,))
    without = constraint(demo, grammars, tools=(WEATHER,), has_markup=False)

    assert goes(demo, followed, '<tool_call>{"name": "weather"}</tool_call> and more')
    assert followed.allowed() is None
    assert goes(demo, constraint(demo, grammars, tools=(WEATHER,)), "yes")
    assert not goes(demo, without, "<tool_call>")
    assert not goes(demo, constraint(demo, grammars), "<tool_call>")


def test_a_call_inside_a_thought_leaves_the_rest_free(demo, grammars):
    followed = constraint(demo, grammars, state=THOUGHT, tools=(WEATHER,))

    assert goes(demo, followed, "hm <tool_call>{}</tool_call> text")
    assert followed.allowed() is None


def test_a_marker_of_several_tokens_is_written_to_its_end(demo, grammars):
    opening = "<|im_start|>thought"
    markers = {**demo.markup.markers, ANSWER: (Marker(opening, THOUGHT),)}
    model = dataclasses.replace(demo, markup=dataclasses.replace(demo.markup, think_start=opening, markers=markers))
    first, *rest = encoded(demo, opening)
    followed = constraint(model, grammars)

    assert allows(followed.allowed(), first)
    followed.accept(first)
    for token in rest:
        mask = followed.allowed()
        assert [i for i in range(len(mask) * 8) if allows(mask, i)] == [token]
        followed.accept(token)
    assert followed.allowed() is None


def test_a_token_that_was_not_allowed_fails_the_constraint(demo, grammars):
    followed = constraint(demo, grammars)

    with pytest.raises(ConstraintFailed, match="could not be followed"):
        followed.accept(encoded(demo, "maybe")[0])


def test_a_grammar_that_gets_too_complex_fails_the_constraint_instead_of_ending_the_answer(demo, grammars):
    grammar = Grammar(kind="json_schema", schema={"properties": {f"p{i}": {"type": "string"} for i in range(900)}})
    followed = constraint(demo, grammars, grammar=grammar)

    with pytest.raises(ConstraintFailed, match="2000"):
        goes(demo, followed, '{"p899": "a"}')


def test_a_grammar_of_which_no_mask_can_be_made_fails_the_constraint_instead_of_ending_the_answer(demo, grammars):
    grammar = Grammar(kind="regex", pattern="((((a{1,50}){1,50}){1,50}){1,50})")
    followed = constraint(demo, grammars, grammar=grammar)
    (letter,) = encoded(demo, "a")

    with pytest.raises(ConstraintFailed, match="too many expressions"):
        for _ in range(20):
            followed.allowed()
            followed.accept(letter)


REQUIRED = ToolChoice(mode="required")


def test_a_required_call_is_written_as_the_model_writes_it(json_demo, grammars):
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>'
    followed = constraint(json_demo, grammars, tools=(WEATHER, CLOCK), choice=REQUIRED, grammar=None)

    assert not may_end(json_demo, followed)
    assert not goes(json_demo, followed, "I will")
    assert goes(json_demo, followed, call)
    assert may_end(json_demo, followed)
    assert goes(json_demo, followed, '\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>')
    assert may_end(json_demo, followed)


@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>\n{"name": "other"',
        '<tool_call>\n{"name": "weather", "arguments": {}',
        '<tool_call>\n{"name": "weather", "arguments": {"city": 3',
        '<tool_call>\n{"name": "clock", "arguments": {"city": "Rome"}',
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call> text',
    ],
)
def test_another_call_is_refused(json_demo, grammars, call):
    clock = Tool(name="clock", parameters={"type": "object", "properties": {}, "additionalProperties": False})
    followed = constraint(json_demo, grammars, tools=(WEATHER, clock), choice=REQUIRED, grammar=None)

    assert not goes(json_demo, followed, call)


def test_a_named_tool_without_parallel_calls_is_called_once(json_demo, grammars):
    choice = ToolChoice(mode="named", name="clock", parallel=False)
    call = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    followed = constraint(json_demo, grammars, tools=(WEATHER, CLOCK), choice=choice, grammar=None)

    assert goes(json_demo, followed, call)
    assert may_end(json_demo, followed)
    assert not goes(json_demo, followed, "\n<tool_call>")


def test_thinking_before_a_required_call_is_free(json_demo, grammars):
    followed = constraint(json_demo, grammars, tools=(CLOCK,), choice=REQUIRED, grammar=None, state=THOUGHT)

    assert goes(json_demo, followed, "I will not call</think>\n\n")
    assert not goes(json_demo, followed, "text")
    assert goes(json_demo, followed, "<tool_call>")


def test_a_required_call_goes_before_the_answers_own_grammar(json_demo, grammars):
    followed = constraint(json_demo, grammars, tools=(CLOCK,), choice=REQUIRED)

    assert not goes(json_demo, followed, "yes")
    assert goes(json_demo, followed, "<tool_call>")


UNIQUE = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"]}


def test_a_strict_tool_whose_schema_cannot_be_compiled_is_refused(json_demo, grammars):
    with pytest.raises(InvalidRequest, match="uniqueItems") as refused:
        constraint(
            json_demo, grammars, tools=(Tool(name="f", parameters=UNIQUE, strict=True),), choice=REQUIRED, grammar=None
        )

    assert refused.value.param == "prompt.tools"


def test_another_tools_arguments_are_then_any_object_and_its_neighbours_stay_bound(json_demo, grammars):
    tools = (Tool(name="f", parameters=UNIQUE), WEATHER)

    def followed():
        return constraint(json_demo, grammars, tools=tools, choice=REQUIRED, grammar=None)

    assert goes(json_demo, followed(), '<tool_call>\n{"name": "f", "arguments": {"b": 1}}\n</tool_call>')
    assert not goes(json_demo, followed(), '<tool_call>\n{"name": "f", "arguments": [1]')
    assert not goes(json_demo, followed(), '<tool_call>\n{"name": "weather", "arguments": {}')


def test_references_in_a_tools_schema_are_read_from_its_root(json_demo, grammars):
    parameters = {
        "$defs": {"city": {"enum": ["Rome", "Oslo"]}},
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}},
        "required": ["city"],
    }
    tools = (Tool(name="f", parameters=parameters, strict=True),)

    def followed():
        return constraint(json_demo, grammars, tools=tools, choice=REQUIRED, grammar=None)

    assert goes(json_demo, followed(), '<tool_call>\n{"name": "f", "arguments": {"city": "Oslo"}}\n</tool_call>')
    assert not goes(json_demo, followed(), '<tool_call>\n{"name": "f", "arguments": {"city": "Paris"')


def test_where_the_models_way_of_calling_has_no_grammar_a_required_call_is_a_wish(json_demo, grammars):
    tokenizer = SimpleNamespace(tool_parser=lambda text, tools: {})
    model = dataclasses.replace(json_demo, tokenizer=tokenizer)

    assert constraint(model, grammars, tools=(CLOCK,), choice=REQUIRED, grammar=None) is None


def xml(name, *parameters):
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


NOTE = Tool(
    name="note",
    parameters={
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "colour": {"enum": ["red", "green"]},
            "times": {"type": "integer", "maximum": 9},
            "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
            "loud": {"type": "boolean"},
        },
        "required": ["text"],
    },
)


@pytest.mark.parametrize(
    ("call", "is_one"),
    [
        (xml("note", ("text", "Some <b>text</b>,\n</ not its end")), True),
        (
            xml("note", ("text", "a"), ("colour", "red"), ("times", "7"), ("points", '[{"x": 1.5}]'), ("loud", "true")),
            True,
        ),
        (xml("note", ("text", ""), ("loud", "false")), True),
        (xml("note"), False),
        (xml("note", ("colour", "red")), False),
        (xml("note", ("text", "a"), ("colour", "blue")), False),
        (xml("note", ("text", "a"), ("times", "10")), False),
        (xml("note", ("text", "a"), ("times", "many")), False),
        (xml("note", ("text", "a"), ("points", '[{"y": 1}]')), False),
        (xml("note", ("text", "a"), ("loud", "True")), False),
        (xml("note", ("text", "a"), ("text", "b")), False),
        (xml("clock"), True),
        (xml("clock", ("text", "a")), False),
        (xml("any"), True),
        (xml("any", ("first", "1"), ("second", "2")), True),
        (xml("other"), False),
    ],
)
def test_a_required_call_in_xml_has_the_tools_parameters(demo, grammars, call, is_one):
    tools = (NOTE, CLOCK, Tool(name="any", parameters={"type": "object"}))
    followed = constraint(demo, grammars, tools=tools, choice=REQUIRED, grammar=None)

    assert (goes(demo, followed, call) and may_end(demo, followed)) == is_one
