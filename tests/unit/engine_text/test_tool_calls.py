"""The text of a call into name and arguments, through mlx-lm's own parsers."""

import json

import pytest
from mlx_lm.tool_parsers import json_tools, kimi_k2, mistral, qwen3_coder

from engine.text.markup import ANSWER, ANSWER_AFTER_CALL, CALL, CALL_IN_THOUGHT, THOUGHT, Marker, Markup
from engine.text.tool_calls import ParsedCall, new_call_id, parse_calls

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}}]


@pytest.mark.parametrize(
    ("parser", "text", "arguments"),
    [
        (json_tools, '{"name": "f", "arguments": {"n": 1}}', {"n": 1}),
        (json_tools, '{"name": "f", "arguments": "{\\"n\\": 1}"}', {"n": 1}),
        (json_tools, '{"name": "f", "parameters": {"n": 1}}', {"n": 1}),
        (json_tools, '{"name": "f"}', {}),
        (json_tools, '{"name": "f", "arguments": ""}', {}),
        (qwen3_coder, "<function=f>\n<parameter=n>\n1\n</parameter>\n</function>", {"n": 1}),
        (qwen3_coder, "<function=f>\n</function>", {}),
        (mistral, 'f[ARGS]{"n": 1}', {"n": 1}),
    ],
)
def test_a_call_is_its_name_and_its_arguments_as_json(parser, text, arguments):
    (call,) = parse_calls(text, parser.parse_tool_call, TOOLS)

    assert call.name == "f"
    assert json.loads(call.arguments) == arguments


def test_one_section_may_hold_several_calls():
    section = "".join(
        f"<|tool_call_begin|>functions.f:{i}<|tool_call_argument_begin|>{{}}<|tool_call_end|>" for i in range(2)
    )

    assert parse_calls(section, kimi_k2.parse_tool_call, TOOLS) == (ParsedCall("f", "{}"), ParsedCall("f", "{}"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1]", "null", '{"arguments": {}}', '{"name": 1}', '{"name": ""}'),
        *('{"name": "f", "arguments": "{bad"}', '{"name": "f", "arguments": [1]}'),
        '{"name": "f", "arguments": {"n": NaN}}',
        *('{"name": "f", "arguments": {"n": "\\ud83d"}}', '{"name": "f", "arguments": {"\\udc00": 1}}'),
        *('{"name": "f\\ud83d"}', '{"name": "f", "arguments": "{\\"n\\": \\"\\\\ud83d\\"}"}'),
    ],
)
def test_what_is_no_call_is_none(text):
    assert parse_calls(text, json_tools.parse_tool_call, TOOLS) == ()


def test_a_whole_surrogate_pair_is_text():
    (call,) = parse_calls('{"name": "f", "arguments": {"n": "\\ud83d\\ude42"}}', json_tools.parse_tool_call, TOOLS)

    assert call.arguments == '{"n": "🙂"}'


def test_a_value_that_its_type_forbids_makes_it_no_call():
    text = "<function=f>\n<parameter=n>\nmany\n</parameter>\n</function>"

    assert parse_calls(text, qwen3_coder.parse_tool_call, TOOLS) == ()


def test_ids_are_call_and_24_hexadecimal_digits():
    assert len({new_call_id() for _ in range(100)}) == 100
    assert len(new_call_id()) == len("call_") + 24


def test_the_markers_of_a_model_come_from_its_tokenizer(demo):
    markup = demo.markup

    assert Marker("<think>", THOUGHT) in markup.markers[ANSWER]
    assert Marker("<tool_call>", CALL) in markup.markers[ANSWER]
    assert markup.markers[CALL] == (Marker("</tool_call>", ANSWER),)
    assert markup.opens_in == ANSWER


def test_a_call_in_a_thought_leads_to_an_answer_in_which_the_thought_may_still_be_closed(demo):
    markers = demo.markup.markers

    assert markers[CALL_IN_THOUGHT] == (Marker("</tool_call>", ANSWER_AFTER_CALL), Marker("</think>", ANSWER))
    assert set(markers[ANSWER_AFTER_CALL]) == {
        Marker("<think>", THOUGHT),
        Marker("<tool_call>", CALL_IN_THOUGHT),
        Marker("</think>", ANSWER),
    }


def test_without_tools_no_marker_leads_into_a_call(demo):
    markup = demo.markup.without_calls()

    assert all(marker.next_state in (ANSWER, THOUGHT) for markers in markup.markers.values() for marker in markers)


class HeaderedTokenizer:
    """What mlx-lm's wrapper says of a model whose messages have headers (muse_spark)."""

    has_thinking = False
    has_tool_calling = True
    think_start = think_end = None
    tool_call_start, tool_call_end = "<calls>", "</calls>"
    structural_markers = ()
    response_initial_state = "header"
    response_transitions = {  # noqa: RUF012  # a stand-in for a property
        "header": [("to=self|", THOUGHT), ("to=user|", ANSWER), ("<calls>", CALL)],
        THOUGHT: [("<eom>", "header")],
        ANSWER: [("<eom>", "header")],
    }


def test_a_response_format_decides_where_calls_begin_and_in_which_state_a_message_opens():
    markup = Markup.of(HeaderedTokenizer())

    assert markup.opens_in == "header"
    assert Marker("<calls>", CALL) in markup.markers["header"]
    assert Marker("<calls>", CALL) not in markup.markers[ANSWER]
