"""Whatever a client sends is an exchange or a refusal; whatever the engine says is a stream that clients can read."""

import contextlib
import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.dialects.collected import BodyEncoder
from control.dialects.error_answers import answers_of
from control.dialects.messages import PATH, parse_count, parse_messages
from control.errors import EngineDied, InvalidRequest
from engine import wire
from tests.unit.control_dialects.messages_bodies import asking, claude_code_body, encoded
from tests.unit.control_dialects.messages_checker import checked

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(
    [
        "text",
        "image",
        "document",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "search_result",
        "tool_reference",
    ]
)
KEYS = st.sampled_from(
    [
        "type",
        "text",
        "content",
        "source",
        "thinking",
        "name",
        "input",
        "id",
        "tool_use_id",
        "is_error",
        "title",
        "role",
        "system",
        "tools",
        "tool_choice",
        "output_config",
        "output_format",
        "stop_sequences",
    ]
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every key of every object and list within: (what holds it, key)."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [place for key, child in items for place in [(value, key), *_places(child)]]


@st.composite
def mutated_bodies(draw: st.DrawFn) -> Any:
    body = copy.deepcopy(claude_code_body())
    for _ in range(draw(st.integers(1, 4))):
        places = _places(body)
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["drop", "null", "replace", "add", "double", "retype"])):
            case "drop":
                del holder[key]
            case "null":
                holder[key] = None
            case "replace":
                holder[key] = draw(JSON)
            case "add" if isinstance(holder, dict):
                holder[draw(KEYS)] = draw(JSON)
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case "retype" if isinstance(holder, dict):
                holder["type"] = draw(TYPES)
    return body


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated_bodies())
def test_a_body_with_anything_dropped_nulled_or_added_is_answered_or_refused(body: Any):
    raw = json.dumps(body).encode()

    try:
        exchange = parse_messages(raw, "r1")
    except InvalidRequest as refusal:
        answers_of(PATH, "r1")(refusal)
    else:
        on_the_wire = msgspec.json.encode(exchange.generate)
        assert msgspec.json.decode(on_the_wire, type=wire.GenerateRequest) == exchange.generate
        assert len(exchange.places) == len(exchange.generate.prompt.messages or ()) > 0
        assert len(exchange.tool_places) == len(exchange.generate.prompt.tools)
        exchange.encoder(heartbeat="typed").heartbeat(is_yielded=True)
    with contextlib.suppress(InvalidRequest):
        parse_count(raw, "r1")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_refused(raw: bytes):
    with pytest.raises(InvalidRequest):
        parse_messages(raw, "r1")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2000), st.binary(min_size=1, max_size=3))
def test_a_damaged_body_is_answered_or_refused(at: int, damage: bytes):
    raw = encoded(claude_code_body())

    try:
        exchange = parse_messages(raw[:at] + damage + raw[at:], "r1")
    except InvalidRequest as refused:
        assert str(refused)
    else:
        assert exchange.generate.prompt.messages


# --- Streams ---

PIECES = st.text(alphabet=st.characters(codec="utf-8"), max_size=6)


@st.composite
def calls(draw: st.DrawFn) -> list[wire.AnyEvent]:
    arguments = draw(st.sampled_from(["{}", '{"path":"/a ü"}', '{"a":{"b":[1,2]}}']))
    cut = draw(st.integers(0, len(arguments)))
    deltas = [wire.ToolCallDelta(index=0, arguments=piece) for piece in (arguments[:cut], arguments[cut:])]
    return [wire.ToolCallBegin(index=0, id="call", name="f"), *deltas, wire.ToolCallEnd(index=0)]


