"""POST /v1/chat/completions over real sockets, with the official SDK and without."""

import openai
import pytest

from engine import wire
from tests.unit.control_gateway.gateway_stage import FINISHED, TIMINGS, USAGE, chat_body, chunks, says, staged

THOUGHT = wire.ReasoningDelta(text="so")
CALL = (
    wire.ToolCallBegin(index=0, id="call_1", name="look"),
    wire.ToolCallDelta(index=0, arguments='{"at":'),
    wire.ToolCallDelta(index=0, arguments='"door"}'),
    wire.ToolCallEnd(index=0),
)
CALLED = wire.Finished(reason="tool_calls", usage=USAGE, timings=TIMINGS)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture
async def stage(tmp_path):
    async with staged(tmp_path) as stage:
        yield stage


@pytest.fixture
async def sdk(stage):
    async with openai.AsyncOpenAI(base_url=stage.url, api_key=stage.key, max_retries=0) as client:
        yield client


async def test_the_sdk_gets_a_whole_answer(stage, sdk):
    stage.engine.scripts = [says(THOUGHT, wire.TextDelta(text="hel"), wire.TextDelta(text="lo"))]

    answer = await sdk.chat.completions.create(**chat_body())

    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].message.reasoning_content == "so"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "demo"
    assert answer.id.startswith("chatcmpl-")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (7, 5, 12)
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert answer.usage.completion_tokens_details.reasoning_tokens == 2


async def test_the_sdk_streams_the_same_answer(stage, sdk):
    stage.engine.scripts = [says(THOUGHT, wire.TextDelta(text="hel"), wire.TextDelta(text="lo"))]

    stream = await sdk.chat.completions.create(**chat_body(), stream=True, stream_options={"include_usage": True})
    parts = [part async for part in stream]

    *deltas, usage = parts
    assert deltas[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in deltas) == "hello"
    assert deltas[1].choices[0].delta.reasoning_content == "so"
    assert [part.choices[0].finish_reason for part in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    assert usage.choices == []
    assert usage.usage.prompt_tokens_details.cached_tokens == 4
    assert len({(part.id, part.created, part.model) for part in parts}) == 1


async def test_the_sdks_stream_helper_assembles_tool_calls(stage, sdk):
    stage.engine.scripts = [says(THOUGHT, *CALL, finished=CALLED)]

    async with sdk.chat.completions.stream(**chat_body(), tools=TOOLS) as stream:
        async for _ in stream:
            pass
        completion = await stream.get_final_completion()

    choice = completion.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].id == "call_1"
    assert choice.message.tool_calls[0].function.name == "look"
    assert choice.message.tool_calls[0].function.arguments == '{"at":"door"}'


async def test_two_tool_calls_come_whole_without_a_stream(stage, sdk):
    second = (
        wire.ToolCallBegin(index=1, id="call_2", name="wait"),
        wire.ToolCallDelta(index=1, arguments="{}"),
        wire.ToolCallEnd(index=1),
    )
    stage.engine.scripts = [says(*CALL, *second, finished=CALLED)]

    answer = await sdk.chat.completions.create(**chat_body(), tools=TOOLS)

    message = answer.choices[0].message
    assert message.content is None
    assert [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("call_1", "look", '{"at":"door"}'),
        ("call_2", "wait", "{}"),
    ]


@pytest.mark.parametrize("written", ["", '{"path": "/et'])
async def test_a_call_that_was_cut_off_has_the_arguments_that_were_written_and_no_others(stage, sdk, written):
    """An empty object would be a whole call, which the model never made: an agent would act on it."""
    pieces = [wire.ToolCallDelta(index=0, arguments=written)] if written else []
    call = (wire.ToolCallBegin(index=0, id="call_1", name="wait"), *pieces, wire.ToolCallEnd(index=0))
    cut = wire.Finished(reason="length", usage=wire.Usage(prompt=9, completion=16))
    stage.engine.scripts = [says(*call, finished=cut)]

    whole = await sdk.chat.completions.create(**chat_body(), tools=TOOLS)
    answer = await stage.client.post("/v1/chat/completions", json=chat_body(stream=True))

    calls = [chunk["choices"][0]["delta"].get("tool_calls") for chunk in chunks(answer.text)]
    assert "".join(call[0]["function"]["arguments"] for call in calls if call) == written
    assert whole.choices[0].message.tool_calls[0].function.arguments == written
    assert whole.choices[0].finish_reason == "length"


async def test_log_probabilities_come_both_ways(stage, sdk):
    top = (wire.Alternative(token="he", logprob=-0.5), wire.Alternative(token="x", logprob=-2.0))
    token = wire.TokenLogprob(token="he", bytes=(104, 101), logprob=-0.5, top=top)
    stage.engine.scripts = [says(wire.TextDelta(text="he", logprobs=(token,)))]

    answer = await sdk.chat.completions.create(**chat_body(), logprobs=True, top_logprobs=2)
    stream = await sdk.chat.completions.create(**chat_body(), logprobs=True, top_logprobs=2, stream=True)
    streamed = [part.choices[0].logprobs async for part in stream]

    content = answer.choices[0].logprobs.content
    assert (content[0].token, content[0].bytes, content[0].logprob) == ("he", [104, 101], -0.5)
    assert [each.token for each in content[0].top_logprobs] == ["he", "x"]
    assert [each.content for each in streamed if each is not None] == [content]
    assert stage.engine.received[0].sampling.logprobs == 2


