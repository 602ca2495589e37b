"""Bodies that other servers take: halves of surrogate pairs, whole floats, and histories with holes in them."""

import json
from typing import Any

import pytest

from control.dialects.surrogates import without_halves
from control.errors import InvalidRequest
from engine import wire
from tests.unit.control_dialects.every_dialect import (
    LISTS,
    PARSERS,
    body_of,
    called,
    conversations,
    dialects,
    generate_of,
    parsed,
    refusal_of,
    resulted,
    said,
    texts_of,
)

INTEGERS = {
    "chat": ["max_tokens", "max_completion_tokens", "seed", "top_k", "n"],
    "completions": ["max_tokens", "seed", "top_k", "n", "best_of"],
    "messages": ["max_tokens", "top_k"],
    "responses": ["max_output_tokens"],
}

# --- Bytes ---


@conversations
@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\ud83dx", "\ufffdx"),
        (r"\uDE00", "\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud83d\\ude00", "\ufffd\\ude00"),
        (r"\ud83d\n", "\ufffd\n"),
        (r"\\ud83d \ud83d", "\\ud83d \ufffd"),
        (r"\\\ud83d", "\\\ufffd"),
        (r"\ud83d\u00e9", "\ufffdé"),
    ],
)
def test_a_text_that_was_cut_within_a_character_does_not_end_the_session(dialect: str, written: str, read: str):
    body = body_of(dialect, **said(dialect, ["MARK"])).replace(b"MARK", written.encode())

    assert texts_of(parsed(dialect, body).generate) == [read]


@dialects
def test_half_of_a_pair_in_a_field_that_nobody_reads_is_as_harmless(dialect: str):
    body = body_of(dialect, metadata={"a": "MARK"}).replace(b"MARK", rb"\ud83d")

    assert parsed(dialect, body).model == "m"


def test_whole_characters_and_escaped_backslashes_are_left_alone():
    body = rb'["\ud83d\ude00", "\\ud83d", "\\\\ud83d", "\uD7FF", "\uE000", "\u00e9"]'

    assert without_halves(body) == body


@conversations
def test_half_of_a_pair_within_the_text_of_earlier_arguments_is_no_text_either(dialect: str):
    [call] = generate_of(dialect, **called(dialect, r'{"a": "x\ud83d"}')).prompt.messages[0].tool_calls

    assert call.arguments == {"a": "x\ufffd"}
    assert json.loads(call.arguments_raw) == call.arguments


@dialects
def test_a_byte_order_mark_before_the_body_is_no_part_of_it(dialect: str):
    assert parsed(dialect, b"\xef\xbb\xbf" + body_of(dialect)).model == "m"


@dialects
@pytest.mark.parametrize("body", [b"\xef\xbb\xbf", b"", b'{"model":"\\ud83d', b'{"model":"\xed\xa0\xbd"}'])
def test_what_is_no_json_is_still_refused(dialect: str, body: bytes):
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        PARSERS[dialect](body, "r")


# --- Numbers ---


@dialects
def test_a_whole_float_is_an_integer(dialect: str):
    for name in INTEGERS[dialect]:
        assert generate_of(dialect, **{name: 1.0}) == generate_of(dialect, **{name: 1})


@dialects
def test_a_whole_float_beside_a_text_that_was_cut_is_one_too(dialect: str):
    body = body_of(dialect, **{INTEGERS[dialect][0]: 32000.0}, user="MARK").replace(b"MARK", rb"\ud83d")

    assert parsed(dialect, body).generate.max_tokens == 32000


@dialects
def test_a_number_that_is_not_whole_is_refused_by_name(dialect: str):
    for value in (1.5, "1", True, [1.0]):
        for name in INTEGERS[dialect]:
            assert refusal_of(dialect, **{name: value}).param == name


@dialects
def test_what_is_wrong_beside_a_whole_float_is_still_named(dialect: str):
    assert refusal_of(dialect, **{INTEGERS[dialect][0]: 5.0}, stream="yes").param == "stream"


def test_no_alternatives_need_no_probabilities():
    assert generate_of("chat", top_logprobs=0).sampling.logprobs is None
    assert refusal_of("chat", top_logprobs=1).param == "top_logprobs"


# --- History ---

HOLES: list[tuple[Any, str | None]] = [(None, None), ("", None), ("so", "so"), ([], None), ([{"text": "so"}], "so")]


