"""What a Messages request becomes: the whole body of Claude Code, fields beside the messages, and refusals by name."""

import logging
from typing import Any

import pytest

from control.dialects.exchange import default_heartbeat
from control.dialects.messages import count_body, parse_count, parse_messages
from control.errors import InvalidRequest
from engine import wire
from tests.unit.control_dialects.messages_bodies import asking, claude_code_body, encoded, saying


def test_claude_codes_body_reaches_the_engine_whole_and_in_order():
    exchange = parse_messages(encoded(claude_code_body()), "r1")

    prompt = exchange.generate.prompt
    assert prompt.messages is not None
    system, first, agents, assistant, image, error, goes_on = prompt.messages
    assert [message.role for message in prompt.messages] == [
        *("system", "user", "system", "assistant", "tool", "tool", "user")
    ]
    assert system.content == (wire.TextPart(text="You are a coding agent."), wire.TextPart(text="Work in /tmp."))
    assert first.content[1] == wire.TextPart(text="What is in the picture?")
    assert agents.content == (wire.TextPart(text="Available agent types: none"),)
    assert (assistant.reasoning, assistant.content) == ("I must look.", (wire.TextPart(text="I look."),))
    assert [(call.id, call.name, call.arguments) for call in assistant.tool_calls] == [
        ("toolu_1", "Read", {"path": "/tmp/a.png"}),
        ("toolu_2", "Bash", {}),
    ]
    assert image.tool_call_id == "toolu_1"
    assert image.content == (wire.TextPart(text="[image: this model takes no images]"),)
    assert (error.tool_call_id, error.content) == ("toolu_2", (wire.TextPart(text="Error: no command"),))
    assert goes_on.content == (wire.TextPart(text="Go on."),)


def test_claude_codes_tools_and_settings_reach_the_engine():
    body = claude_code_body()

    exchange = parse_messages(encoded(body), "r1")

    prompt = exchange.generate.prompt
    assert [tool.name for tool in prompt.tools] == ["Read", "Bash"]
    assert prompt.tools[0].parameters == body["tools"][0]["input_schema"]
    assert (prompt.effort, prompt.continue_last) == ("high", False)
    assert (exchange.generate.max_tokens, exchange.is_stream) == (32_000, True)
    assert (exchange.model, exchange.dialect, exchange.generate.id) == ("claude-sonnet-4-5", "messages", "r1")


def test_two_requests_that_differ_only_in_volatile_headers_are_equal():
    first = parse_messages(encoded(claude_code_body(cch="a1b2c", tokens_left=190_000)), "r")
    second = parse_messages(encoded(claude_code_body(cch="00000", tokens_left=7)), "r")

    assert first == second


def test_a_billing_header_within_a_system_text_is_taken_out_and_nothing_else():
    header = "x-anthropic-billing-header: cc_version=2; cch=12345;"

    prompt = parse_messages(asking(system=f"{header}\nYou are an agent.\n"), "r").generate.prompt

    assert prompt.messages is not None
    assert prompt.messages[0].content == (wire.TextPart(text="You are an agent.\n"),)


def test_a_system_prompt_of_nothing_but_a_billing_header_is_none():
    prompt = parse_messages(asking(system=[{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}]), "r")

    assert [message.role for message in prompt.generate.prompt.messages or ()] == ["user"]


def test_what_a_person_writes_about_the_header_stays():
    text = "Why does it send x-anthropic-billing-header: cch=1;?\nx-anthropic-billing-header: cch=1;"

    prompt = parse_messages(saying(("user", text)), "r").generate.prompt

    assert prompt.messages is not None and prompt.messages[0].content == (wire.TextPart(text=text),)


def test_cache_marks_that_move_change_nothing():
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}

    with_mark = parse_messages(saying(("user", [marked])), "r")
    without = parse_messages(saying(("user", "hi")), "r")

    assert with_mark == without


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}, "none"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, None),
        ({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "xhigh"}}, "xhigh"),
        ({"thinking": {"type": "of the future"}, "output_config": {"effort": "of the future"}}, None),
        ({"thinking": None, "output_config": None}, None),
    ],
)
def test_thinking_and_effort(fields: dict[str, Any], effort: str | None):
    assert parse_messages(asking(**fields), "r").generate.prompt.effort == effort