async def test_log_probabilities_of_the_thought_have_a_list_of_their_own(stage, sdk):
    token = wire.TokenLogprob(token="so", bytes=(115, 111), logprob=-0.25)
    stage.engine.scripts = [says(wire.ReasoningDelta(text="so", logprobs=(token,)))]

    answer = await sdk.chat.completions.create(**chat_body(), logprobs=True)
    stream = await sdk.chat.completions.create(**chat_body(), logprobs=True, stream=True)
    streamed = [part.choices[0].logprobs async for part in stream]

    expected = [{"token": "so", "bytes": [115, 111], "logprob": -0.25, "top_logprobs": []}]
    assert answer.choices[0].logprobs.content == []
    assert answer.choices[0].logprobs.reasoning_content == expected
    assert [each.reasoning_content for each in streamed if each is not None] == [expected]


async def test_a_stream_is_data_frames_only_and_ends_with_done(stage):
    answer = await stage.client.post("/v1/chat/completions", json=chat_body(stream=True))

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["x-request-id"]
    frames = answer.text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(frame.startswith("data: {") for frame in frames[:-2])


async def test_usage_is_streamed_only_to_those_who_ask(stage):
    answer = await stage.client.post("/v1/chat/completions", json=chat_body(stream=True))

    assert not any(chunk.get("usage") for chunk in chunks(answer.text))
    assert all(chunk["choices"] for chunk in chunks(answer.text))


async def test_one_token_inside_the_thought_is_an_answer_of_length(stage, sdk):
    finished = wire.Finished(reason="length", usage=wire.Usage(prompt=7, completion=1, reasoning=1))
    stage.engine.scripts = [says(THOUGHT, finished=finished)]

    answer = await sdk.chat.completions.create(**chat_body(), max_tokens=1)

    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == ""


async def test_the_answer_names_the_model_that_answered_not_the_alias(stage, sdk):
    answer = await sdk.chat.completions.create(**chat_body(model="gpt-5"))

    assert answer.model == "demo"


async def test_an_unknown_model_is_404_for_the_sdk(sdk):
    with pytest.raises(openai.NotFoundError) as caught:
        await sdk.chat.completions.create(**chat_body(model="nobody"))

    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("prompt_tokens", [4096, 5000])
async def test_a_prompt_that_leaves_no_room_for_an_answer_is_a_400_with_both_numbers(stage, is_stream, prompt_tokens):
    stage.engine.prompt_tokens = prompt_tokens

    answer = await stage.client.post("/v1/chat/completions", json=chat_body(stream=is_stream))

    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert f"prompt is too long: {prompt_tokens} tokens > 4095 maximum" in error["message"]
    assert stage.engine.received == []
    assert [(row.outcome, row.error_code) for row in await stage.rows()] == [("rejected", "context_length_exceeded")]


async def test_a_prompt_that_leaves_room_for_one_token_is_run(stage):
    stage.engine.prompt_tokens = 4095

    answer = await stage.client.post("/v1/chat/completions", json=chat_body())

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("engine_field", "field"),
    [
        ("prompt.messages[0].content[0]", "messages[0].content[0]"),
        ("prompt.template_arguments.messages", "chat_template_kwargs.messages"),
        (None, None),
    ],
)
@pytest.mark.parametrize("is_refused_early", [False, True])
async def test_what_the_engine_refuses_names_the_clients_field(stage, engine_field, field, is_refused_early):
    refusal = wire.ErrorAnswer(code="not_implemented", message="No vision.", param=engine_field)
    if is_refused_early:
        stage.engine.count_refusal = refusal
    else:
        stage.engine.refusal = refusal

    answer = await stage.client.post("/v1/chat/completions", json=chat_body(stream=True))

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert answer.json()["error"]["message"] == ("No vision." if field is None else f"{field}: No vision.")
    assert len(stage.engine.received) == (0 if is_refused_early else 1)


async def test_a_failure_in_the_middle_is_a_typed_error_for_the_sdk(stage, sdk):
    failed = wire.Failed(code="out_of_memory", message="4 GiB are missing.")

    async def script(request):
        yield [wire.TextDelta(text="hel")]
        yield [failed]

    stage.engine.scripts = [script]
    stream = await sdk.chat.completions.create(**chat_body(), stream=True)

    with pytest.raises(openai.APIError, match="4 GiB are missing") as caught:
        _ = [part async for part in stream]

    assert caught.value.code == "engine_error"
    assert [(row.outcome, row.error_code) for row in await stage.rows()] == [("failed", "engine_error")]


async def test_the_row_holds_what_the_engine_measured(stage):
    await stage.client.post("/v1/chat/completions", json=chat_body(stream=True))

    [row] = await stage.rows()
    assert (row.outcome, row.error_code, row.finish_reason) == ("completed", None, FINISHED.reason)
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.reasoning_tokens) == (7, 4, 5, 2)
    assert (row.prefill_ms, row.decode_ms) == (20.0, 30.0)
    assert row.queue_ms >= 1.0
    assert 0 < row.ttft_ms <= row.total_ms
    assert (row.key, row.dialect, row.model, row.stream, row.number) == ("test", "chat", "demo", True, 1)


async def test_the_engine_gets_the_request_that_was_counted(stage):
    await stage.client.post("/v1/chat/completions", json=chat_body(max_tokens=9, stop="END", seed=3))

    [request] = stage.engine.received
    assert stage.engine.counted[0].id == request.id
    assert (request.max_tokens, request.stop, request.sampling.seed) == (9, ("END",), 3)
    assert request.prompt.messages == (wire.Message(role="user", content=(wire.TextPart(text="hi"),)),)