@pytest.mark.parametrize(("thought", "read"), [*HOLES, (["a", {"type": "text", "text": "b"}], "a\n\nb"), (7, None)])
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_an_earlier_thought_of_any_form_fails_no_chat(name: str, thought: Any, read: str | None):
    message = {"role": "assistant", "content": "x", name: thought}

    assert generate_of("chat", messages=[message]).prompt.messages[0].reasoning == read


@pytest.mark.parametrize(("thought", "read"), HOLES)
def test_an_earlier_thought_of_any_form_fails_no_message(thought: Any, read: str | None):
    for block in (
        {"type": "thinking", "thinking": thought},
        {"type": "thinking", "signature": "s", "thinking": thought},
    ):
        messages = [{"role": "assistant", "content": [block, "x"]}, {"role": "user", "content": "hi"}]

        assert generate_of("messages", messages=messages).prompt.messages[0].reasoning == read


def test_a_thinking_block_without_its_thought_is_skipped():
    messages = [{"role": "assistant", "content": [{"type": "thinking"}, "x"]}, {"role": "user", "content": "hi"}]

    assert generate_of("messages", messages=messages).prompt.messages[0].reasoning is None


@pytest.mark.parametrize(("thought", "read"), HOLES)
def test_an_earlier_thought_of_any_form_fails_no_response(thought: Any, read: str | None):
    for key in ("summary", "content"):
        items = [{"type": "reasoning", key: thought}, {"role": "assistant", "content": "x"}]

        assert generate_of("responses", input=items).prompt.messages[0].reasoning == read


@conversations
@pytest.mark.parametrize("arguments", [["a", 1], {"a": 1}, 7, '["a", 1]', "{cut", None])
def test_earlier_arguments_of_any_form_fail_nothing(dialect: str, arguments: Any):
    [call] = generate_of(dialect, **called(dialect, arguments)).prompt.messages[0].tool_calls

    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, separators=(",", ":"))
    assert call.arguments_raw == written


@conversations
@pytest.mark.parametrize("name", [None, "", ...])
def test_an_earlier_call_without_a_name_keeps_its_result(dialect: str, name: Any):
    asked = json.loads(
        json.dumps(resulted(dialect, "door")).replace(
            '"name": "f"', f'"name": {json.dumps(name)}' if name is not ... else '"nobody": 1'
        )
    )

    first, second, *_ = generate_of(dialect, **asked).prompt.messages

    assert [call.name for call in first.tool_calls] == ["unknown"]
    assert (second.role, second.tool_call_id) == ("tool", first.tool_calls[0].id)


@conversations
@pytest.mark.parametrize("part", [{"type": "text"}, {"type": "text", "text": None}, {"type": "text", "text": []}])
def test_a_text_part_without_a_text_is_empty(dialect: str, part: dict[str, Any]):
    assert texts_of(generate_of(dialect, **said(dialect, ["hi", part]))) == ["hi"]


@conversations
def test_a_text_part_with_a_list_is_the_texts_in_it(dialect: str):
    part = {"type": "text", "text": ["a", {"type": "text", "text": "b"}]}

    assert texts_of(generate_of(dialect, **said(dialect, [part]))) == ["a\n\nb"]


@pytest.mark.parametrize(("written", "read"), [(None, ""), ({"a": 1}, '{"a":1}'), (["x"], '["x"]'), ("x", "x")])
def test_an_earlier_input_of_a_custom_tool_may_be_anything(written: Any, read: str):
    items = [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": written}]

    [call] = generate_of("responses", input=items).prompt.messages[0].tool_calls

    assert call.arguments == {"input": read}


# --- What changes with every request ---


@conversations
@pytest.mark.parametrize("before", ["", "  ", "\t"])
def test_a_billing_header_is_taken_out_of_a_system_text(dialect: str, before: str):
    text = f"{before}x-anthropic-billing-header: cch=1a2b3;\nYou are an agent.\n  X-Anthropic-Billing-Header: x"
    messages = [{"role": "system", "content": [{"type": "text", "text": text}]}, {"role": "user", "content": text}]

    system, user = generate_of(dialect, **{LISTS[dialect]: messages}).prompt.messages

    assert system.content == (wire.TextPart(text="You are an agent.\n"),)
    assert user.content == (wire.TextPart(text=text),)


def test_a_billing_header_is_taken_out_of_instructions():
    header = " x-anthropic-billing-header: cch=1;"

    assert generate_of("responses", instructions=header) == generate_of("responses")
    first, _ = generate_of("responses", instructions=f"{header}\nBe brief.").prompt.messages
    assert first.content == (wire.TextPart(text="Be brief."),)
