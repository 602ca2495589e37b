"""What `previous_response_id` and item references find: bounded, expiring, and only if it was to be stored."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.response_history import Conversation, ResponseHistory, entry_bytes, turn
from control.errors import InvalidRequest, UnknownResponse
from engine import wire
from tests.unit.control_dialects.responses_stage import (
    PATCH,
    SHELL,
    call,
    own_history,
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
    return (turn([{"role": "user", "content": text}]),)


def test_a_response_is_found_after_it_was_streamed():
    history = own_history()
    answer = [wire.ReasoningDelta(text="Hm."), wire.TextDelta(text="Hello."), *call("shell", "{}")]
    played(streaming(history, "r1", input="hi", tools=[SHELL]), answer)

    exchange = parsed(history, "r2", input="go on", previous_response_id="resp_r1")

    user, assistant, follow_up = exchange.generate.prompt.messages or ()
    assert (text_of(user), text_of(assistant), text_of(follow_up)) == ("hi", "Hello.", "go on")
    assert (assistant.reasoning, assistant.tool_calls[0].name) == ("Hm.", "shell")


def test_a_response_is_found_after_it_was_answered_whole():
    history = own_history()
    whole_body([wire.TextDelta(text="Hello.")], history=history, input="hi")

    exchange = parsed(history, "r2", previous_response_id="resp_r1")

    assert [text_of(message) for message in exchange.generate.prompt.messages or ()] == ["hi", "Hello.", "hello"]


def test_the_third_turn_has_all_that_came_before():
    history = own_history()
    played(streaming(history, "r1", input="one"), [wire.TextDelta(text="1")])
    played(streaming(history, "r2", input="two", previous_response_id="resp_r1"), [wire.TextDelta(text="2")])

    exchange = parsed(history, "r3", input="three", previous_response_id="resp_r2")

    assert [text_of(each) for each in exchange.generate.prompt.messages or ()] == ["one", "1", "two", "2", "three"]


def test_instructions_are_not_carried_over():
    history = own_history()
    played(streaming(history, "r1", instructions="Be rude."), [wire.TextDelta(text="1")])

    exchange = parsed(history, "r2", previous_response_id="resp_r1", instructions="Be kind.")

    assert [text_of(each) for each in exchange.generate.prompt.messages or ()] == ["Be kind.", "hello", "1", "hello"]


def test_a_custom_call_is_replayed_with_its_text():
    history = own_history()
    played(streaming(history, "r1", tools=[PATCH]), call("apply_patch", '{"input": "a"}'))

    exchange = parsed(history, "r2", tools=[PATCH], previous_response_id="resp_r1")

    [made] = (exchange.generate.prompt.messages or ())[1].tool_calls
    assert (made.name, made.arguments_raw) == ("apply_patch", '{"input":"a"}')


def test_what_is_not_to_be_stored_is_not_found():
    history = own_history()
    played(streaming(history, "r1", store=False), [wire.TextDelta(text="1")])

    with pytest.raises(UnknownResponse):
        parsed(history, "r2", previous_response_id="resp_r1")

    assert history.history.num_conversations == 0


def test_what_did_not_finish_is_not_found():
    history = own_history()
    streaming(history, "r1").encode([wire.TextDelta(text="1")])

    with pytest.raises(UnknownResponse):
        parsed(history, "r2", previous_response_id="resp_r1")


def test_an_item_is_found_by_its_reference():
    history = own_history()
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
    history = own_history(idle_s=3600, monotonic=clock)
    history.put("a", conversation("hi"))
    clock.now = 3000
    history.get("a")
    clock.now = 6500
    assert history.get("a")

    clock.now = 10_101

    with pytest.raises(UnknownResponse):
        history.get("a")
    assert history.history.num_bytes == 0


def test_an_item_that_is_used_keeps_its_conversation():
    clock = Clock()
    history = own_history(idle_s=3600, monotonic=clock)
    history.put("a", (turn([{"type": "message", "id": "i"}], is_answer=True),))
    clock.now = 3000
    history.item("i")

    clock.now = 6000

    assert history.item("i") == {"type": "message", "id": "i"}


def test_the_one_that_was_not_used_for_the_longest_time_goes_first():
    history = own_history(limit_count=2)
    history.put("a", conversation("1"))
    history.put("b", conversation("2"))
    history.get("a")

    history.put("c", conversation("3"))

    assert history.get("a") and history.get("c")
    with pytest.raises(UnknownResponse):
        history.get("b")


def test_one_that_is_larger_than_all_the_room_does_not_drive_the_others_out():
    history = own_history(limit_bytes=4000)
    history.put("a", conversation("1"))

    history.put("b", conversation("x" * 4001))

    assert history.get("a")
    with pytest.raises(UnknownResponse):
        history.get("b")


def test_turns_that_conversations_share_are_counted_once():
    history = own_history()
    first = conversation("x" * 1000)
    second = conversation("y")
    history.put("a", first)
    before = history.history.num_bytes

    history.put("b", (*first, *second))

    assert history.history.num_bytes == before + second[0].num_bytes + entry_bytes((*first, *second))


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 7), max_size=4), st.integers(0, 50))))
def test_under_any_use_the_bounds_hold_and_nothing_is_counted_wrong(uses: list[tuple[int, list[int], int]]):
    clock = Clock()
    history = own_history(limit_bytes=12_000, limit_count=4, idle_s=100, monotonic=clock)
    turns = [turn([{"id": f"i{n}", "text": "x" * 200 * n}], is_answer=True) for n in range(8)]
    kept: dict[str, Conversation] = {}

    for number, members, later_s in uses:
        clock.now += later_s
        kept[f"r{number}"] = tuple(turns[member] for member in members)
        history.put(f"r{number}", kept[f"r{number}"])

        assert history.history.num_bytes <= 12_000
        assert history.history.num_conversations <= 4
        found = []
        for response_id in list(kept):
            try:
                found.append(history.get(response_id))
            except UnknownResponse:
                continue
            assert found[-1] == kept[response_id]
        held = {each for conversation in found for each in conversation}
        entries = sum(map(entry_bytes, found))
        assert history.history.num_bytes == sum(each.num_bytes for each in held) + entries
        assert {n for n in range(8) if history.item(f"i{n}")} == {turns.index(each) for each in held}


def test_many_small_items_take_no_more_memory_than_is_counted():
    history = own_history()
    items = [{"role": "user", "content": "x"} for _ in range(20_000)]
    tracemalloc.start()

    for number in range(10):
        history.put(f"r{number}", (turn(items),))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert taken < 1.25 * history.history.num_bytes


def test_its_size_is_at_least_that_of_its_json():
    items = [{"role": "user", "content": "héllo"}]

    assert turn(items).num_bytes >= len(json.dumps("héllo", ensure_ascii=False).encode())


REPLAYED = [
    pytest.param(
        [
            *(wire.TextDelta(text="I look."), wire.ReasoningDelta(text="Hm."), wire.TextDelta(text="I see.")),
            *(wire.ReasoningDelta(text="So."), wire.TextDelta(text="Done.")),
        ],
        id="thoughts between texts",
    ),
    pytest.param([wire.ReasoningDelta(text="Hm."), *call("shell", '{"command": ["l"]}')], id="a call"),
    pytest.param([*call("shell", "{}"), wire.TextDelta(text="And "), *call("apply_patch", '{"input": "a"}')], id="two"),
    pytest.param([*call("shell", '{"command": ["l')], id="a call that was cut off"),
    pytest.param([wire.TextDelta(text="x"), wire.ReasoningDelta(text="only thought")], id="a thought at the end"),
    pytest.param([], id="nothing"),
]


@pytest.mark.parametrize("answer", REPLAYED)
@pytest.mark.parametrize("asked", ["hi", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "So"}]])
def test_to_go_on_from_a_response_is_the_same_as_to_send_everything_again(answer, asked):
    history, tools = own_history(), [SHELL, PATCH]
    output = whole_body(answer, history=history, input=asked, tools=tools)["output"]
    before = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    later = [{"type": "function_call_output", "call_id": "call_1", "output": "x"}, {"role": "user", "content": "go on"}]

    from_response = parsed(history, "r2", input=later, tools=tools, previous_response_id="resp_r1")
    from_all = parsed(history, "r2", input=[*before, *output, *later], tools=tools)

    assert from_response.generate == from_all.generate
    assert len(from_response.message_fields) == len(from_response.generate.prompt.messages or ())


def test_tools_that_a_search_found_are_there_in_the_next_request():
    history = own_history()
    found = [{"type": "tool_search_output", "call_id": "s", "tools": [SHELL]}, {"role": "user", "content": "hi"}]
    whole_body([wire.TextDelta(text="ok")], history=history, input=found)

    exchange = parsed(history, "r2", previous_response_id="resp_r1")

    assert [tool.name for tool in exchange.generate.prompt.tools] == ["shell"]


def test_what_one_key_was_answered_no_other_key_finds():
    both = ResponseHistory()
    mine, theirs = both.of(1), both.of(2)
    [item] = whole_body([wire.TextDelta(text="secret")], history=mine)["output"]

    with pytest.raises(UnknownResponse):
        parsed(theirs, "r2", previous_response_id="resp_r1")
    with pytest.raises(InvalidRequest, match="is not here"):
        parsed(theirs, "r2", input=[{"type": "item_reference", "id": item["id"]}])

    assert parsed(mine, "r2", input=[{"type": "item_reference", "id": item["id"]}])
    assert parsed(mine, "r2", previous_response_id="resp_r1")


def test_a_conversation_that_has_grown_too_long_is_refused():
    history = own_history()
    items = [{"role": "user", "content": "x"}] * 30_000
    whole_body([wire.TextDelta(text="ok")], history=history, input=items)

    with pytest.raises(InvalidRequest, match="50000"):
        parsed(history, "r2", input=items, previous_response_id="resp_r1")
