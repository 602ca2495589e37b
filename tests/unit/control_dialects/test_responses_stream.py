"""The streams of /v1/responses, each through the checker of what the strictest consumer needs."""

import pytest

from control.dialects.error_answers import sentence_of
from control.dialects.exchange import HEARTBEAT_MODES, HeartbeatMode
from control.errors import (
    ApiError,
    CancelledByOperator,
    ContextTooLong,
    EngineDied,
    GatewayRestarts,
    InvalidRequest,
    LineFull,
    RequestFailed,
)
from engine import wire
from tests.unit.control_dialects.responses_checker import check, events_of
from tests.unit.control_dialects.responses_stage import (
    ACCEPTED,
    NAMESPACE,
    PATCH,
    SHELL,
    USAGE,
    call,
    played,
    streaming,
    whole_body,
)

TEXT = wire.TextDelta(text="Hello")
ANSWERS: dict[str, list[wire.AnyEvent]] = {
    "a text": [TEXT, wire.TextDelta(text=" there")],
    "nothing at all": [],
    "only empty pieces": [wire.TextDelta(text=""), wire.ReasoningDelta(text="")],
    "thought, text and a call": [wire.ReasoningDelta(text="Hm."), TEXT, *call("shell", '{"command"', ':["ls"]}')],
    "thought twice": [wire.ReasoningDelta(text="One."), TEXT, wire.ReasoningDelta(text="Two."), TEXT],
    "a call in a namespace": call("multi_agent_v1__spawn_agent", "{}"),
    "a custom call": call("apply_patch", '{"input":', ' "*** Begin', '\\n+caf\\u00e9"', "}"),
    "a custom call in another form": call("apply_patch", "*** Begin"),
    "a call without arguments": call("shell", "{}"),
    "a name that no tool has": call("made_up", "{}"),
    "calls side by side": [
        wire.ToolCallBegin(index=0, id="a", name="shell"),
        wire.ToolCallBegin(index=1, id="b", name="apply_patch"),
        wire.ToolCallDelta(index=1, arguments='{"input":"x"}'),
        wire.ToolCallDelta(index=0, arguments="{}"),
        wire.ToolCallEnd(index=0),
        wire.ToolCallEnd(index=1),
    ],
    "a call that was cut off": [wire.ToolCallBegin(index=0, id="a", name="shell"), *call("x", '{"a', index=1)],
    "a prompt that took a while": [wire.Prefill(processed=10, cached=5, total=100), TEXT],
}
TOOLS = [SHELL, NAMESPACE, PATCH]


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_every_answer_is_a_valid_stream(answer: list[wire.AnyEvent], reason: wire.FinishReason):
    checker = check(played(streaming(tools=TOOLS), answer, reason=reason))

    assert checker.terminal is not None
    assert checker.terminal["status"] == ("incomplete" if reason == "length" else "completed")


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_without_a_stream_the_answer_is_the_same(answer: list[wire.AnyEvent]):
    streamed = check(played(streaming(tools=TOOLS), answer)).terminal

    body = whole_body(answer, tools=TOOLS)

    assert body == streamed


@pytest.mark.parametrize("mode", HEARTBEAT_MODES["responses"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_heartbeats_may_come_between_any_two_events(answer: list[wire.AnyEvent], mode: HeartbeatMode):
    encoder = streaming(tools=TOOLS, heartbeat=mode)
    frames = []

    for event in [ACCEPTED, *answer]:
        frames += [encoder.heartbeat(is_yielded=False), encoder.heartbeat(is_yielded=True), encoder.encode([event])]
    frames.append(encoder.encode([wire.Finished(reason="stop", usage=USAGE)]))

    check(b"".join(frames))


def test_the_first_heartbeat_begins_the_stream_and_the_next_ones_are_typed():
    encoder = streaming()

    frames = encoder.heartbeat(is_yielded=True) + encoder.heartbeat(is_yielded=False)

    assert check(frames, is_over=False).types == ["created", "in_progress", "keepalive"]
    assert frames.endswith(b'event: keepalive\ndata: {"type":"keepalive","sequence_number":2}\n\n')


def test_in_progress_is_repeated_before_the_first_item_and_comments_come_after():
    encoder = streaming(heartbeat="in_progress")

    before = [encoder.heartbeat(is_yielded=True), encoder.heartbeat(is_yielded=True)]
    after = [encoder.encode([TEXT]), encoder.heartbeat(is_yielded=True)]

    checker = check(b"".join(before + after), is_over=False)
    assert checker.types[:3] == ["created", "in_progress", "in_progress"]
    assert checker.num_comments == 1


def test_nothing_goes_out_before_the_model_says_something():
    encoder = streaming()

    frames = encoder.encode([ACCEPTED, wire.Prefill(processed=1, cached=0, total=2), wire.TextDelta(text="")])

    assert frames == b""


def test_a_second_run_goes_on_in_the_same_stream():
    encoder = streaming()
    beats = encoder.heartbeat(is_yielded=True) + encoder.encode([ACCEPTED]) + encoder.heartbeat(is_yielded=True)

    stream = beats + played(encoder, [TEXT])

    assert check(stream).output[0]["content"][0]["text"] == "Hello"


def test_the_model_that_answers_is_named_even_if_it_changed_while_the_stream_waited():
    encoder = streaming()
    begun = encoder.heartbeat(is_yielded=True)

    encoder.expect(model="another", prompt_tokens=None)

    terminal = check(begun + played(encoder, [TEXT])).terminal
    assert terminal is not None and terminal["model"] == "another"


def test_usage_counts_cached_tokens_as_input_and_names_them():
    terminal = check(played(streaming(), [TEXT])).terminal

    assert terminal is not None
    assert terminal["usage"] == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 75, "cache_write_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 120,
    }


def test_a_text_that_was_cut_by_the_limit_is_an_incomplete_item():
    checker = check(played(streaming(), [TEXT], reason="length"))

    assert checker.output[0]["status"] == "incomplete"
    assert checker.types[-1] == "incomplete"


def test_a_call_in_a_namespace_comes_back_with_name_and_namespace_apart():
    checker = check(played(streaming(tools=TOOLS), call("multi_agent_v1__spawn_agent", "{}")))

    [item] = checker.output
    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "spawn_agent", "multi_agent_v1")


