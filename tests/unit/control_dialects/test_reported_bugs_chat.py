"""Bugs that users of other local servers reported, by what a user would see on /v1/chat/completions.

Each names its report. Those of other dialects have files of their own.
"""

import asyncio
import base64

import httpx
import msgspec
import pytest

from control.dialects.chat import parse_chat
from control.errors import InvalidRequest, LineFull
from engine import wire
from tests.unit.control_dialects.chat_checker import check_chat_body, check_chat_stream
from tests.unit.control_dialects.chat_stage import CALLED, FINISHED, call, written
from tests.unit.control_gateway.gateway_scripts import asking, in_decode, reached
from tests.unit.control_gateway.gateway_stage import accepted, assert_refused, chat_body, eventually, staged

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
PIXEL = base64.b64encode(b"a PNG of one pixel").decode()


@pytest.fixture
async def stage(tmp_path):
    async with staged(tmp_path) as stage:
        yield stage


def parse(messages=(USER,), **fields):
    return parse_chat(msgspec.json.encode({"model": "demo", "messages": list(messages), **fields}), "id")


def answered(*events, finished=FINISHED, has_usage=True, **fields):
    """The answer as a stream and as a whole."""
    streamed = parse(stream=True, stream_options={"include_usage": True} if has_usage else None, **fields)
    batches = [list(events), [finished]] if events else [[finished]]
    return (
        check_chat_stream(written(streamed, batches), has_usage_chunk=has_usage),
        check_chat_body(written(parse(**fields), batches)),
    )


def called_with(arguments) -> wire.ToolCall:
    made = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}
    [message] = parse([{"role": "assistant", "content": None, "tool_calls": [made]}]).generate.prompt.messages
    return message.tool_calls[0]


def test_a_picture_beside_text_in_a_tool_result_is_not_dropped():
    """jundot/omlx#393."""
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": [picture, {"type": "text", "text": "a door"}]}

    [message] = parse([result]).generate.prompt.messages

    assert [part.text for part in message.content] == ["[image: this model takes no images]", "a door"]


async def test_a_picture_of_one_pixel_is_refused_by_a_model_without_eyes_and_crashes_nothing(stage):
    """lmstudio-bug-tracker#1755."""
    stage.engine.count_refusal = wire.ErrorAnswer(
        code="invalid_request", message="This model takes no images.", param="prompt.messages[0].content[0]"
    )
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}

    answer = await stage.client.post(PATH, json=chat_body(messages=[{"role": "user", "content": [picture]}]))

    assert_refused(answer, 400, "invalid_request")
    assert answer.json()["error"]["param"] == "messages[0].content[0]"


def test_a_web_search_among_the_tools_does_not_make_the_request_fail():
    """ggml-org/llama.cpp#20156, openai/codex#10635."""
    assert [tool.name for tool in parse(tools=[{"type": "web_search"}, LOOK]).generate.prompt.tools] == ["look"]


def test_a_developer_message_is_a_system_message_wherever_it_stands():
    """raullenchai/Rapid-MLX#549; after a user turn: jundot/omlx#1503, anthropics/claude-code#77698."""
    roles = ["developer", "system", "user", "developer"]

    messages = parse([{"role": role, "content": role} for role in roles]).generate.prompt.messages

    assert [message.role for message in messages] == ["system", "system", "user", "system"]
    assert [message.content[0].text for message in messages] == roles


def test_an_answer_that_was_sent_back_as_output_text_is_understood():
    """vllm-project/vllm#45273."""
    [message] = parse(
        [{"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}]
    ).generate.prompt.messages

    assert message.content == (wire.TextPart(text="x"),)


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {"content": []}, {}])
def test_history_with_a_tool_call_and_no_text_goes_on(content):
    """ml-explore/mlx-lm#185, lmstudio-bug-tracker#261."""
    made = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}

    [_, message] = parse([USER, {"role": "assistant", **content, "tool_calls": [made]}]).generate.prompt.messages

    assert message.content == ()
    assert message.tool_calls[0].name == "look"


