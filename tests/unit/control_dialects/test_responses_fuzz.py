"""Mutations of a real client's body never break the parser, and no order of events breaks the stream."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from control.dialects.exchange import HEARTBEAT_MODES, HeartbeatMode
from control.dialects.responses import parse_responses
from control.errors import EngineDied, InvalidRequest, UnknownResponse
from engine import wire
from tests.unit.control_dialects.responses_checker import check
from tests.unit.control_dialects.responses_stage import (
    ACCEPTED,
    NAMESPACE,
    PATCH,
    SHELL,
    USAGE,
    codex_body,
    own_history,
    played,
    streaming,
    whole_body,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["type", "name", "content", "output", "tools", "text", "id", "conversation", "previous_response_id", "tool_choice"]
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container below `value`, with each of its keys or indexes."""
    found: list[tuple[Any, Any]] = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in pairs:
        found.append((value, key))
        found += places(child)
    return found


@st.composite
def mutated_bodies(draw: st.DrawFn) -> dict[str, Any]:
    body = copy.deepcopy(codex_body())
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(body)))
        match draw(st.sampled_from(["drop", "null", "replace", "add", "twice"])):
            case "drop":
                del container[key]
            case "null":
                container[key] = None
            case "replace":
                container[key] = draw(JSON)
            case "add" if isinstance(container, dict):
                container[draw(KEYS | st.text(max_size=5))] = draw(JSON)
            case _ if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
    return body


@settings(max_examples=400)
@given(mutated_bodies())
def test_a_body_of_codex_with_fields_dropped_nulled_or_added_is_taken_or_refused(body: dict[str, Any]):
    try:
        exchange = parse_responses(json.dumps(body).encode(), "r1", history=own_history())
    except (InvalidRequest, UnknownResponse) as refused:
        assert str(refused)
        return

    encoder = exchange.encoder(heartbeat="typed")
    encoder.expect(model="demo", prompt_tokens=None)
    answer = played(encoder, [wire.TextDelta(text="Hello")])
    if exchange.is_stream:
        check(answer)
    else:
        assert json.loads(answer)["output"][0]["content"][0]["text"] == "Hello"


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_bytes_that_are_no_request_are_refused(body: bytes):
    try:
        parse_responses(body, "r1", history=own_history())
    except InvalidRequest as refused:
        assert str(refused)


TOOL_NAMES = ("shell", "apply_patch", "multi_agent_v1__spawn_agent", "made_up")
PIECES = st.text(max_size=6) | st.sampled_from(['{"input":"', "\\ud83d", "\\ude00", '"}', "{}", "\\"])


@st.composite
def runs(draw: st.DrawFn) -> list[wire.AnyEvent]:
    """Events as the engine may send them: calls may overlap, and what is open at the end was cut off."""
    events: list[wire.AnyEvent] = [ACCEPTED]
    open_calls: list[int] = []
    num_calls = 0
    for step in draw(st.lists(st.sampled_from(["text", "reasoning", "begin", "piece", "end", "prefill"]), max_size=25)):
        match step:
            case "text":
                events.append(wire.TextDelta(text=draw(st.text(max_size=5))))
            case "reasoning":
                events.append(wire.ReasoningDelta(text=draw(st.text(max_size=5))))
            case "prefill":
                events.append(wire.Prefill(processed=1, cached=0, total=2))
            case "begin":
                name = draw(st.sampled_from(TOOL_NAMES))
                events.append(wire.ToolCallBegin(index=num_calls, id=f"call_{num_calls}", name=name))
                open_calls.append(num_calls)
                num_calls += 1
            case "piece" if open_calls:
                index = draw(st.sampled_from(open_calls))
                events.append(wire.ToolCallDelta(index=index, arguments=draw(PIECES)))
            case "end" if open_calls:
                index = draw(st.sampled_from(open_calls))
                open_calls.remove(index)
                events.append(wire.ToolCallEnd(index=index))
    return events


@settings(max_examples=300)
@given(
    runs(),
    st.lists(st.integers(0, 25), max_size=5),
    st.sampled_from(HEARTBEAT_MODES["responses"]),
    st.sampled_from(["stop", "length", "tool_calls", "error"]),
)
def test_every_order_of_events_and_heartbeats_is_a_valid_stream(
    events: list[wire.AnyEvent], beats: list[int], mode: HeartbeatMode, end: Any
):
    encoder = streaming(tools=[SHELL, NAMESPACE, PATCH], heartbeat=mode)
    frames = []

    for position, event in enumerate(events):
        frames += [encoder.heartbeat(is_yielded=True) for _ in range(beats.count(position))]
        frames.append(encoder.encode([event]))
    if end == "error":
        frames.append(encoder.error(EngineDied()))
    else:
        frames.append(encoder.encode([wire.Finished(reason=end, usage=USAGE)]))

    check(b"".join(frames))


@given(runs(), st.sampled_from(["stop", "length"]))
def test_a_stream_and_a_whole_answer_say_the_same(events: list[wire.AnyEvent], reason: wire.FinishReason):
    tools = [SHELL, NAMESPACE, PATCH]
    streamed = check(played(streaming(tools=tools), events[1:], reason=reason)).terminal

    body = whole_body(events[1:], tools=tools, reason=reason)

    assert streamed is not None
    said = [[contents(item) for item in each["output"]] for each in (streamed, body)]
    assert said[0] == said[1]
    assert streamed["usage"] == body["usage"]


def contents(item: dict[str, Any]) -> list[Any]:
    return [
        item.get(key) for key in ("type", "call_id", "name", "namespace", "arguments", "input", "content", "summary")
    ]
