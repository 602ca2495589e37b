"""Which tools may be called is read the same in every dialect."""

import logging
from typing import Any

import pytest

from control.dialects.chat import parse_chat
from control.errors import InvalidRequest
from engine import wire
from tests.unit.control_dialects.every_dialect import body_of, conversations, generate_of, refusal_of, tool

HOSTED = {"type": "web_search_20250305", "name": "web_search"}
REQUIRED = {"chat": "required", "messages": {"type": "any"}, "responses": "required"}
NAMED = {
    "chat": {"type": "function", "function": {"name": "web_search"}},
    "messages": {"type": "tool", "name": "web_search"},
    "responses": {"type": "function", "name": "web_search"},
}
NAMES = {"chat": "tool_choice.function.name", "messages": "tool_choice.name", "responses": "tool_choice.name"}


@conversations
@pytest.mark.parametrize("tools", [[], [HOSTED]])
def test_a_call_cannot_be_required_of_tools_that_are_not_there(dialect: str, tools: list[Any]):
    refusal = refusal_of(dialect, tools=tools, tool_choice=REQUIRED[dialect])

    assert str(refusal).startswith("A call is required, but no tool can be called.")
    assert refusal.param == "tool_choice"


@conversations
def test_a_tool_that_was_left_out_cannot_be_chosen_even_beside_others(dialect: str):
    refusal = refusal_of(dialect, tools=[tool(dialect, "f"), HOSTED], tool_choice=NAMED[dialect])

    assert str(refusal).startswith("tool_choice names 'web_search', which is not among the tools.")
    assert refusal.param == NAMES[dialect]


@conversations
def test_a_required_call_is_one_of_the_tools_that_are_there(dialect: str):
    prompt = generate_of(dialect, tools=[HOSTED, tool(dialect, "f")], tool_choice=REQUIRED[dialect]).prompt

    assert ([each.name for each in prompt.tools], prompt.tool_choice.mode) == (["f"], "required")


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("tools", [[HOSTED], [HOSTED, "f"]])
def test_a_hosted_tool_cannot_be_forced(dialect: str, tools: list[Any]):
    known = [tool(dialect, each) if isinstance(each, str) else each for each in tools]

    assert refusal_of(dialect, tools=known, tool_choice={"type": "web_search"}).param == "tool_choice"


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("mode", ["auto", "none", "required"])
def test_a_choice_may_be_an_object_that_has_only_its_mode(dialect: str, mode: str):
    choices = [
        generate_of(dialect, tools=[tool(dialect, "f")], tool_choice=choice) for choice in (mode, {"type": mode})
    ]

    assert choices[0] == choices[1]
    assert choices[0].prompt.tool_choice == wire.ToolChoice(mode=mode)


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_hosted_tools_may_be_allowed_but_not_alone_when_a_call_is_required(dialect: str):
    def allowed(mode: str) -> dict[str, Any]:
        fields = {"mode": mode, "tools": [{"type": "web_search"}]}
        return {"type": "allowed_tools", **(fields if dialect == "responses" else {"allowed_tools": fields})}

    prompt = generate_of(dialect, tools=[tool(dialect, "f")], tool_choice=allowed("auto")).prompt

    assert (prompt.tools, prompt.tool_choice.mode) == ((), "auto")
    with pytest.raises(InvalidRequest, match="no tool can be called"):
        generate_of(dialect, tools=[tool(dialect, "f")], tool_choice=allowed("required"))


@conversations
def test_of_two_tools_with_one_name_the_first_is_the_one_and_the_log_says_so(
    dialect: str, caplog: pytest.LogCaptureFixture
):
    tools = [tool(dialect, "f", description="first"), tool(dialect, "g"), tool(dialect, "f", description="second")]

    with caplog.at_level(logging.INFO):
        known = generate_of(dialect, tools=tools).prompt.tools

    assert [(each.name, each.description) for each in known] == [("f", "first"), ("g", "")]
    assert "kinds=tool:same_name" in caplog.text


def test_a_custom_tool_with_the_name_of_a_function_before_it_is_not_read_as_custom():
    tools = [tool("chat", "f"), {"type": "custom", "custom": {"name": "f"}}]

    assert parse_chat(body_of("chat", tools=tools), "r").call_form.custom == frozenset()


def test_of_two_functions_with_one_name_the_first_is_the_one():
    functions = [{"name": "f", "description": "first"}, {"name": "f"}]

    [known] = generate_of("chat", functions=functions).prompt.tools

    assert known.description == "first"
