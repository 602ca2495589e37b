"""The stream of /v1/messages, event by event."""

from functools import partial

import msgspec
import pytest

from control.dialects.messages import parse_messages
from control.dialects.messages_answer import MessagesStreamEncoder
from control.errors import EngineDied
from engine import wire
from tests.unit.control_dialects.messages_bodies import asking
from tests.unit.control_dialects.messages_checker import checked

USAGE = wire.Usage(prompt=100, cached=75, completion=9, reasoning=4)


def encoder(*, heartbeat: str = "typed", prompt_tokens: int | None = 100) -> MessagesStreamEncoder:
    made = parse_messages(asking(stream=True), "r1").encoder(heartbeat=heartbeat)
    assert isinstance(made, MessagesStreamEncoder)
    made.expect(model="splash-9b", prompt_tokens=prompt_tokens)
    return made


def events_of(*events: wire.AnyEvent, reason: wire.FinishReason = "stop", stop_sequence: str | None = None):
    finished = wire.Finished(reason=reason, stop_sequence=stop_sequence, usage=USAGE)
    return [wire.Accepted(id="r1", prompt_tokens=100), *events, finished]


def a_call(index: int, arguments: str) -> list[wire.AnyEvent]:
    return [
        wire.ToolCallBegin(index=index, id=f"call_{index}", name="Read"),
        *(wire.ToolCallDelta(index=index, arguments=piece) for piece in arguments),
        wire.ToolCallEnd(index=index),
    ]


def test_thought_text_and_calls_are_blocks_one_after_another():
    answer = checked(
        encoder().encode(
            events_of(
                *(wire.ReasoningDelta(text="I "), wire.ReasoningDelta(text="think.")),
                *(wire.TextDelta(text="I "), wire.TextDelta(text="look.")),
                *a_call(0, '{"path":"/a"}'),
                *a_call(1, "{}"),
                reason="tool_calls",
            )
        )
    )

    assert [(block["type"], block["value"]) for block in answer.blocks] == [
        ("thinking", "I think."),
        ("text", "I look."),
        ("tool_use", '{"path":"/a"}'),
        ("tool_use", "{}"),
    ]
    assert [block["start"]["id"] for block in answer.blocks[2:]] == ["call_0", "call_1"]
    assert (answer.stop_reason, answer.stop_sequence) == ("tool_use", None)


def test_the_first_frames_tell_who_answers_and_how_long_the_prompt_is():
    answer = checked(encoder().encode(events_of(wire.TextDelta(text="hi"))))

    assert answer.start is not None
    assert (answer.start["id"], answer.start["model"]) == ("msg_r1", "splash-9b")
    assert answer.start["usage"] == {
        "input_tokens": 100,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    }


def test_what_prefill_told_of_the_cache_is_in_the_first_frames():
    prefill = wire.Prefill(processed=75, cached=75, total=100)

    answer = checked(encoder(prompt_tokens=None).encode(events_of(prefill, wire.TextDelta(text="hi"))))

    assert answer.start is not None
    assert answer.start["usage"]["input_tokens"] == 25
    assert answer.start["usage"]["cache_read_input_tokens"] == 75


def test_cached_tokens_are_not_counted_as_input_too():
    usage = checked(encoder().encode(events_of(wire.TextDelta(text="hi")))).usage

    assert usage == {
        "input_tokens": 25,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 75,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }


def test_a_prompt_that_nobody_could_count_is_estimated_and_corrected_at_the_end():
    stream = encoder(prompt_tokens=None)

    answer = checked(stream.heartbeat(is_yielded=True) + stream.encode(events_of(wire.TextDelta(text="hi"))))

    assert answer.start is not None and answer.usage is not None
    assert 0 < answer.start["usage"]["input_tokens"] != 100
    assert answer.usage["input_tokens"] + answer.usage["cache_read_input_tokens"] == 100


@pytest.mark.parametrize(
    ("reason", "stop_sequence", "expected"),
    [
        ("stop", None, "end_turn"),
        ("stop", "STOP", "stop_sequence"),
        ("length", None, "max_tokens"),
        ("tool_calls", None, "tool_use"),
    ],
)
def test_stop_reasons(reason: wire.FinishReason, stop_sequence: str | None, expected: str):
    answer = checked(encoder().encode(events_of(wire.TextDelta(text="a"), reason=reason, stop_sequence=stop_sequence)))

    assert (answer.stop_reason, answer.stop_sequence) == (expected, stop_sequence)


