"""What `previous_response_id` and item references find: bounded, expiring, and only if it was to be stored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.response_history import Conversation, ResponseHistory, turn
from control.errors import InvalidRequest, UnknownResponse
from engine import wire
from tests.unit.control_dialects.responses_stage import (
    PATCH,
    SHELL,
    call,
    parsed,
    played,
    streaming,
    text_of,
    whole_body,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def conversation(text: str) -> Conversation:
    return (turn((wire.Message(role="user", content=(wire.TextPart(text=text),)),)),)


def test_a_response_is_found_after_it_was_streamed():
    history = ResponseHistory()
    answer = [wire.ReasoningDelta(text="Hm."), wire.TextDelta(text="Hello."), *call("shell", "{}")]
    played(streaming(history, "r1", input="hi", tools=[SHELL]), answer)

    exchange = parsed(history, "r2", input="go on", previous_response_id="resp_r1")

    user, assistant, follow_up = exchange.generate.prompt.messages or ()
    assert (text_of(user), text_of(assistant), text_of(follow_up)) == ("hi", "Hello.", "go on")
    assert (assistant.reasoning, assistant.tool_calls[0].name) == ("Hm.", "shell")


def test_a_response_is_found_after_it_was_answered_whole():
    history = ResponseHistory()
    whole_body([wire.TextDelta(text="Hello.")], history=history, input="hi")

    exchange = parsed(history, "r2", previous_response_id="resp_r1")

    assert [text_of(message) for message in exchange.generate.prompt.messages or ()] == ["hi", "Hello.", "hello"]


def test_the_third_turn_has_all_that_came_before():
    history = ResponseHistory()
    played(streaming(history, "r1", input="one"), [wire.TextDelta(text="1")])
    played(streaming(history, "r2", input="two", previous_response_id="resp_r1"), [wire.TextDelta(text="2")])

    exchange = parsed(history, "r3", input="three", previous_response_id="resp_r2")

    assert [text_of(each) for each in exchange.generate.prompt.messages or ()] == ["one", "1", "two", "2", "three"]


def test_instructions_are_not_carried_over():
    history = ResponseHistory()
    played(streaming(history, "r1", instructions="Be rude."), [wire.TextDelta(text="1")])

    exchange = parsed(history, "r2", previous_response_id="resp_r1", instructions="Be kind.")

    assert [text_of(each) for each in exchange.generate.prompt.messages or ()] == ["Be kind.", "hello", "1", "hello"]


def test_a_custom_call_is_replayed_as_the_model_wrote_it():
    history = ResponseHistory()
    played(streaming(history, "r1", tools=[PATCH]), call("apply_patch", '{"input": "a"}'))

    exchange = parsed(history, "r2", tools=[PATCH], previous_response_id="resp_r1")

    [made] = (exchange.generate.prompt.messages or ())[1].tool_calls
    assert (made.name, made.arguments_raw) == ("apply_patch", '{"input": "a"}')


def test_what_is_not_to_be_stored_is_not_found():
    history = ResponseHistory()
    played(streaming(history, "r1", store=False), [wire.TextDelta(text="1")])

    with pytest.raises(UnknownResponse):
        parsed(history, "r2", previous_response_id="resp_r1")

    assert history.num_conversations == 0


def test_what_did_not_finish_is_not_found():
    history = ResponseHistory()
    streaming(history, "r1").encode([wire.TextDelta(text="1")])

    with pytest.raises(UnknownResponse):
        parsed(history, "r2", previous_response_id="resp_r1")


def test_an_item_is_found_by_its_reference():
    history = ResponseHistory()
    body = whole_body([wire.TextDelta(text="Hello."), *call("shell", "{}")], history=history)
    references = [{"type": "item_reference", "id": item["id"]} for item in body["output"]]

    exchange = parsed(history, "r2", input=[*references, {"role": "user", "content": "?"}, {"id": "msg_r1_0"}])

    assistant, _, again = exchange.generate.prompt.messages or ()
    assert (text_of(assistant), assistant.tool_calls[0].name) == ("Hello.", "shell")
    assert text_of(again) == "Hello."


def test_a_reference_that_leads_nowhere_is_refused_by_name():
    with pytest.raises(InvalidRequest) as refused:
        parsed(input=[{"type": "item_reference", "id": "msg_x"}])

    assert refused.value.param == "input[0].id"


def test_a_conversation_that_nobody_asks_for_expires():
    clock = Clock()
    history = ResponseHistory(idle_s=3600, monotonic=clock)
    history.put("a", conversation("hi"))
    clock.now = 3000
    history.get("a")
    clock.now = 6500
    assert history.get("a")

    clock.now = 10_101

    with pytest.raises(UnknownResponse):
        history.get("a")
    assert history.num_bytes == 0


def test_an_item_that_is_used_keeps_its_conversation():
    clock = Clock()
    history = ResponseHistory(idle_s=3600, monotonic=clock)
    history.put("a", (turn((), {"i": {"type": "message"}}),))
    clock.now = 3000
    history.item("i")

    clock.now = 6000

    assert history.item("i") == {"type": "message"}


def test_the_one_that_was_not_used_for_the_longest_time_goes_first():
    history = ResponseHistory(limit_count=2)
    history.put("a", conversation("1"))
    history.put("b", conversation("2"))
    history.get("a")

    history.put("c", conversation("3"))

    assert history.get("a") and history.get("c")
    with pytest.raises(UnknownResponse):
        history.get("b")


def test_one_that_is_larger_than_all_the_room_does_not_drive_the_others_out():
    history = ResponseHistory(limit_bytes=1000)
    history.put("a", conversation("1"))

    history.put("b", conversation("x" * 1001))

    assert history.get("a")
    with pytest.raises(UnknownResponse):
        history.get("b")


def test_turns_that_conversations_share_are_counted_once():
    history = ResponseHistory()
    first = conversation("x" * 1000)
    second = conversation("y")
    history.put("a", first)
    before = history.num_bytes

    history.put("b", (*first, *second))

    assert history.num_bytes == before + second[0].num_bytes


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 7), max_size=4), st.integers(0, 50))))
def test_under_any_use_the_bounds_hold_and_nothing_is_counted_wrong(uses: list[tuple[int, list[int], int]]):
    clock = Clock()
    history = ResponseHistory(limit_bytes=1500, limit_count=4, idle_s=100, monotonic=clock)
    turns = [turn((wire.Message(role="user", name="x" * 50 * n),), {f"i{n}": {"n": n}}) for n in range(8)]
    kept: dict[str, Conversation] = {}

    for number, members, later_s in uses:
        clock.now += later_s
        kept[f"r{number}"] = tuple(turns[member] for member in members)
        history.put(f"r{number}", kept[f"r{number}"])

        assert history.num_bytes <= 1500
        assert history.num_conversations <= 4
        found = []
        for response_id in list(kept):
            try:
                found.append(history.get(response_id))
            except UnknownResponse:
                continue
            assert found[-1] == kept[response_id]
        held = {each for conversation in found for each in conversation}
        assert history.num_bytes == sum(each.num_bytes for each in held)
        assert {n for n in range(8) if history.item(f"i{n}")} == {turns.index(each) for each in held}


def test_its_size_is_that_of_its_json():
    messages = (wire.Message(role="user", content=(wire.TextPart(text="héllo"),)),)

    assert turn(messages).num_bytes >= len(json.dumps("héllo", ensure_ascii=False).encode())
