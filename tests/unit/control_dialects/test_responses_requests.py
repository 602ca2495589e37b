"""Requests of /v1/responses as real clients send them: taken, or refused with a 400 that names the field."""

import json
import logging
from typing import Any

import pytest

from control.dialects.responses import parse_responses
from control.errors import InvalidRequest, UnknownResponse
from engine import wire
from tests.unit.control_dialects.responses_stage import PIXEL, SHELL, codex_body, own_history, parsed, text_of


def messages_of(*items: Any) -> tuple[wire.Message, ...]:
    return parsed(input=list(items)).generate.prompt.messages or ()


def test_a_second_turn_of_codex_is_taken_whole():
    exchange = parse_responses(json.dumps(codex_body()).encode(), "r1", history=own_history())

    messages = exchange.generate.prompt.messages or ()
    assert [message.role for message in messages] == [
        *("system", "system", "user", "user"),
        *("assistant", "tool", "assistant", "tool", "assistant", "tool"),
    ]
    assert (exchange.is_stream, exchange.generate.prompt.effort) == (True, "high")
    assert [tool.name for tool in exchange.generate.prompt.tools] == [
        "shell",
        "multi_agent_v1__spawn_agent",
        "apply_patch",
    ]


def test_reasoning_and_calls_of_one_answer_are_one_message():
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    first = {"type": "function_call", "call_id": "a", "name": "shell", "arguments": "{}"}

    [message] = messages_of(thought, said, first, {**first, "call_id": "b"})

    assert (message.reasoning, text_of(message)) == ("Hm.", "I look.")
    assert [call.id for call in message.tool_calls] == ["a", "b"]


@pytest.mark.parametrize(
    "item",
    [
        {"summary": [{"type": "summary_text", "text": "Hm."}]},
        {"summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"content": [{"type": "reasoning_text", "text": "Hm."}], "encrypted_content": "x"},
        {"summary": None, "content": "Hm."},
    ],
)
def test_what_the_model_thought_comes_back_from_wherever_it_stands(item: dict[str, Any]):
    [message] = messages_of({"type": "reasoning", **item}, {"role": "assistant", "content": "Yes."})

    assert (message.reasoning, text_of(message)) == ("Hm.", "Yes.")


@pytest.mark.parametrize("item", [{}, {"summary": None, "content": None}, {"summary": [], "content": []}])
def test_reasoning_without_text_is_no_message(item: dict[str, Any]):
    [message] = messages_of({"type": "reasoning", **item}, {"role": "user", "content": "Go on."})

    assert message.role == "user"


def test_two_messages_in_a_row_stay_two():
    said = {"role": "assistant", "content": "One."}

    assert len(messages_of(said, said)) == 2


def test_what_was_said_after_a_call_stays_before_its_output():
    call = {"type": "function_call", "call_id": "a", "name": "shell", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "ok"}

    assistant, tool = messages_of(call, {"role": "assistant", "content": "There."}, output)

    assert (text_of(assistant), tool.role) == ("There.", "tool")


@pytest.mark.parametrize("content", ["Hi", [{"type": "output_text", "text": "Hi"}], ["Hi"]])
@pytest.mark.parametrize("kind", [{}, {"type": "message"}])
@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_messages_come_in_many_forms(role: str, kind: dict[str, str], content: Any):
    [message] = messages_of({**kind, "role": role, "content": content})

    assert message == wire.Message(
        role="system" if role == "developer" else role,
        content=(wire.TextPart(text="Hi"),),
    )


def test_a_refusal_is_text():
    [message] = messages_of({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]})

    assert text_of(message) == "No."


def test_instructions_come_first():
    exchange = parsed(instructions="Be brief.", input=[{"role": "developer", "content": "Be kind."}])

    assert [text_of(each) for each in exchange.generate.prompt.messages or ()] == ["Be brief.", "Be kind."]


@pytest.mark.parametrize("arguments", ["{bad", '{"value": ', "[1]", '"text"'])
def test_arguments_that_are_no_object_stay_as_text(arguments: str):
    [message] = messages_of({"type": "function_call", "call_id": "a", "name": "shell", "arguments": arguments})

    assert message.tool_calls == (wire.ToolCall(id="a", name="shell", arguments_raw=arguments),)


@pytest.mark.parametrize("arguments", ["", None, "  "])
def test_no_arguments_are_an_empty_object(arguments: str | None):
    [message] = messages_of({"type": "function_call", "id": "fc", "name": "shell", "arguments": arguments})

    assert message.tool_calls == (wire.ToolCall(id="fc", name="shell", arguments_raw="{}", arguments={}),)


def test_an_image_in_the_output_of_a_tool_is_said_beside_its_text():
    output = [{"type": "input_text", "text": "See:"}, {"type": "input_image", "image_url": PIXEL, "detail": "high"}]

    [message] = messages_of({"type": "function_call_output", "call_id": "a", "output": output})

    assert (message.role, message.tool_call_id) == ("tool", "a")
    assert [part.text for part in message.content if isinstance(part, wire.TextPart)] == [
        "See:",
        "[image: this model takes no images]",
    ]