@st.composite
def runs(draw: st.DrawFn) -> list[wire.AnyEvent]:
    parts = draw(
        st.lists(
            st.builds(lambda text: [wire.TextDelta(text=text)], PIECES)
            | st.builds(lambda text: [wire.ReasoningDelta(text=text)], PIECES)
            | calls(),
            max_size=8,
        )
    )
    events: list[wire.AnyEvent] = [
        wire.Accepted(id="r", prompt_tokens=50),
        *draw(st.sampled_from([[], [wire.Prefill(processed=9, cached=9, total=50)]])),
    ]
    num_calls = 0
    for part in parts:
        is_call = isinstance(part[0], wire.ToolCallBegin)
        # The engine numbers calls in their order.
        events += [msgspec.structs.replace(event, index=num_calls) for event in part] if is_call else part
        num_calls += is_call
    reason = draw(st.sampled_from(["stop", "length", "tool_calls"]))
    stop_sequence = draw(st.sampled_from([None, "STOP"])) if reason == "stop" else None
    usage = wire.Usage(prompt=50, cached=9, completion=5)
    return [*events, wire.Finished(reason=reason, stop_sequence=stop_sequence, usage=usage)]


def _said(run: list[wire.AnyEvent], kind: type[wire.TextDelta] | type[wire.ReasoningDelta]) -> str:
    return "".join(event.text for event in run if isinstance(event, kind))


@settings(max_examples=300, deadline=None)
@given(
    runs(), st.lists(st.sampled_from([None, True, False]), max_size=40), st.sampled_from(["typed", "ping", "comment"])
)
def test_every_run_with_heartbeats_anywhere_is_a_stream_that_clients_can_read(
    run: list[wire.AnyEvent], beats: list[bool | None], mode: Any
):
    encoder = parse_messages(asking(stream=True), "r").encoder(heartbeat=mode)
    encoder.expect(model="m", prompt_tokens=None)
    written = b""
    for at, event in enumerate(run):
        beat = beats[at] if at < len(beats) else None
        if beat is not None:
            written += encoder.heartbeat(is_yielded=beat)
        written += encoder.encode([event])

    answer = checked(written)

    assert "".join(answer.values("text")) == _said(run, wire.TextDelta)
    assert "".join(answer.values("thinking")) == _said(run, wire.ReasoningDelta)
    assert len(answer.values("tool_use")) == sum(isinstance(event, wire.ToolCallBegin) for event in run)
    assert answer.usage is not None and answer.usage["input_tokens"] == 41


@settings(max_examples=200, deadline=None)
@given(runs())
def test_a_stream_and_a_whole_answer_say_the_same(run: list[wire.AnyEvent]):
    streaming = parse_messages(asking(stream=True), "r").encoder(heartbeat="typed")
    whole = parse_messages(asking(), "r").encoder(heartbeat="typed")
    assert isinstance(whole, BodyEncoder)
    run = [event for event in run if not isinstance(event, wire.TextDelta | wire.ReasoningDelta) or event.text]
    streaming.expect(model="m", prompt_tokens=None)
    whole.expect(model="m", prompt_tokens=None)

    answer, body = checked(streaming.encode(run)), json.loads(whole.encode(run))

    values = {"text": "text", "thinking": "thinking", "tool_use": "input"}
    assert [(block["type"], block[values[block["type"]]]) for block in body["content"]] == [
        (block["type"], json.loads(block["value"]) if block["type"] == "tool_use" else block["value"])
        for block in answer.blocks
    ]
    assert (body["stop_reason"], body["stop_sequence"], body["usage"]) == (
        answer.stop_reason,
        answer.stop_sequence,
        answer.usage,
    )


@settings(max_examples=100, deadline=None)
@given(runs(), st.integers(0, 20))
def test_an_error_may_come_anywhere(run: list[wire.AnyEvent], at: int):
    encoder = parse_messages(asking(stream=True), "r").encoder(heartbeat="typed")
    encoder.expect(model="m", prompt_tokens=5)

    written = encoder.encode(run[: min(at, len(run) - 1)]) + encoder.error(EngineDied())

    assert checked(written).error is not None


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(5)), runs())
def test_even_calls_out_of_order_make_a_stream_that_clients_can_read(order: list[int], run: list[wire.AnyEvent]):
    """The engine doesn't do that; if it did, nobody's client should break."""
    first, last = run[:-1], run[-1]
    shuffled = [first[index % len(first)] for index in order] + first

    encoder = parse_messages(asking(stream=True), "r").encoder(heartbeat="typed")
    encoder.expect(model="m", prompt_tokens=5)

    assert checked(encoder.encode([*shuffled, last]), is_cut_off=True).is_over
