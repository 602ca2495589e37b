"""What becomes of single blocks and their order."""

from typing import Any

import pytest

from control.dialects.messages import parse_messages
from control.errors import InvalidRequest
from engine import wire
from tests.unit.control_dialects.messages_bodies import PIXEL, saying


def neutral(*messages: tuple[str, Any]) -> tuple[wire.Message, ...]:
    return parse_messages(saying(*messages), "r").generate.prompt.messages or ()


def texts(message: wire.Message) -> list[str]:
    return [part.text for part in message.content if isinstance(part, wire.TextPart)]


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t"} | fields


def test_text_before_and_after_tool_results_stays_where_it_stood():
    content = [{"type": "text", "text": "before"}, result(content="1"), result(content="2"), "after"]

    messages = neutral(("user", content))

    assert [(message.role, texts(message)) for message in messages] == [
        ("user", ["before"]),
        ("tool", ["1"]),
        ("tool", ["2"]),
        ("user", ["after"]),
    ]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (result(), []),
        (result(content=None), []),
        (result(content=""), []),
        (result(content=[]), []),
        (result(content="done"), ["done"]),
        (result(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), ["a", "b"]),
        (result(is_error=True), ["Error"]),
        (result(is_error=True, content="no such file"), ["Error: no such file"]),
        (result(is_error=True, content="Error: exit 1"), ["Error: exit 1"]),
        (
            result(is_error=True, content="<tool_use_error>no</tool_use_error>"),
            ["<tool_use_error>no</tool_use_error>"],
        ),
        (
            result(content=[{"type": "tool_reference", "tool_name": "mcp__x"}]),
            ["The tool mcp__x can be called now."],
        ),
    ],
)
def test_a_tool_result_of_any_form_is_a_tool_message(block: dict[str, Any], expected: list[str]):
    (message,) = neutral(("user", [block]))

    assert (message.role, message.tool_call_id, texts(message)) == ("tool", "t", expected)


def test_an_image_in_a_tool_result_is_said_beside_its_text():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}

    (message,) = neutral(("user", [result(content=[{"type": "text", "text": "shot"}, image], is_error=True)]))

    assert texts(message) == ["Error: shot", "[image: this model takes no images]"]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "url", "url": "https://example.org/a.png"},
        {"type": "file", "file_id": "f"},
        {"type": "base64", "media_type": "image/png", "data": "no base64"},
        {"type": "base64", "media_type": "image/png", "data": "é"},
        {"type": "base64", "data": PIXEL},
        "text",
    ],
)
def test_an_image_that_is_not_in_the_body_is_refused(source: Any):
    with pytest.raises(InvalidRequest) as refusal:
        neutral(("user", [{"type": "image", "source": source}]))

    assert (refusal.value.param or "").startswith("messages[0].content[0].source")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "tool_addition", "tools": [{"name": "x"}]}, []),
        ({"type": "of_the_future", "text": "readable"}, ["readable"]),
        ({"type": "of_the_future", "content": "readable"}, ["readable"]),
        ({"type": "of_the_future", "content": [{"type": "text", "text": "readable"}]}, ["readable"]),
        ({"type": "of_the_future", "content": [7, {"type": "text"}]}, []),
        ({"type": "of_the_future", "content": {"a": 1}}, []),
        ({"type": 7}, []),
        ({}, []),
        ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}, []),
        ({"type": "text", "text": ""}, []),
        (None, []),
        (
            {
                "type": "search_result",
                "title": "T",
                "source": "https://x",
                "content": [{"type": "text", "text": "found"}],
            },
            ["T\nhttps://x", "found"],
        ),
        (
            {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "D"}},
            ["T", "D"],
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "D"}]}},
            ["D"],
        ),
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_a_block_of_another_type_is_its_text_or_nothing(role: str, block: Any, expected: list[str]):
    messages = neutral((role, [{"type": "text", "text": "known"}, block]), ("user", "hi"))

    assert texts(messages[0]) == ["known", *expected]


def test_a_pdf_says_that_it_cannot_be_read():
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}

    (message,) = neutral(("user", [{"type": "document", "title": "plan.pdf", "source": source}]))

    assert texts(message)[0] == "plan.pdf" and "cannot be read" in texts(message)[1]


@pytest.mark.parametrize(
    ("given", "raw", "arguments"),
    [
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}', {"a": [1, "ü"]}),
        ({}, "{}", {}),
        (None, "{}", {}),
        ("", "{}", {}),
        ('{"value": ', '{"value": ', None),
        ({"big": 10**30}, '{"big":1000000000000000000000000000000}', {"big": 10**30}),
    ],
)
def test_calls_of_the_past_are_handed_on_as_they_were(given: Any, raw: str, arguments: dict[str, Any] | None):
    block = {"type": "tool_use", "id": "t", "name": "f", "input": given}

    message, _ = neutral(("assistant", [block]), ("user", [result()]))

    assert message.tool_calls == (wire.ToolCall(id="t", name="f", arguments_raw=raw, arguments=arguments),)


def test_a_call_without_an_id_has_the_same_one_each_time():
    content = [{"type": "tool_use", "name": "f", "input": {}}]

    first, second = neutral(("assistant", content), ("user", "x")), neutral(("assistant", content), ("user", "x"))

    assert first == second and first[0].tool_calls[0].id == "toolu_0_0"


def test_thoughts_are_read_whoever_signed_them():
    content = [
        {"type": "thinking", "thinking": "one", "signature": "of another server"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "thinking", "thinking": "two"},
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "text", "text": "said"},
    ]

    message, _ = neutral(("assistant", content), ("user", "hi"))

    assert (message.reasoning, texts(message)) == ("one\n\ntwo", ["said"])


@pytest.mark.parametrize(
    ("content", "is_prefill", "num_messages"),
    [
        ("The answer is", True, 2),
        ([{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "So"}], True, 2),
        ("", False, 1),
        ([], False, 1),
        (None, False, 1),
        ([{"type": "tool_use", "id": "t", "name": "f", "input": {}}], False, 2),
    ],
)
def test_an_answer_that_was_begun_is_continued(content: Any, is_prefill: bool, num_messages: int):
    prompt = parse_messages(saying(("user", "hi"), ("assistant", content)), "r").generate.prompt

    assert (prompt.continue_last, len(prompt.messages or ())) == (is_prefill, num_messages)


@pytest.mark.parametrize("position", [0, 1, 3])
def test_a_system_message_keeps_its_place(position: int):
    turns: list[tuple[str, Any]] = [("user", "a"), ("assistant", "b"), ("user", "c")]
    turns.insert(position, ("system", "Available agent types"))

    messages = neutral(*turns)

    assert [message.role for message in messages] == [role for role, _ in turns]
    assert texts(messages[position]) == ["Available agent types"]


def test_too_many_blocks_are_refused():
    with pytest.raises(InvalidRequest, match="50000"):
        neutral(("user", ["a"] * 50_001))