def test_an_answer_of_nothing_is_an_empty_text():
    answer = checked(encoder().encode(events_of(wire.TextDelta(text=""), wire.ReasoningDelta(text=""))))

    assert [(block["type"], block["value"]) for block in answer.blocks] == [("text", "")]


def test_a_call_that_was_cut_off_before_its_arguments_is_given_none():
    answer = checked(encoder().encode(events_of(*a_call(0, ""), reason="length")), is_cut_off=True)

    assert answer.values("tool_use") == [""] and answer.stop_reason == "max_tokens"


def test_a_call_that_was_cut_off_is_not_completed():
    stream = encoder().encode(events_of(*a_call(0, '{"path":"/a')[:-1], reason="length"))

    answer = checked(stream, is_cut_off=True)

    assert answer.values("tool_use") == ['{"path":"/a'] and answer.stop_reason == "max_tokens"


def test_nothing_is_written_before_there_is_something_to_say():
    """Bytes beside heartbeats would forbid a second run after a crash of the engine."""
    stream = encoder()

    silent = stream.encode([wire.Accepted(id="r1", prompt_tokens=100), wire.Prefill(processed=0, cached=0, total=100)])

    assert silent == b""


def test_a_second_run_after_heartbeats_is_one_answer():
    stream = encoder()
    frames = stream.heartbeat(is_yielded=True)
    frames += stream.encode([wire.Accepted(id="r1", prompt_tokens=100)])
    frames += stream.heartbeat(is_yielded=True)

    frames += stream.encode(events_of(wire.TextDelta(text="hi")))

    assert checked(frames).values("text") == ["hi"]


def test_an_error_after_the_beginning_is_anthropics_error_event():
    stream = encoder()

    answer = checked(stream.heartbeat(is_yielded=True) + stream.error(EngineDied()))

    assert answer.error is not None and answer.error["type"] in ("overloaded_error", "api_error")
    assert answer.names[-1] == "error"


# --- Heartbeats ---


def test_the_first_heartbeat_begins_the_message_and_the_next_are_pings():
    stream = encoder()

    frames = stream.heartbeat(is_yielded=False) + stream.heartbeat(is_yielded=False)

    assert checked(frames, is_cut_off=True).names == ["message_start", "ping", "ping"]


def test_between_blocks_the_event_that_counts_is_a_message_delta_that_says_nothing():
    stream = encoder()
    stream.heartbeat(is_yielded=True)

    frames = stream.heartbeat(is_yielded=True)

    assert frames == (
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":null,"stop_sequence":null},'
        b'"usage":{"output_tokens":0}}\n\n'
    )


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (wire.TextDelta(text="a"), {"type": "text_delta", "text": ""}),
        (wire.ReasoningDelta(text="a"), {"type": "thinking_delta", "thinking": ""}),
        (wire.ToolCallBegin(index=0, id="c", name="f"), {"type": "input_json_delta", "partial_json": ""}),
    ],
)
def test_within_a_block_the_event_that_counts_is_an_empty_delta_of_its_type(event: wire.AnyEvent, delta: object):
    stream = encoder()
    stream.encode([event])

    frames = stream.heartbeat(is_yielded=True)

    assert msgspec.json.decode(frames.partition(b"data: ")[2]) == {
        "type": "content_block_delta",
        "index": 0,
        "delta": delta,
    }


@pytest.mark.parametrize(("mode", "name"), [("ping", "ping"), ("comment", ":")])
def test_the_other_modes_write_nothing_else(mode: str, name: str):
    stream = encoder(heartbeat=mode)
    beat = partial(stream.heartbeat, is_yielded=True)
    frames = beat() + stream.encode(events_of(wire.TextDelta(text="a"))[:-1]) + beat()

    answer = checked(frames + stream.encode(events_of()[-1:]))

    assert [each for each in answer.names if each == name] == [name] * 2
    assert answer.names[:2] == [name, "message_start"]
