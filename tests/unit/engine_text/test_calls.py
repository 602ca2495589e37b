"""Tool calls that are read as they are written: what comes when, what is a call, and what becomes of one gone wrong."""

import json

import pytest

from engine.request import Finish, SampledToken
from engine.text.markup import THOUGHT
from engine.wire import ToolCallBegin, ToolCallEnd
from tests.unit.engine_text.calls_by_hand import (
    JSON,
    MISTRAL,
    MISTRAL_MARKUP,
    TOOLS,
    XML,
    arguments,
    function,
    play,
    tagged,
)
from tests.unit.engine_text.outputs import Played, cut, make_output

# --- As it is written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parser", "pieces", "expected"),
    [
        (
            JSON,
            ['<tool_call>{"name": "wri', 'te", ', '"arguments": {', '"text": "a', "bc", '"}', "}", "</tool_call>"],
            [[], ["write"], ["{"], ['"text": "a'], ["bc"], ['"}'], [], ["end"]],
        ),
        (
            XML,
            ["<tool_call><function=wri", "te>\n<para", "meter=text>", "\nab", "c\n", "d\n</parameter>", "</function>"],
            [[], ["write"], ['{"text": '], ['"ab'], ["c"], ['\\nd"'], ["}", "end"]],
        ),
        (
            XML,
            ["<tool_call><function=write><parameter=count>", "4", "2", "</parameter>"],
            [["write", '{"count": '], [], [], ["42"]],
        ),
        (
            MISTRAL,
            ["[TOOL_CALLS]wri", "te[AR", 'GS]{"te', 'xt": 1', "2}", "write[ARGS]", "{}"],
            [[], [], ["write", '{"te'], ['xt": '], ["12}", "end"], ["write"], ["{}", "end"]],
        ),
    ],
)
def test_each_token_of_a_call_gives_out_what_is_certain(parser, pieces, expected):
    more = {"markup": MISTRAL_MARKUP} if parser is MISTRAL else {}
    output = make_output(pieces, parser=parser, tools=TOOLS, **more)

    found = [[_shown(event) for event in output.push(SampledToken(token))] for token in range(len(pieces))]

    assert found == expected


def _shown(event):
    if isinstance(event, ToolCallEnd):
        return "end"
    return event.name if isinstance(event, ToolCallBegin) else event.arguments


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "write", "arguments": {"text": "a"}}',
        '{"arguments": {"text": "a"}, "name": "write"}',
        '{"id": 7, "name": "write", "parameters": {"text": "a"}, "type": "function"}',
        '{"name": "write", "arguments": "{\\"text\\": \\"a\\"}"}',
        '[{"name": "write", "arguments": {"text": "a"}}]',
    ],
)
def test_the_ways_in_which_models_write_calls_in_json(body):
    assert arguments(play(tagged(body), range(400), parser=JSON)) == [("write", {"text": "a"})]


@pytest.mark.parametrize(
    "body",
    ['{"name": "write"}', *(f'{{"name": "write", "arguments": {none}}}' for none in ("null", '""', '" "', "{}"))],
)
def test_a_call_without_arguments_has_none(body):
    assert play(tagged(body), range(400), parser=JSON).calls == [("call_0", "write", "{}")]


VALUES = {
    "text": [
        *(("null", None), ("NULL", None), ("nullable", "nullable"), ("nul", "nul"), ("", ""), ("\n", "\n")),
        *(("\n a \n", "\n a \n"), ('{"a": 1}', '{"a": 1}'), ("</func", "</func"), ('say "\\n"', 'say "\\n"')),
        *(("a</function>b", "a</function>b"), ("<parameter=x>", "<parameter=x>")),
    ],
    "unknown": [("42", "42"), ("null", None)],
    "all": [("x", "x")],
    "count": [("42", 42), ("many", "many"), ("", "")],
    "size": [("1.5", 1.5), ("inf", "inf")],
    "force": [("True", True), ("no", False)],
    "list": [('[1, "a"]', [1, "a"]), ("[1, 'a']", [1, "a"])],
    "map": [
        *(('{"a": {"b": null}}', {"a": {"b": None}}), ("{bad", "{bad"), ('{"a": NaN}', '{"a": NaN}')),
        ('{"a": "\\ud83d"}', '{"a": "\\ud83d"}'),
    ],
    "maybe": [("42", 42), ("null", None)],
    "any": [("[1]", [1]), ("1", "1")],
}


@pytest.mark.parametrize(("key", "written", "value"), [(key, *case) for key, cases in VALUES.items() for case in cases])
def test_values_in_xml_have_the_type_of_their_schema_or_are_text(key, written, value):
    text = tagged(function("write", (key, written)))

    assert arguments(play(text, parser=XML)) == [("write", {key: value})]
    assert arguments(play(text, range(400), parser=XML)) == [("write", {key: value})]


def test_a_schema_without_sense_makes_every_value_text():
    tools = [{"type": "function", "function": {"name": "write", "parameters": {"properties": ["count"]}}}]

    played = Played(cut(tagged(function("write", ("count", "42"))), range(99)), parser=XML, tools=tools)

    assert arguments(played) == [("write", {"count": "42"})]


def test_a_tool_that_was_not_offered_is_called_all_the_same():
    assert arguments(play(tagged(function("other", ("a", "1"))), parser=XML)) == [("other", {"a": "1"})]


