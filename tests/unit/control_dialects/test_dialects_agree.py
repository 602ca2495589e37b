"""What the dialects have in common is the same in all: what is left out, what is refused, how it is collected."""

from typing import Any

import pytest

from control.dialects.collected import Call, Collected, Words
from control.dialects.limits import MODEL_NAME_LIMIT, TOKENS_LIMIT, TOOLS_LIMIT
from control.errors import InvalidRequest
from engine import wire
from tests.unit.control_dialects.every_dialect import (
    LISTS,
    PARSERS,
    called,
    conversations,
    dialects,
    generate_of,
    refusal_of,
    said,
)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@dialects
def test_a_name_of_a_model_has_the_same_limit(dialect: str):
    assert generate_of(dialect, model="m" * MODEL_NAME_LIMIT)
    assert refusal_of(dialect, model="m" * (MODEL_NAME_LIMIT + 1)).param == "model"


@dialects
def test_a_limit_of_tokens_beyond_all_contexts_is_as_many_as_there_can_be(dialect: str):
    name = "max_output_tokens" if dialect == "responses" else "max_tokens"

    assert generate_of(dialect, **{name: 2**63}).max_tokens == TOKENS_LIMIT


@dialects
def test_a_body_without_an_end_is_refused_in_the_same_words(dialect: str):
    with pytest.raises(InvalidRequest) as refused:
        PARSERS[dialect](b'{"model":"m","x":' + b"[" * 100_000, "r")

    assert (str(refused.value), refused.value.param) == (
        "It is nested too deeply; 100 levels are supported.",
        None,
    )


@conversations
def test_a_text_that_is_missing_or_empty_is_left_out(dialect: str):
    parts = [
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "text", "text": ""},
        None,
        "",
        {"type": "text", "text": "hi"},
    ]

    [message] = generate_of(dialect, **said(dialect, parts)).prompt.messages or ()

    assert message.content == (wire.TextPart(text="hi"),)


@conversations
def test_a_text_that_is_none_is_refused(dialect: str):
    refusal = refusal_of(dialect, **said(dialect, ["hi", {"type": "text", "text": 5}]))

    assert (str(refusal), refusal.param) == ("A text is expected here.", f"{LISTS[dialect]}[0].content[1].text")


@conversations
@pytest.mark.parametrize("role", ["robot", ""])
def test_an_unknown_role_is_refused_in_the_same_words(dialect: str, role: str):
    refusal = refusal_of(dialect, **{LISTS[dialect]: [{"role": role, "content": "hi"}]})

    assert (str(refusal), refusal.param) == ("The role is not known.", f"{LISTS[dialect]}[0].role")


@conversations
@pytest.mark.parametrize(
    ("arguments", "raw", "parsed"),
    [
        (None, "{}", {}),
        ("", "{}", {}),
        (" \n", "{}", {}),
        ({}, "{}", {}),
        ({"a": 1}, '{"a":1}', {"a": 1}),
        ('{"a": 1}', '{"a": 1}', {"a": 1}),
        ('{"a": ', '{"a": ', None),
        ("[1]", "[1]", None),
    ],
)
def test_earlier_arguments_are_read_the_same(dialect: str, arguments: Any, raw: str, parsed: dict[str, Any] | None):
    first, *_ = generate_of(dialect, **called(dialect, arguments)).prompt.messages or ()

    [call] = first.tool_calls
    assert (call.arguments_raw, call.arguments) == (raw, parsed)


@conversations
def test_earlier_arguments_that_are_too_deep_are_refused_in_the_same_words(dialect: str):
    refusal = refusal_of(dialect, **called(dialect, nested(200)))

    assert str(refusal) == "It is nested too deeply; 100 levels are supported."
    assert (refusal.param or "").startswith(f"{LISTS[dialect]}[0]")


@conversations
def test_too_many_tools_are_refused_in_the_same_words(dialect: str):
    tool: dict[str, Any] = {"type": "custom" if dialect == "messages" else "function", "name": "f"}
    tool = {"function": {"name": "f"}} if dialect == "chat" else tool

    refusal = refusal_of(dialect, tools=[tool] * (TOOLS_LIMIT + 1))

    assert (str(refusal), refusal.param) == ("At most 1000 tools are supported.", "tools")


def test_a_delta_of_nothing_splits_no_text():
    answer = Collected()

    for event in (
        wire.TextDelta(text="one "),
        wire.ReasoningDelta(text=""),
        wire.TextDelta(text=""),
        wire.TextDelta(text="two"),
        wire.ToolCallBegin(index=0, id="c", name="f"),
        wire.TextDelta(text=""),
    ):
        answer.add(event)

    words, call = answer.parts
    assert isinstance(words, Words) and words.text == "one two"
    assert isinstance(call, Call)


def test_a_delta_without_text_keeps_its_probabilities():
    answer = Collected()
    half = wire.TokenLogprob(token="\ufffd", logprob=-1.0, bytes=(0xC3,), top=())

    answer.add(wire.TextDelta(text="", logprobs=(half,)))

    assert [words.logprobs for words in answer.words("text")] == [[half]]