@pytest.mark.parametrize(
    ("output", "text"), [("ok", "ok"), (None, ""), ([], ""), ({"exit": 0}, '{"exit":0}'), (7, "7")]
)
def test_the_output_of_a_tool_is_text_in_any_form(output: Any, text: str):
    [message] = messages_of({"type": "function_call_output", "call_id": "a", "output": output})

    assert text_of(message) == text


def test_a_shell_call_of_an_older_codex_is_history_like_any_call():
    action = {"type": "exec", "command": ["ls"]}
    items = [
        {"type": "local_shell_call", "call_id": "a", "action": action},
        {"type": "local_shell_call_output", "id": "a", "output": "README.md"},
    ]

    assistant, tool = messages_of(*items)

    assert (assistant.tool_calls[0].name, assistant.tool_calls[0].arguments) == ("local_shell", action)
    assert (tool.tool_call_id, text_of(tool)) == ("a", "README.md")


def test_items_and_parts_of_unknown_types_are_left_out_and_only_their_type_is_logged(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)

    [message] = messages_of(
        {"type": "web_search_call", "id": "ws", "action": {"query": "secret"}},
        {"type": "compaction", "encrypted_content": "secret"},
        {"role": "user", "content": [{"type": "input_smell", "data": "secret"}, {"type": "input_text", "text": "Hi"}]},
    )

    assert text_of(message) == "Hi"
    assert "web_search_call" in caplog.text and "input_smell" in caplog.text
    assert "secret" not in caplog.text


def test_a_file_of_text_is_shown_below_its_name():
    part = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}

    [message] = messages_of({"role": "user", "content": [part]})

    assert text_of(message) == "a.txt:\nhello"


def test_a_json_schema_becomes_a_grammar():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}

    exchange = parsed(text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}})

    assert exchange.generate.grammar == wire.Grammar(kind="json_schema", schema=schema)


@pytest.mark.parametrize(
    ("text", "grammar"),
    [
        (None, None),
        ({"format": None, "verbosity": "low"}, None),
        ({"format": {"type": "text"}}, None),
        ({"format": {"type": "json_object"}}, wire.Grammar(kind="json_object")),
    ],
)
def test_other_formats_are_known(text: Any, grammar: wire.Grammar | None):
    assert parsed(text=text).generate.grammar == grammar


def test_limits_and_sampling_are_handed_on():
    exchange = parsed(max_output_tokens=50, temperature=0.5, top_p=0.9, top_logprobs=3, reasoning={"effort": "xhigh"})

    assert exchange.generate.max_tokens == 50
    assert exchange.generate.sampling == wire.Sampling(temperature=0.5, top_p=0.9, logprobs=3)
    assert exchange.generate.prompt.effort == "xhigh"


def test_probabilities_are_asked_for_by_include():
    assert parsed(include=["message.output_text.logprobs"]).generate.sampling.logprobs == 0
    assert parsed(top_logprobs=0).generate.sampling.logprobs is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ...}, "model"),
        ({"model": None}, "model"),
        ({"input": ...}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]}, "input[0].content[0].text"),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]},
            "input[0].content[0].image_url",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].file_id",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x"}]}]},
            "input[0].content[0].file_url",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "/w=="}]}]},
            "input[0].content[0].file_data",
        ),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "many"}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"text": {"format": "json"}}, "text.format"),
        ({"tools": [{"name": "x"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "x", "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str):
    with pytest.raises(InvalidRequest) as refused:
        parsed(**fields)

    assert refused.value.param == param


def test_an_unknown_previous_response_is_a_404():
    with pytest.raises(UnknownResponse) as refused:
        parsed(previous_response_id="resp_x")

    assert (refused.value.status, refused.value.code) == (404, "previous_response_not_found")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"null", b'{"model":"a","input":' + b"[" * 5000])
def test_what_is_no_request_is_refused(body: bytes):
    with pytest.raises(InvalidRequest):
        parse_responses(body, "r1", history=own_history())


def test_what_is_nested_too_deeply_is_refused():
    deep: Any = {}
    for _ in range(150):
        deep = {"a": deep}

    for fields in ({"metadata": deep}, {"tools": [{**SHELL, "parameters": deep}]}, {"reasoning": deep}):
        with pytest.raises(InvalidRequest):
            parsed(**fields)


@pytest.mark.parametrize(
    ("engine_field", "field"),
    [
        ("prompt.messages[0].content[0]", "instructions"),
        ("prompt.messages[1]", "input[0]"),
        ("prompt.messages[2].content[1]", "input[2]"),
        ("prompt.messages[9]", "input"),
        ("prompt.tools[1].parameters", "tools[2].parameters"),
        ("prompt.effort", "reasoning.effort"),
        ("prompt.tool_choice.name", "tool_choice.name"),
        ("sampling.temperature", "temperature"),
        ("sampling.logprobs", "top_logprobs"),
        ("max_tokens", "max_output_tokens"),
        ("grammar.schema", "text.format.schema"),
        ("prompt", "input"),
        ("id", None),
    ],
)
def test_an_error_of_the_engine_names_the_field_of_the_client(engine_field: str, field: str | None):
    exchange = parsed(
        instructions="Be brief.",
        input=[{"role": "user", "content": "a"}, {"type": "web_search_call"}, {"role": "user", "content": "b"}],
        tools=[SHELL, {"type": "web_search"}, {**SHELL, "name": "other"}],
    )

    assert exchange.field(engine_field) == field
