"""A call that was cut off does not look whole in any dialect; what can be kept of one that is odd is kept."""

import json
from typing import Any

import msgspec
import pytest

from engine import wire
from tests.unit.control_dialects import responses_checker
from tests.unit.control_dialects.chat_checker import check_chat_stream
from tests.unit.control_dialects.every_dialect import answered
from tests.unit.control_dialects.messages_checker import checked
from tests.unit.control_dialects.responses_stage import PATCH, call, whole_body

CUT = ["", '{"path": "/a', '{"path"', "{", " "]
# JSON that is whole, though a client would not expect it.
ODD = ["[1]", '"text"', "7", '{"a":1e400}', '{"a":' * 150 + "{}" + "}" * 150]


def whole(dialect: str, *events: wire.AnyEvent, reason: wire.FinishReason) -> Any:
    """Read by a parser that minds neither depth nor size, as those of clients."""
    return json.loads(answered(dialect, *events, reason=reason))


@pytest.mark.parametrize("written", CUT)
@pytest.mark.parametrize("is_ended", [True, False])
def test_a_call_cut_off_by_the_limit_has_what_was_written_and_no_more(written: str, is_ended: bool):
    begun = call("f", *filter(None, [written]))[: None if is_ended else -1]

    [item] = responses_checker.check(answered("responses", *begun, reason="length", stream=True)).output
    message = checked(answered("messages", *begun, reason="length", stream=True), is_cut_off=True)
    chat = check_chat_stream(answered("chat", *begun, reason="length", stream=True), has_usage_chunk=False)

    assert (item["arguments"], item["status"]) == (written, "incomplete")
    assert message.values("tool_use") == [written] and message.stop_reason == "max_tokens"
    assert [each.text for each in chat.calls] == [written]


@pytest.mark.parametrize("written", CUT)
def test_a_whole_answer_says_the_same_of_a_call_that_was_cut_off(written: str):
    begun = call("f", *filter(None, [written]))

    [item] = whole("responses", *begun, reason="length")["output"]
    [block] = whole("messages", *begun, reason="length")["content"]
    message = whole("chat", *begun, reason="length")["choices"][0]["message"]

    assert (item["arguments"], item["status"]) == (written, "incomplete")
    assert block["input"] == {"raw": written}
    assert message["tool_calls"][0]["function"]["arguments"] == written


def test_a_call_that_ended_before_the_cut_is_whole():
    events = [*call("f", "{}"), *call("g", '{"a"', index=1, call_id="call_2")]

    first, second = whole("responses", *events, reason="length")["output"]

    assert (first["status"], second["status"]) == ("completed", "incomplete")


@pytest.mark.parametrize("written", ODD)
def test_arguments_that_are_odd_are_the_same_in_a_stream_and_in_a_whole_answer(written: str):
    events = call("f", written)

    streamed = answered("messages", *events, reason="tool_calls", stream=True)
    [block] = whole("messages", *events, reason="tool_calls")["content"]
    [item] = whole("responses", *events, reason="tool_calls")["output"]

    assert checked(streamed, is_cut_off=True).values("tool_use") == [written]
    assert block["input"] == json.loads(written)
    assert (item["arguments"], item["status"]) == (written, "completed")


def test_half_of_a_surrogate_pair_in_arguments_costs_a_whole_answer_nothing_else():
    [block] = msgspec.json.decode(answered("messages", *call("f", r'{"a":"x\ud83d","b":1}')))["content"]

    assert block["input"] == {"a": "x\ufffd", "b": 1}


def test_a_custom_call_that_was_cut_off_is_incomplete():
    [item] = whole_body(call("apply_patch"), tools=[PATCH], reason="length")["output"]

    assert (item["type"], item["input"], item["status"]) == ("custom_tool_call", "", "incomplete")


def test_two_thoughts_have_an_empty_line_between_them_in_chat():
    events = [
        *(wire.ReasoningDelta(text="one, "), wire.ReasoningDelta(text="still one"), wire.TextDelta(text="said")),
        *(wire.TextDelta(text=""), wire.ReasoningDelta(text=""), wire.ReasoningDelta(text="two")),
        *(*call("f", "{}"), wire.ReasoningDelta(text="three")),
    ]

    streamed = check_chat_stream(answered("chat", *events, stream=True), has_usage_chunk=False)
    message = whole("chat", *events, reason="stop")["choices"][0]["message"]

    assert streamed.reasoning == message["reasoning_content"] == "one, still one\n\ntwo\n\nthree"
