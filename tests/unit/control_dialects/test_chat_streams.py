"""Whatever the engine sends: a stream is one that the strictest client takes, and says what the whole answer says."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.chat import parse_chat
from control.dialects.completions import parse_completions
from control.errors import RequestFailed
from engine import wire
from tests.unit.control_dialects.chat_checker import check_chat_body, check_chat_stream
from tests.unit.control_dialects.chat_stage import CALLED, FINISHED, call, written
from tests.unit.control_dialects.completions_checker import check_completion_body, check_completion_stream

TOOLS = [
    {"type": "function", "function": {"name": "look"}},
    {"type": "custom", "custom": {"name": "apply_patch"}},
]
TEXT = st.text(max_size=6)
ALTERNATIVES = st.lists(st.builds(wire.Alternative, token=TEXT, logprob=st.floats(-9, 0)), max_size=2).map(tuple)
TOKENS = st.builds(
    wire.TokenLogprob,
    token=TEXT,
    bytes=st.binary(max_size=4).map(tuple),
    logprob=st.floats(-9, 0),
    top=ALTERNATIVES,
)
LOGPROBS = st.lists(TOKENS, max_size=2).map(tuple)
WORDS = st.one_of(
    st.builds(wire.TextDelta, text=TEXT, logprobs=LOGPROBS),
    st.builds(wire.ReasoningDelta, text=TEXT, logprobs=LOGPROBS),
    st.builds(wire.Prefill, processed=st.just(1), cached=st.just(0), total=st.just(9)),
)
NAMES = st.sampled_from(["look", "apply_patch", "unasked"])
PIECES = st.lists(st.text(alphabet='{}"input:\\n a', max_size=9), max_size=4)
CALLS = st.tuples(NAMES, PIECES)
FINISHES = st.builds(
    wire.Finished, reason=st.sampled_from(["stop", "length", "tool_calls"]), usage=st.just(FINISHED.usage)
)


@st.composite
def answers(draw):
    """Events as an engine sends them: words and calls in any order, calls numbered and ended, in batches."""
    events = []
    num_calls = 0
    for part in draw(st.lists(WORDS | CALLS, max_size=8)):
        if isinstance(part, tuple):
            events.extend(call(part[0], *part[1], index=num_calls))
            num_calls += 1
        else:
            events.append(part)
    events.append(draw(FINISHES))
    sizes = draw(st.lists(st.integers(1, 4), max_size=12))
    batches = []
    while events:
        size = sizes.pop() if sizes else len(events)
        batches.append(events[:size])
        events = events[size:]
    return batches


def chat(**fields):
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], **fields}
    return parse_chat(msgspec.json.encode(body), "id")


def completions(**fields):
    return parse_completions(msgspec.json.encode({"model": "demo", "prompt": "Once", **fields}), "id")


@given(batches=answers(), has_usage=st.booleans(), num_heartbeats=st.integers(0, 2), is_legacy=st.booleans())
def test_a_chat_stream_is_well_formed_and_says_what_the_whole_answer_says(
    batches, has_usage, num_heartbeats, is_legacy
):
    tools = {"functions": [TOOLS[0]["function"]]} if is_legacy else {"tools": TOOLS}
    streamed = chat(stream=True, stream_options={"include_usage": has_usage}, **tools)

    answer = check_chat_stream(
        written(streamed, batches, num_heartbeats=num_heartbeats), has_usage_chunk=has_usage, is_legacy=is_legacy
    )
    whole = check_chat_body(written(chat(**tools), batches))

    assert (answer.content, answer.reasoning) == (whole.content, whole.reasoning)
    assert answer.calls == whole.calls
    assert answer.finish_reason == whole.finish_reason
    assert sorted(map(repr, answer.logprobs)) == sorted(map(repr, whole.logprobs))
    assert answer.usage == (whole.usage if has_usage else None)
    assert answer.model == "demo"
    assert (answer.num_heartbeats == 0) == (num_heartbeats == 0)


@given(batches=answers(), has_usage=st.booleans(), num_heartbeats=st.integers(0, 2), echo=st.booleans())
def test_a_completions_stream_is_well_formed_and_says_what_the_whole_answer_says(
    batches, has_usage, num_heartbeats, echo
):
    streamed = completions(stream=True, stream_options={"include_usage": has_usage}, echo=echo)

    answer = check_completion_stream(
        written(streamed, batches, num_heartbeats=num_heartbeats), has_usage_chunk=has_usage
    )
    whole = check_completion_body(written(completions(echo=echo), batches))

    assert (answer.text, answer.finish_reason, answer.logprobs) == (whole.text, whole.finish_reason, whole.logprobs)
    assert answer.text.startswith("Once" if echo else "")
    assert answer.usage == (whole.usage if has_usage else None)


@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize("num_heartbeats", [0, 2])
def test_an_error_may_end_a_stream_anywhere(cut, num_heartbeats):
    events = [wire.TextDelta(text="hel"), *call("apply_patch", '{"input":"x')][:cut]
    error = RequestFailed("gone", engine_code="internal")

    for exchange, check in (
        (chat(stream=True, tools=TOOLS), check_chat_stream),
        (completions(stream=True), check_completion_stream),
    ):
        stream = written(exchange, [[event] for event in events], num_heartbeats=num_heartbeats, error=error)
        answer = check(stream, has_usage_chunk=False)

        assert answer.error["code"] == "engine_error"


def test_a_second_run_after_heartbeats_begins_the_stream_as_the_first_would_have():
    encoder = chat(stream=True).encoder(heartbeat="comment")
    encoder.expect(model="demo", prompt_tokens=7)
    accepted = wire.Accepted(id="id", prompt_tokens=7)

    frames = [
        encoder.heartbeat(is_yielded=True),
        encoder.encode([accepted, wire.Prefill(processed=1, cached=0, total=7)]),
        encoder.heartbeat(is_yielded=False),
        encoder.encode([accepted, wire.TextDelta(text="x"), FINISHED]),
    ]

    assert check_chat_stream(b"".join(frames), has_usage_chunk=False).content == "x"


def test_the_model_that_is_known_last_is_named_in_every_chunk():
    encoder = chat(stream=True).encoder(heartbeat="comment")
    encoder.expect(model="held for", prompt_tokens=None)
    heartbeat = encoder.heartbeat(is_yielded=True)
    encoder.expect(model="answers", prompt_tokens=7)

    answer = check_chat_stream(heartbeat + encoder.encode([*call("look", "{}"), CALLED]), has_usage_chunk=False)

    assert answer.model == "answers"


@pytest.mark.parametrize("make", [chat, completions])
def test_a_heartbeat_is_a_comment_and_a_whole_answer_has_none(make):
    streamed, whole = (make(stream=is_stream).encoder(heartbeat="comment") for is_stream in (True, False))

    for is_yielded in (True, False):
        assert streamed.heartbeat(is_yielded=is_yielded) == b": keep-alive\n\n"
        assert whole.heartbeat(is_yielded=is_yielded) == b""