def test_a_marker_within_an_argument_is_part_of_it():
    written = "a</tool_call>b</think>c"

    in_json = play(tagged(json.dumps({"name": "write", "arguments": {"text": written}})), range(99), parser=JSON)
    in_xml = play(tagged(function("write", ("text", written))), range(99), parser=XML)

    assert arguments(in_json) == arguments(in_xml) == [("write", {"text": written})]
    assert (in_json.text, in_xml.text) == ("", "")


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (JSON, tagged('{"name": "a", "arguments": {}}', '{"name": "b", "arguments": {}}')),
        (JSON, tagged('{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}')),
        (XML, tagged(function("a"), function("b"))),
        (XML, tagged(function("a") + "\n" + function("b"))),
        (MISTRAL, "[TOOL_CALLS]a[ARGS]{}[TOOL_CALLS]b[ARGS]{}"),
        (MISTRAL, '[TOOL_CALLS][{"name": "a"}, {"name": "b"}]'),
    ],
)
def test_several_calls_are_counted_and_one_is_enough_for_a_client_that_wants_one(parser, text):
    more = {"markup": MISTRAL_MARKUP} if parser is MISTRAL else {}

    for at in ((), range(200)):
        several = play(text + "\n", at, parser=parser, **more)
        one = play(text + "\n", at, parser=parser, parallel=False, **more)

        assert several.calls == [("call_0", "a", "{}"), ("call_1", "b", "{}")]
        assert one.calls == [("call_0", "a", "{}")]
        assert (one.finish, one.text, several.text) == (Finish("tool_calls"), "", "")


def test_a_call_in_a_thought_ends_the_thought():
    played = play("hm\n" + tagged(function("write", ("text", "a"))) + "</think>ok", parser=XML, state=THOUGHT)

    assert (played.thought, played.text) == ("hm", "ok")
    assert played.order == ["ReasoningDelta", "ToolCallBegin", "ToolCallDelta", "ToolCallEnd", "TextDelta"]


def test_a_thought_about_a_call_is_none():
    played = play(
        'as in <tool_call>{"name": "write", "arguments": {...}}</tool_call></think>ok', parser=JSON, state=THOUGHT
    )

    assert played.thought == 'as in <tool_call>{"name": "write", "arguments": {...}}</tool_call>'
    assert (played.text, played.calls) == ("ok", [])


# --- What goes wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parser", "body"),
    [
        (JSON, "{bad"),
        (JSON, '{"name": 1}'),
        (JSON, '{"name": ""}'),
        (JSON, '{"arguments": {}}'),
        (JSON, ""),
        (XML, "<function=>"),
        (XML, "<functio"),
        (XML, '{"name": "write"}'),
        (MISTRAL, "no call"),
        (MISTRAL, "[1]"),
    ],
)
def test_what_goes_wrong_before_the_name_is_known_is_text(parser, body):
    text = f"[TOOL_CALLS]{body}" if parser is MISTRAL else f"<tool_call>{body}</tool_call>"
    more = {"markup": MISTRAL_MARKUP} if parser is MISTRAL else {}

    for at in ((), range(99)):
        played = play(text, at, parser=parser, **more)

        assert (played.text, played.calls, played.finish) == (text, [], Finish("stop"))


@pytest.mark.parametrize(
    ("parser", "body", "begun"),
    [
        (JSON, '{"name": "write", bad', ""),
        (JSON, '{"name": "write", "arguments": {"text": True}}', '{"text": '),
        (JSON, '{"name": "write", "arguments": {"text": "say "hi""}}', '{"text": "say "'),
        (JSON, '{"name": "write", "arguments": {"text": "a"', '{"text": "a"'),
        (JSON, '{"name": "write", "arguments": "{bad"}', "{"),
        (XML, "<function=write><parameter=text", ""),
    ],
)
def test_what_goes_wrong_later_is_a_call_that_ends_unfinished_and_is_not_shown_as_text(parser, body, begun):
    for at in ((), range(99)):
        played = play(f"<tool_call>{body}</tool_call>ok", at, parser=parser)

        assert played.calls == [("call_0", "write", "{}" if parser is XML else begun)]
        assert played.order[-2:] == ["ToolCallEnd", "TextDelta"]
        assert (played.text, played.finish) == ("ok", Finish("tool_calls"))


def test_junk_behind_a_call_is_dropped():
    played = play(tagged('{"name": "write", "arguments": {}} and so on'), parser=JSON)

    assert (played.calls, played.text) == ([("call_0", "write", "{}")], "")


def test_a_function_whose_end_is_missing_is_completed_but_a_value_is_not():
    no_function_end = play(tagged(function("write", ("text", "a"), end="")), parser=XML)
    no_parameter_end = play("<tool_call><function=write><parameter=text>half a file</tool_call>", parser=XML)

    assert arguments(no_function_end) == [("write", {"text": "a"})]
    assert no_parameter_end.calls == [("call_0", "write", '{"text": "half a file</tool_call>')]


def test_other_values_than_objects_are_passed_on_as_they_are():
    played = play(tagged('{"name": "write", "arguments": [1, 2]}'), range(99), parser=JSON)

    assert played.calls == [("call_0", "write", "[1, 2]")]