def test_a_streamed_answer_has_the_tool_calls_that_a_whole_one_has():
    """waybarrios/vllm-mlx#107, ddalcu/mlx-serve#287."""
    streamed, whole = answered(
        *call("look", '{"at":', "1}"), *call("look", "{}", index=1), finished=CALLED, tools=[LOOK]
    )

    assert [made.text for made in streamed.calls] == ['{"at":1}', "{}"]
    assert streamed.calls == whole.calls
    assert streamed.finish_reason == whole.finish_reason == "tool_calls"


def test_two_calls_of_one_answer_have_different_indexes_and_ids():
    """ollama/ollama#15457, #16212, #7881, lmstudio-bug-tracker#830: the checker holds every stream to it."""
    streamed, _ = answered(*call("look", "{}"), *call("look", "{}", index=1), finished=CALLED, tools=[LOOK])

    assert len({made.id for made in streamed.calls}) == 2
    assert all(made.id for made in streamed.calls)


async def test_a_client_that_goes_away_in_the_middle_does_not_take_the_server_with_it(stage):
    """ml-explore/mlx-lm#677, ggml-org/llama.cpp#24630."""
    stage.engine.scripts = [in_decode()]
    async with asking(stage, stream=True):
        await eventually(lambda: reached(stage, "decode"))

    await eventually(lambda: len(stage.engine.cancelled) == 1)

    assert (await stage.client.get("/v1/models")).status_code == 200
    assert [row.outcome for row in await stage.rows()] == ["cancelled"]


async def test_a_stream_that_cannot_be_admitted_is_an_error_with_a_status_not_an_empty_200(tmp_path):
    """jundot/omlx#3665."""
    async with staged(tmp_path, concurrency=1, limit=1) as stage:
        stage.engine.scripts = [in_decode()]
        async with asking(stage):
            await eventually(lambda: len(stage.line.running) == 1)
            async with asking(stage):
                await eventually(lambda: len(stage.line.waiting) == 1)

                answer = await stage.client.post(PATH, json=chat_body(stream=True))

    assert_refused(answer, LineFull(limit=1).status, LineFull(limit=1).code)
    assert answer.headers["retry-after"]


@pytest.mark.parametrize("has_usage", [False, True])
def test_usage_is_counted_once_and_only_for_those_who_asked(has_usage):
    """raullenchai/Rapid-MLX#792."""
    streamed, _ = answered(wire.TextDelta(text="x"), has_usage=has_usage)

    assert (streamed.usage is not None) == has_usage


def test_cached_tokens_are_told_with_a_stream_and_without():
    """jundot/omlx#919, lmstudio-bug-tracker#2390."""
    streamed, whole = answered(wire.TextDelta(text="x"))

    assert streamed.usage == whole.usage
    assert whole.usage["prompt_tokens_details"] == {"cached_tokens": 4}
    assert whole.usage["completion_tokens_details"] == {"reasoning_tokens": 2}


