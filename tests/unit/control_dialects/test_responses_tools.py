"""The tools of /v1/responses: every kind to a function of the model, and its call back to what the client knows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.responses_tools import NAME_LIMIT, RawTool, neutral_tools
from control.dialects.skipped import Skipped
from control.errors import InvalidRequest
from engine import wire
from tests.unit.control_dialects.responses_stage import NAMESPACE, PATCH, SHELL, parsed


def names_of(*tools: Any, **fields: Any) -> list[str]:
    return [tool.name for tool in parsed(tools=list(tools), **fields).generate.prompt.tools]


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {}}


def namespace(name: str, *functions: str) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": "", "tools": [function(each) for each in functions]}


def test_a_function_is_handed_on_as_it_is():
    [tool] = parsed(tools=[{**SHELL, "strict": True}]).generate.prompt.tools

    assert tool == wire.Tool(name="shell", description="Runs a command.", parameters=SHELL["parameters"], strict=True)


def test_the_search_of_codex_and_unknown_tools_are_left_out():
    others = [{"type": "web_search", "external_web_access": True}, {"type": "tool_search"}, {"type": "hologram"}]

    assert names_of(*others, SHELL) == ["shell"]


def test_a_custom_tool_takes_one_text_and_its_grammar_is_told():
    [tool] = parsed(tools=[PATCH]).generate.prompt.tools

    assert tool.parameters["required"] == ["input"]
    assert tool.parameters["properties"]["input"]["type"] == "string"
    assert "start: begin" in tool.description and tool.description.startswith("Edits files.")


def test_a_namespace_becomes_functions_in_its_place():
    assert names_of(namespace("agents", "spawn", "stop"), SHELL) == ["agents__spawn", "agents__stop", "shell"]


def test_a_namespace_that_ends_with_the_joint_gets_no_second_one():
    assert names_of(namespace("mcp__idea__", "open")) == ["mcp__idea__open"]


def test_a_namespace_and_a_function_of_the_same_name_are_told_apart():
    exchange = parsed(tools=[namespace("exec", "exec"), function("exec")])

    origins = [exchange.asked.tools.origin(tool.name) for tool in exchange.generate.prompt.tools]

    assert [(origin.namespace, origin.name) for origin in origins] == [("exec", "exec"), (None, "exec")]


def test_a_long_name_ends_with_a_hash_and_stays_the_same():
    long = namespace("n" * 60, "a" * 60, "b" * 60)

    first, second = names_of(long)

    assert len(first) == len(second) == NAME_LIMIT
    assert first != second
    assert names_of(SHELL, long)[1:] == [first, second]


def test_a_joined_name_gives_way_to_a_plain_one():
    joined, plain = names_of(namespace("a", "b"), function("a__b"))

    assert plain == "a__b"
    assert joined != plain


def test_of_two_tools_with_the_same_name_the_first_counts():
    assert names_of(SHELL, {**SHELL, "description": "Another."}) == ["shell"]


def test_a_call_in_the_history_has_the_name_that_the_model_knows():
    call = {"type": "function_call", "call_id": "a", "namespace": "a", "name": "b", "arguments": "{}"}

    exchange = parsed(tools=[namespace("a", "b"), function("a__b")], input=[call])

    [message] = exchange.generate.prompt.messages or ()
    assert message.tool_calls[0].name == exchange.generate.prompt.tools[0].name


def test_a_call_of_a_tool_that_is_gone_keeps_the_name_that_it_had():
    call = {"type": "function_call", "call_id": "a", "namespace": "agents", "name": "spawn", "arguments": "{}"}

    [message] = parsed(input=[call]).generate.prompt.messages or ()

    assert message.tool_calls[0].name == "agents__spawn"


def test_tools_that_come_with_the_conversation_can_be_called():
    found = {"type": "tool_search_output", "call_id": "a", "tools": [namespace("mail", "send")]}
    more = {"type": "additional_tools", "role": "developer", "tools": [function("extra")]}

    assert names_of(SHELL, input=[found, more]) == ["shell", "mail__send", "extra"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, wire.ToolChoice()),
        ("auto", wire.ToolChoice()),
        ("none", wire.ToolChoice(mode="none")),
        ("required", wire.ToolChoice(mode="required")),
        ({"type": "function", "name": "shell"}, wire.ToolChoice(mode="named", name="shell")),
        ({"type": "custom", "name": "apply_patch"}, wire.ToolChoice(mode="named", name="apply_patch")),
        (
            {"type": "function", "name": "spawn_agent", "namespace": "multi_agent_v1"},
            wire.ToolChoice(mode="named", name="multi_agent_v1__spawn_agent"),
        ),
    ],
)
def test_a_choice_is_handed_on(choice: Any, expected: wire.ToolChoice):
    exchange = parsed(tools=[SHELL, PATCH, NAMESPACE], tool_choice=choice)

    assert exchange.generate.prompt.tool_choice == expected


def test_calls_may_be_forbidden_to_be_parallel():
    assert not parsed(tools=[SHELL], parallel_tool_calls=False).generate.prompt.tool_choice.parallel


def test_only_what_is_allowed_is_shown_to_the_model():
    allowed = [
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "multi_agent_v1"},
        {"type": "web_search"},
    ]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}

    exchange = parsed(tools=[SHELL, PATCH, NAMESPACE], tool_choice=choice)

    assert [tool.name for tool in exchange.generate.prompt.tools] == ["apply_patch", "multi_agent_v1__spawn_agent"]
    assert exchange.generate.prompt.tool_choice.mode == "required"
    assert exchange.field("prompt.tools[1].parameters") == "tools[2].tools[0].parameters"


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("always", "tool_choice"),
        (5, "tool_choice"),
        ({"type": "web_search"}, "tool_choice"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "name": "other"}, "tool_choice.name"),
        ({"type": "function", "name": "shell", "namespace": "other"}, "tool_choice.name"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]}, None),
        ({"type": "allowed_tools", "mode": "auto", "tools": ["shell"]}, "tool_choice.tools[0]"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(choice: Any, param: str | None):
    with pytest.raises(InvalidRequest) as refused:
        parsed(tools=[SHELL], tool_choice=choice)

    assert refused.value.param == (param or "tool_choice.tools[0].name")


def test_required_needs_a_tool_that_works_here():
    with pytest.raises(InvalidRequest) as refused:
        parsed(tools=[{"type": "web_search"}], tool_choice="required")

    assert refused.value.param == "tool_choice"


def test_too_many_tools_are_refused():
    with pytest.raises(InvalidRequest) as refused:
        parsed(tools=[function(f"f{number}") for number in range(1001)])

    assert refused.value.param == "tools"


NAMES = st.text(alphabet="ab_", min_size=1, max_size=5) | st.sampled_from(["x" * 70, "x" * 71])


@given(st.lists(st.tuples(st.none() | NAMES, NAMES, st.booleans()), max_size=12))
def test_every_tool_has_a_name_of_its_own_that_leads_back_to_it(tools: list[tuple[str | None, str, bool]]):
    raw = []
    for space, name, is_custom in tools:
        tool: dict[str, Any] = {"type": "custom" if is_custom else "function", "name": name}
        raw.append(RawTool(tool if space is None else {"type": "namespace", "name": space, "tools": [tool]}, "tools"))

    neutral = neutral_tools(raw, None, Skipped(), is_parallel=True)

    flats = [tool.name for tool in neutral.tools]
    identities = {(space, name) for space, name, _ in tools}
    assert len(set(flats)) == len(flats) == len(identities)
    assert {(origin.namespace, origin.name) for origin in map(neutral.origin, flats)} == identities
    for space, name in identities:
        flat = neutral.flat(name, space)
        assert (neutral.origin(flat).namespace, neutral.origin(flat).name) == (space, name)
        assert space is None or len(flat) <= NAME_LIMIT