def test_sampling_and_stops_are_handed_on():
    generate = parse_messages(
        asking(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["STOP", "", "\n\n"]), "r"
    ).generate

    assert generate.sampling == wire.Sampling(temperature=0.5, top_p=0.9, top_k=40)
    assert generate.stop == ("STOP", "\n\n")


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_a_json_schema_becomes_a_grammar(name: str):
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    fields = {"output_config": {"format": wanted}} if name == "output_config" else {"output_format": wanted}

    grammar = parse_messages(asking(**fields), "r").generate.grammar

    assert grammar == wire.Grammar(kind="json_schema", schema={"type": "object"})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].source"),
        ({"model": 7}, "model"),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": "STOP"}, "stop_sequences"),
        ({"stop_sequences": ["a"] * 17}, "stop_sequences"),
        ({"system": 7}, "system"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "f", "input_schema": 7}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "description": 7}]}, "tools[0].description"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_format": {"type": "json_schema", "schema": 7}}, "output_format.schema"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], named: str):
    with pytest.raises(InvalidRequest) as refusal:
        parse_messages(asking(**fields), "r")

    assert refusal.value.param == named


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"model":"\\ud800"}', b"[" * 100_000])
def test_what_is_not_a_json_object_is_refused(body: bytes):
    with pytest.raises(InvalidRequest):
        parse_messages(body, "r")
    with pytest.raises(InvalidRequest):
        parse_count(body, "r")


def test_values_that_are_nested_without_end_are_refused():
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"content": [deep]}
    for blocks in ([deep], [{"type": "tool_use", "name": "f", "input": deep}]):
        try:
            parse_messages(saying(("assistant", blocks)), "r")
        except InvalidRequest as refusal:
            assert refusal.param is None or refusal.param.startswith("messages[0]")
    with pytest.raises(InvalidRequest):
        parse_messages(asking(tools=[{"name": "f", "input_schema": deep}]), "r")


def test_server_tools_are_left_out_and_logged_by_type(caplog: pytest.LogCaptureFixture):
    tools = [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "custom", "name": "mine", "input_schema": {}, "strict": True},
    ]

    with caplog.at_level(logging.INFO):
        exchange = parse_messages(asking(tools=tools), "r1")

    assert exchange.generate.prompt.tools == (wire.Tool(name="mine", strict=True),)
    assert "web_search_20250305" in caplog.text and "r1" in caplog.text
    assert exchange.field("prompt.tools[0].parameters") == "tools[3]"


def test_a_call_that_only_anthropics_servers_can_make_is_refused_with_the_reason():
    tools = [{"type": "web_search_20250305", "name": "web_search"}]

    with pytest.raises(InvalidRequest, match="web_search_20250305"):
        parse_messages(asking(tools=tools, tool_choice={"type": "tool", "name": "web_search"}), "r")


@pytest.mark.parametrize(
    ("choice", "neutral"),
    [
        (None, wire.ToolChoice()),
        ({"type": "auto"}, wire.ToolChoice()),
        ({"type": "auto", "disable_parallel_tool_use": True}, wire.ToolChoice(parallel=False)),
        ({"type": "any"}, wire.ToolChoice(mode="required")),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            wire.ToolChoice(mode="required", parallel=False),
        ),
        ({"type": "tool", "name": "f"}, wire.ToolChoice(mode="named", name="f")),
        ({"type": "none"}, wire.ToolChoice(mode="none")),
    ],
)
def test_tool_choice(choice: dict[str, Any] | None, neutral: wire.ToolChoice):
    body = asking(tools=[{"name": "f", "input_schema": {}}], tool_choice=choice)

    assert parse_messages(body, "r").generate.prompt.tool_choice == neutral


def test_the_engines_fields_are_named_as_the_client_sent_them():
    exchange = parse_messages(encoded(claude_code_body()), "r")

    # The system prompt is the first message of the engine's, and the fourth of the client's became three.
    assert [exchange.field(f"prompt.messages[{index}].content[0]") for index in (0, 1, 4, 6)] == [
        *("system", "messages[0]", "messages[3]", "messages[3]")
    ]
    assert exchange.field("prompt.messages") == "messages"
    assert exchange.field("prompt") == "messages"
    assert exchange.field("stop[2]") == "stop_sequences"
    assert exchange.field("sampling.top_k") == "top_k"
    assert exchange.field("grammar.schema") == "output_config.format"
    assert exchange.field("prompt.tool_choice.name") == "tool_choice.name"
    assert exchange.field("max_tokens") == "max_tokens"
    assert exchange.field("id") is None


def test_counting_sees_the_same_prompt_as_answering():
    body = claude_code_body()
    answered = parse_messages(encoded(body), "r").generate.prompt
    for name in ("max_tokens", "stream", "metadata"):
        del body[name]

    asked = parse_count(encoded(body), "r")

    assert (asked.model, asked.prompt) == ("claude-sonnet-4-5", answered)
    assert count_body(1234) == b'{"input_tokens":1234}'


def test_the_default_heartbeat_is_the_one_that_claude_code_counts():
    assert default_heartbeat("messages") == "typed"