def test_no_cached_tokens_are_zero_and_not_left_out():
    """lmstudio-bug-tracker#2390."""
    streamed, whole = answered(finished=wire.Finished(reason="stop", usage=wire.Usage(prompt=3, completion=0)))

    assert streamed.usage["prompt_tokens_details"] == whole.usage["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_a_model_that_is_not_there_is_404_and_not_answered_by_another(stage):
    """ddalcu/mlx-serve#257, lmstudio-bug-tracker#619."""
    answer = await stage.client.post(PATH, json=chat_body(model="no-such-model-xyz"))

    assert_refused(answer, 404, "model_not_found")
    assert stage.engine.received == []


@pytest.mark.parametrize("arguments", ['{"value": ', '{"value": "a\nb"}', "look at it", '{"a": 1}}', '["a"]', "null"])
def test_a_broken_tool_call_in_the_history_does_not_end_the_session(arguments):
    """local-inference-lab/vllm#684, am17an/llama.cpp#43, OpenHands/software-agent-sdk#2887."""
    made = called_with(arguments)

    assert (made.arguments_raw, made.arguments) == (arguments, None)


@pytest.mark.parametrize("arguments", ["", "  ", None, {}])
def test_a_call_without_arguments_in_the_history_does_not_end_the_session(arguments):
    """MetaFARS/codex-relay#57."""
    made = called_with(arguments)

    assert (made.arguments_raw, made.arguments) == ("{}", {})


def test_a_call_without_arguments_is_answered_as_valid_json():
    """MetaFARS/codex-relay#57. The engine writes the braces of a whole call; a call that was cut off stays cut off."""
    streamed, whole = answered(*call("look", "{}"), finished=CALLED, tools=[LOOK])

    assert [msgspec.json.decode(made.text) for made in (*streamed.calls, *whole.calls)] == [{}, {}]


def test_json_that_was_asked_for_is_the_content_and_not_a_thought():
    """lmstudio-bug-tracker#1698, with strict as text as its client sends it."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": "true"}}

    streamed, whole = answered(wire.ReasoningDelta(text="hm"), wire.TextDelta(text='{"a":1}'), response_format=form)

    assert parse(response_format=form).generate.grammar.schema == schema
    for answer in (streamed, whole):
        assert (answer.content, answer.reasoning) == ('{"a":1}', "hm")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_schema_that_cannot_be_enforced_is_a_400_and_not_an_answer_without_it(stage, is_stream):
    """ggml-org/llama.cpp#19051."""
    stage.engine.refusal = wire.ErrorAnswer(
        code="invalid_request", message="the grammar cannot be compiled: nothing satisfies it", param="grammar"
    )
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "minProperties": 9}}}

    answer = await stage.client.post(PATH, json=chat_body(response_format=form, stream=is_stream))

    assert_refused(answer, 400, "invalid_request")
    assert answer.json()["error"]["param"] == "response_format"
    assert stage.engine.received[0].grammar.kind == "json_schema"


def test_the_keywords_in_schemas_of_real_clients_tools_are_handed_on_as_they_are():
    """lidge-jun/opencodex#2135: the engine lets a tool go unconstrained that it can't enforce."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "propertyNames": {"pattern": "^[a-z]+$"},
        "properties": {"n": {"exclusiveMinimum": 0, "anyOf": [{"const": 1}, {"format": "uri"}], "default": 1}},
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "look", "parameters": schema, "strict": False}}

    assert parse(tools=[tool]).generate.prompt.tools == (wire.Tool(name="look", parameters=schema),)


def test_a_thought_comes_and_goes_under_the_name_that_clients_read():
    """anomalyco/opencode#46061."""
    streamed, whole = answered(wire.ReasoningDelta(text="hm"), wire.TextDelta(text="x"))
    history = [
        {"role": "assistant", "content": "x", "reasoning": "hm"},
        {"role": "assistant", "reasoning_content": "so"},
    ]

    assert streamed.reasoning == whole.reasoning == "hm"
    assert [message.reasoning for message in parse(history).generate.prompt.messages] == ["hm", "so"]


async def test_a_long_wait_is_kept_alive_by_comments_that_no_sdk_reads_as_json(tmp_path):
    """openai-python and openai-node read every event as JSON: `event: ping` without data crashes both."""

    async def slow(request):
        yield accepted(request)
        await asyncio.sleep(0.15)
        yield [wire.TextDelta(text="x"), FINISHED]

    async with staged(tmp_path, grace_s=0.01, heartbeat_s=0.05) as stage:
        stage.engine.scripts = [slow]

        answer = await stage.client.post(PATH, json=chat_body(stream=True), timeout=httpx.Timeout(5))

    assert check_chat_stream(answer.content, has_usage_chunk=False).num_heartbeats >= 2


def test_one_token_inside_a_thought_is_an_answer_that_ends_by_length():
    """Probes with max_tokens 1 look whether a server is there."""
    finished = wire.Finished(reason="length", usage=wire.Usage(prompt=7, completion=1, reasoning=1))

    for answer in answered(wire.ReasoningDelta(text="hm"), finished=finished, max_tokens=1):
        assert (answer.content, answer.reasoning, answer.finish_reason) == ("", "hm", "length")


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"n": 2}, "n"), ({"logit_bias": {"x": 1}}, "logit_bias"), ({"top_logprobs": 3}, "top_logprobs")],
)
def test_what_is_not_done_is_refused_by_name_and_not_left_out_silently(fields, param):
    """jjang-ai/vmlx#127, vllm-project/vllm-metal#331."""
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)

    assert caught.value.param == param