def test_a_patch_comes_back_as_the_raw_input_of_a_custom_tool():
    checker = check(played(streaming(tools=TOOLS), call("apply_patch", '{"input": "*** Be', "gin\\n", '+a"}')))

    [item] = checker.output
    assert (item["type"], item["input"], item["call_id"]) == ("custom_tool_call", "*** Begin\n+a", "call_1")
    assert "custom_tool_call_input.delta" in checker.types


def test_a_call_that_was_cut_off_before_its_arguments_is_given_none():
    checker = check(played(streaming(tools=TOOLS), call("shell"), reason="length"))

    assert (checker.output[0]["arguments"], checker.output[0]["status"]) == ("", "incomplete")


def test_a_call_whose_arguments_are_cut_off_is_incomplete():
    checker = check(played(streaming(tools=TOOLS), call("shell", '{"command": ["l'), reason="length"))

    assert (checker.output[0]["arguments"], checker.output[0]["status"]) == ('{"command": ["l', "incomplete")


def test_probabilities_stand_beside_the_text():
    token = wire.TokenLogprob(
        "Hello", b"Hello", -0.5, (wire.Alternative("Hello", -0.5), wire.Alternative("\ufffd", -2))
    )
    pieces = [wire.TextDelta(text="Hello", logprobs=(token,)), wire.TextDelta(text="", logprobs=(token,))]

    [item] = check(played(streaming(), pieces)).output

    first, second = item["content"][0]["logprobs"]
    assert first == second
    assert first["top_logprobs"][0] == {"token": "Hello", "logprob": -0.5, "bytes": [72, 101, 108, 108, 111]}
    assert first["top_logprobs"][1]["bytes"] == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineDied(), "engine_died"),
        (GatewayRestarts(), "gateway_restarts"),
        (RequestFailed("It broke.", engine_code="internal"), "engine_error"),
        (LineFull(limit=256), "rate_limit_exceeded"),
        (ContextTooLong(prompt_tokens=9, maximum_context_tokens=8), "context_length_exceeded"),
        (InvalidRequest("The schema is not supported.", param="text.format"), "invalid_prompt"),
        (CancelledByOperator(), "invalid_prompt"),
    ],
)
def test_what_fails_in_the_midst_has_a_code_that_codex_retries_only_when_that_helps(error: ApiError, code: str):
    encoder = streaming()
    begun = encoder.encode([ACCEPTED, wire.ReasoningDelta(text="Hm."), TEXT])

    terminal = check(begun + encoder.error(error)).terminal

    assert terminal is not None
    assert (terminal["error"]["code"], terminal["error"]["message"]) == (code, sentence_of(error))
    assert [item["type"] for item in terminal["output"]] == ["reasoning"]


def test_what_fails_after_a_heartbeat_is_told_as_an_event():
    encoder = streaming()

    frames = encoder.heartbeat(is_yielded=True) + encoder.error(EngineDied())

    assert check(frames).types == ["created", "in_progress", "failed"]


def test_the_response_repeats_what_was_asked():
    asked = {
        "tools": [*TOOLS, {"type": "web_search"}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "user": "me",
        "truncation": "auto",
        "prompt_cache_key": "k",
        "instructions": "Be brief.",
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "max_output_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "store": False,
    }

    created = events_of(played(streaming(**asked), [TEXT]))[0]["response"]

    assert {name: created[name] for name in asked} == asked
    assert (created["id"], created["created_at"], created["model"]) == ("resp_r1", 1_700_000_000, "demo-4bit")
