"""Tools, formats and messages in the forms that clients really send: understood, left out with a line in the log."""

import logging

import msgspec
import pytest

from control.dialects.chat import parse_chat
from control.errors import InvalidRequest
from engine import wire

USER = {"role": "user", "content": "hi"}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
WEB = {"type": "web_search", "external_web_access": True}
PATCH = {"type": "custom", "custom": {"name": "apply_patch", "description": "Changes files."}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def parse(messages=(USER,), **fields):
    return parse_chat(msgspec.json.encode({"model": "demo", "messages": list(messages), **fields}), "id")


def prompt(messages=(USER,), **fields) -> wire.Prompt:
    return parse(messages, **fields).generate.prompt


def text(*texts) -> tuple[wire.TextPart, ...]:
    return tuple(wire.TextPart(text=each) for each in texts)


def calling(*calls, **fields) -> dict:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def made(name, arguments="{}", **fields) -> dict:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}


def result(content, **fields) -> dict:
    return {"role": "tool", "content": content, **fields}


# --- response_format ---


@pytest.mark.parametrize(
    ("response_format", "grammar"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, wire.Grammar(kind="json_object")),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            wire.Grammar(kind="json_schema", schema=SCHEMA),
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": "true"}},
            wire.Grammar(kind="json_schema", schema=SCHEMA),
        ),
        ({"type": "json_schema", "json_schema": {"schema": True}}, wire.Grammar(kind="json_schema", schema=True)),
        ({"type": "json_schema", "schema": SCHEMA}, wire.Grammar(kind="json_schema", schema=SCHEMA)),
        ({"type": "json_object", "schema": SCHEMA}, wire.Grammar(kind="json_schema", schema=SCHEMA)),
        ({"type": "json_object", "schema": None}, wire.Grammar(kind="json_object")),
    ],
)
def test_the_format_of_the_answer_becomes_a_grammar(response_format, grammar):
    assert parse(response_format=response_format).generate.grammar == grammar


@pytest.mark.parametrize("schema", [None, "object", 3, [SCHEMA]])
def test_what_is_no_schema_is_refused_not_ignored(schema):
    with pytest.raises(InvalidRequest) as caught:
        parse(response_format={"type": "json_schema", "json_schema": {"schema": schema}})

    assert caught.value.param == "response_format.json_schema.schema"


# --- tools ---


def test_tools_of_an_unknown_type_are_left_out_with_one_line_in_the_log(caplog):
    with caplog.at_level(logging.INFO):
        asked = prompt(tools=[WEB, LOOK, WEB, {"type": "secret words"}])

    assert [tool.name for tool in asked.tools] == ["look"]
    assert [record.message for record in caplog.records] == [
        "left out of the request id=id kinds=tool:?,tool:web_search"
    ]


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "web_search"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "web_search"}]}},
    ],
)
def test_choosing_a_tool_that_was_left_out_is_refused(choice):
    with pytest.raises(InvalidRequest) as caught:
        prompt(tools=[WEB], tool_choice=choice)

    assert caught.value.param == "tool_choice"


def test_a_custom_tool_is_a_function_with_one_text():
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a+/"}}

    asked = prompt(tools=[{"type": "custom", "custom": {**PATCH["custom"], "format": form}}])

    [tool] = asked.tools
    assert tool.name == "apply_patch"
    assert tool.description == "Changes files.\n\nThe input follows this lark grammar:\nstart: /a+/"
    assert tool.parameters["required"] == ["input"]
    assert tool.parameters["properties"]["input"]["type"] == "string"


def test_a_custom_tool_can_be_chosen_by_name():
    choice = {"type": "custom", "custom": {"name": "apply_patch"}}

    assert prompt(tools=[LOOK, PATCH], tool_choice=choice).tool_choice == wire.ToolChoice(
        mode="named", name="apply_patch"
    )


def test_custom_and_function_tools_can_be_allowed_together():
    allowed = [
        {"type": "custom", "custom": {"name": "apply_patch"}},
        {"type": "function", "function": {"name": "look"}},
    ]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}}
    other = {"type": "function", "function": {"name": "other"}}

    assert [tool.name for tool in prompt(tools=[LOOK, other, PATCH], tool_choice=choice).tools] == [
        "look",
        "apply_patch",
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, wire.ToolChoice(parallel=False)),
        ("auto", wire.ToolChoice(parallel=False)),
        ("none", wire.ToolChoice(mode="none", parallel=False)),
        ({"name": "look"}, wire.ToolChoice(mode="named", name="look", parallel=False)),
    ],
)
def test_functions_from_before_there_were_tools_are_tools(choice, expected):
    asked = prompt(functions=[LOOK["function"]], function_call=choice)

    assert asked.tools == (wire.Tool(name="look", parameters={"type": "object"}),)
    assert asked.tool_choice == expected


# --- messages ---


def test_a_function_call_and_its_result_belong_together():
    call = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"at":1}'}}

    [_, said, answered] = prompt([USER, call, {"role": "function", "name": "look", "content": "door"}]).messages

    assert said.tool_calls == (
        wire.ToolCall(id="call_1_0", name="look", arguments_raw='{"at":1}', arguments={"at": 1}),
    )
    assert answered == wire.Message(role="tool", content=text("door"), tool_call_id="call_1_0", name="look")


def test_an_earlier_custom_call_is_the_call_that_the_model_made():
    call = {"id": "c", "type": "custom", "custom": {"name": "apply_patch", "input": 'say "é"\n'}}

    [message] = prompt([calling(call)]).messages

    assert message.tool_calls == (
        wire.ToolCall(
            id="c",
            name="apply_patch",
            arguments_raw='{"input":"say \\"é\\"\\n"}',
            arguments={"input": 'say "é"\n'},
        ),
    )


def test_tool_ids_may_repeat_and_each_result_has_the_name_of_its_call():
    messages = prompt(
        [
            calling(made("look", id="call_0")),
            result("a", tool_call_id="call_0"),
            calling(made("wait", id="call_0")),
            result("b", tool_call_id="call_0"),
        ]
    ).messages

    assert [(each.name, each.tool_call_id) for each in messages if each.role == "tool"] == [
        ("look", "call_0"),
        ("wait", "call_0"),
    ]


def test_results_without_ids_belong_to_the_calls_in_order():
    messages = prompt(
        [
            calling(made("look", id="a"), made("wait", id="b"), made("go", id="c")),
            result("2", tool_call_id="b"),
            result("1", tool_call_id=""),
            result("3"),
            result("one too many"),
        ]
    ).messages

    assert [(each.tool_call_id, each.name) for each in messages[1:]] == [
        ("b", "wait"),
        ("a", "look"),
        ("c", "go"),
        (None, None),
    ]


def test_a_tool_call_of_an_unknown_type_is_left_out(caplog):
    with caplog.at_level(logging.INFO):
        [message] = prompt(
            [calling({"id": "x", "type": "web_search", "web_search": {}}, made("look", id="a"))]
        ).messages

    assert [call.name for call in message.tool_calls] == ["look"]
    assert "tool_call:web_search" in caplog.text


def test_an_earlier_call_without_what_was_called_keeps_its_result():
    for call in ({"type": "custom"}, {"type": "function"}, {}, {"function": {"name": None}}, {"custom": {}}):
        said, answered = prompt([calling({"id": "a", **call}, None), result("door", tool_call_id="a")]).messages

        assert [made.name for made in said.tool_calls] == [answered.name] == ["unknown"]


@pytest.mark.parametrize(("arguments", "raw"), [([1], "[1]"), (3, "3"), (False, "{}"), ("  \n", "{}")])
def test_arguments_that_are_no_object_stay_text(arguments, raw):
    [message] = prompt([calling(made("look", arguments, id="a"))]).messages

    assert message.tool_calls[0].arguments_raw == raw


def test_an_image_in_a_tool_message_is_said_between_its_texts():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}

    [message] = prompt([result(["see", image, {"type": "text", "text": "there"}], tool_call_id="a")]).messages

    assert message.content == text("see", "[image: this model takes no images]", "there")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ([{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "x"}], text("a")),
        ([{"type": "text", "text": None}, None], ()),
        ([{"text": "untyped"}], text("untyped")),
    ],
)
def test_a_part_that_a_model_can_go_on_without_is_left_out(content, parts):
    assert prompt([{"role": "assistant", "content": content}]).messages[0].content == parts


@pytest.mark.parametrize("kind", ["file", "input_audio", "video_url"])
def test_a_part_that_the_question_is_about_is_refused_by_name(kind):
    with pytest.raises(InvalidRequest) as caught:
        prompt([USER, {"role": "user", "content": ["x", {"type": kind, kind: {}}]}])

    assert caught.value.param == "messages[1].content[1].type"


def test_a_refusal_is_what_the_assistant_said():
    assert prompt([{"role": "assistant", "content": None, "refusal": "no"}]).messages[0].content == text("no")


def test_names_of_people_are_handed_on():
    assert prompt([{**USER, "name": "ann"}, {**USER, "name": "bob"}]).messages == (
        wire.Message(role="user", content=text("hi"), name="ann"),
        wire.Message(role="user", content=text("hi"), name="bob"),
    )


def test_a_secret_in_the_place_of_a_type_is_not_logged(caplog):
    with caplog.at_level(logging.INFO):
        prompt([{"role": "user", "content": [{"type": "my password is 1234"}]}])

    assert "password" not in caplog.text
    assert "part:?" in caplog.text


def test_a_request_of_unknown_types_only_does_not_fill_the_log(caplog):
    with caplog.at_level(logging.INFO):
        prompt([{"role": "user", "content": [{"type": f"kind_{n}"} for n in range(1000)]}])

    [record] = caplog.records
    assert len(record.message) < 2000
