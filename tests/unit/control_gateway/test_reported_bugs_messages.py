"""Bugs that users of other local servers reported, by what a user would see on /v1/messages, over a socket.

Each names its report. Those of other dialects have files of their own.
"""

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio

from engine import wire
from tests.unit.control_dialects.messages_bodies import PIXEL, claude_code_body
from tests.unit.control_dialects.messages_checker import CheckedStream, checked
from tests.unit.control_gateway.dialect_calls import MESSAGES, as_new, asked, asking_in, refusal_of, row_with
from tests.unit.control_gateway.gateway_scripts import in_decode, reached
from tests.unit.control_gateway.gateway_stage import accepted, eventually, says, staged

PATH = "/v1/messages?beta=true"
COUNT_PATH = "/v1/messages/count_tokens?beta=true"
USER = {"role": "user", "content": "hi"}
TOOL = {"name": "look", "input_schema": {"type": "object"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
USAGE = wire.Usage(prompt=100, cached=75, completion=9, reasoning=4)
CALLED = wire.Finished(reason="tool_calls", usage=USAGE)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with staged(tmp_path_factory.mktemp("home"), concurrency=1, limit=1) as stage:
        yield stage, stage.source.engine


@pytest.fixture
def stage(shared):
    return as_new(*shared)


def saying(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return MESSAGES.body(messages=list(messages), **fields)


async def prompt_of(stage, *messages: dict[str, Any], **fields: Any) -> wire.Prompt:
    """What reaches the engine of a request that is answered."""
    answer = await stage.client.post(PATH, json=saying(*messages, **fields))
    assert answer.status_code == 200, answer.text
    return stage.engine.received[-1].prompt


async def answered(stage, *events: wire.AnyEvent, finished: wire.Finished, **fields: Any):
    """The answer as a stream and as a whole."""
    stage.engine.scripts = [says(*events, finished=finished)]
    streamed = await asked(stage, MESSAGES, stream=True, **fields)
    whole = await asked(stage, MESSAGES, **fields)
    return checked(streamed.content), whole.json()


def texts(message: wire.Message) -> list[str]:
    return [part.text for part in message.content if isinstance(part, wire.TextPart)]


def call(name: str, *pieces: str, index: int = 0) -> list[wire.AnyEvent]:
    deltas = [wire.ToolCallDelta(index=index, arguments=piece) for piece in pieces]
    return [
        wire.ToolCallBegin(index=index, id=f"call_{index}", name=name),
        *deltas,
        wire.ToolCallEnd(index=index),
    ]


# --- What is sent ---


async def test_the_first_turn_of_claude_code_has_a_system_message_behind_the_user_and_is_answered(stage):
    """jundot/omlx#1503, anthropics/claude-code#77698."""
    prompt = await prompt_of(stage, USER, {"role": "system", "content": "Available agent types: none"})

    assert any("Available agent types: none" in text for message in prompt.messages for text in texts(message))


async def test_a_picture_beside_text_in_a_tool_result_is_not_dropped(stage):
    """jundot/omlx#393."""
    call_made = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [IMAGE, {"type": "text", "text": "a door"}]}

    prompt = await prompt_of(stage, USER, call_made, {"role": "user", "content": [result]}, tools=[TOOL])

    parts = [part.text for message in prompt.messages[2:] for part in message.content]
    assert parts == ["[image: this model takes no images]", "a door"]


async def test_a_picture_of_one_pixel_is_refused_by_a_model_without_eyes_and_crashes_nothing(stage):
    """lmstudio-bug-tracker#1755."""
    stage.engine.count_refusal = wire.ErrorAnswer(
        code="invalid_request", message="This model takes no images.", param="prompt.messages[0].content[0]"
    )

    answer = await stage.client.post(PATH, json=saying({"role": "user", "content": [IMAGE]}))

    refusal = refusal_of(answer, is_anthropic=True)
    assert refusal.status == 400
    assert refusal.message == "messages[0]: This model takes no images."


async def test_tokens_are_counted_really_and_by_the_same_prompt(stage):
    """lmstudio-bug-tracker#2055 (200 for anything); copilot-api#210 (another renderer, too small a count)."""
    body = claude_code_body()
    stage.engine.prompt_tokens = 1234

    counted = await stage.client.post(COUNT_PATH, json=body)
    nonsense = await stage.client.post(COUNT_PATH, json={"model": "demo"})
    await stage.client.post(PATH, json=body)

    assert counted.json() == {"input_tokens": 1234}
    assert nonsense.status_code == 400
    assert stage.engine.counted[0].prompt == stage.engine.received[0].prompt


async def test_a_billing_header_that_changes_does_not_cost_the_prefix(stage):
    """waybarrios/vllm-mlx#277, ggml-org/llama.cpp#21793; the tag of tokens left as well."""
    for cch, tokens_left in (("a1b2c", 190_000), ("99999", 180_000)):
        await stage.client.post(PATH, json=claude_code_body(cch=cch, tokens_left=tokens_left))

    first, second = (request.prompt for request in stage.engine.received)
    assert first == second


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21", "whatever", None])
async def test_the_key_is_taken_from_either_header_and_any_version_is_right(stage, header, version):
    """jundot/omlx#379. New SDKs send Bearer and a version of 2026."""
    headers = {header: f"Bearer {stage.key}" if header == "authorization" else stage.key}
    headers |= {} if version is None else {"anthropic-version": version}

    stage.client.headers.pop("authorization", None)
    try:
        answer = await stage.client.post(PATH, json=saying(USER), headers=headers)
    finally:
        stage.client.headers["authorization"] = f"Bearer {stage.key}"

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_reference", "tool_name": "look"},
        {"type": "tool_addition", "tools": [TOOL]},
        {"type": "something_of_next_year", "text": "x"},
    ],
)
async def test_a_block_that_nobody_knows_does_not_make_the_request_fail(stage, block):
    """jundot/omlx#3754."""
    prompt = await prompt_of(stage, {"role": "user", "content": [{"type": "text", "text": "hi"}, block]})

    assert "hi" in texts(prompt.messages[0])


async def test_the_schemas_of_claude_codes_tools_do_not_make_the_request_fail(stage):
    """lidge-jun/opencodex#2135: the engine lets a tool go unconstrained that it can't enforce."""
    body = claude_code_body()

    answer = await stage.client.post(PATH, json=body)

    assert answer.status_code == 200
    sent = stage.engine.received[0].prompt.tools
    assert [tool.parameters for tool in sent] == [tool["input_schema"] for tool in body["tools"]]


async def test_a_schema_that_cannot_be_enforced_is_a_400_and_not_an_answer_without_it(stage):
    """ggml-org/llama.cpp#19051."""
    stage.engine.refusal = wire.ErrorAnswer(code="invalid_request", message="Nothing satisfies it.", param="grammar")
    form = {"type": "json_schema", "schema": {"type": "object", "minProperties": 9}}

    answer = await stage.client.post(PATH, json=saying(USER, output_config={"format": form}))

    refusal = refusal_of(answer, is_anthropic=True)
    assert (refusal.status, refusal.message) == (400, "output_config.format: Nothing satisfies it.")
    assert stage.engine.received[0].grammar.kind == "json_schema"


async def test_a_request_that_leaves_the_stream_field_out_gets_one_message(stage):
    """makecindy/cindy#2351, rynfar/meridian#1098: Claude Code's fallback after a stream that failed."""
    answer = await stage.client.post(PATH, json=saying(USER))

    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["type"] == "message"


# --- What comes back ---


@pytest.mark.parametrize("is_early", [False, True])
async def test_the_context_of_claude_code_is_never_zero_percent(tmp_path, is_early):
    """sgl-project/sglang#20678, CLIProxyAPI#1700, ollama#13934: without the counts it never compacts."""
    async with staged(tmp_path, grace_s=0.01, heartbeat_s=0.01) as stage:
        stage.engine.scripts = [says(wire.TextDelta(text="x"), finished=wire.Finished(reason="stop", usage=USAGE))]
        if is_early:
            engine, stage.source.engine = stage.source.engine, None
            stage.line.hold()
        async with stage.client.stream("POST", PATH, json=saying(USER, stream=True)) as answer:
            if is_early:
                stage.source.engine = engine
                stage.line.open()
            stream = checked(await answer.aread())

    began = stream.start["usage"]
    assert sum(began[name] for name in began if name != "output_tokens") > 0
    assert stream.usage["input_tokens"] + stream.usage["cache_read_input_tokens"] == 100


async def test_cached_tokens_are_not_counted_twice(stage):
    """ogx-ai/ogx#6415, jundot/omlx#1487: 100 tokens with 75 from the cache are 25 and 75."""
    streamed, whole = await answered(
        stage, wire.TextDelta(text="x"), finished=wire.Finished(reason="stop", usage=USAGE)
    )

    for usage in (streamed.usage, whole["usage"]):
        assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (25, 75, 9)
        assert usage["cache_creation_input_tokens"] == 0


def block_types(streamed: CheckedStream, whole: dict[str, Any]) -> tuple[list[str], list[str]]:
    return [block["type"] for block in streamed.blocks], [block["type"] for block in whole["content"]]


async def test_every_delta_belongs_to_a_block_that_was_started(stage):
    """BerriAI/litellm#13373, #33224. The checker holds every stream to it; here with all kinds of blocks."""
    events = [
        wire.ReasoningDelta(text="so"),
        wire.TextDelta(text="I look."),
        *call("look", '{"at":', "1}"),
        *call("look", "{}", index=1),
    ]

    streamed, whole = await answered(stage, *events, finished=CALLED, tools=[TOOL])

    expected = ["thinking", "text", "tool_use", "tool_use"]
    assert block_types(streamed, whole) == (expected, expected)


async def test_arguments_come_as_deltas_and_not_in_the_start_of_the_block(stage):
    """inflaborg/ccrelay#119: Claude Code sees {} otherwise."""
    streamed, whole = await answered(stage, *call("look", '{"at":', "1}"), finished=CALLED, tools=[TOOL])

    [block] = streamed.blocks
    assert block["start"]["input"] == {}
    assert json.loads(block["value"]) == whole["content"][0]["input"] == {"at": 1}


async def test_a_call_without_arguments_is_answered_as_valid_json(stage):
    """MetaFARS/codex-relay#57: an empty text poisons the session."""
    streamed, whole = await answered(stage, *call("look", "{}"), finished=CALLED, tools=[TOOL])

    assert streamed.values("tool_use") == ["{}"]
    assert whole["content"][0]["input"] == {}


@pytest.mark.parametrize("thinking", [{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}])
async def test_a_thought_is_a_block_with_a_signature_both_ways(stage, thinking):
    """ggml-org/llama.cpp#18542."""
    events = [wire.ReasoningDelta(text="so"), wire.TextDelta(text="x")]

    streamed, whole = await answered(
        stage, *events, finished=wire.Finished(reason="stop", usage=USAGE), thinking=thinking
    )

    assert streamed.values("thinking") == ["so"]
    assert (whole["content"][0]["type"], whole["content"][0]["thinking"]) == ("thinking", "so")
    assert whole["content"][0]["signature"] == streamed.blocks[0]["signature"] != ""


async def test_a_stop_sequence_is_told_to_the_engine_and_named_in_the_answer(stage):
    """raullenchai/Rapid-MLX#469, exo#2122."""
    finished = wire.Finished(reason="stop", stop_sequence="STOP", usage=USAGE)

    streamed, whole = await answered(stage, wire.TextDelta(text="a"), finished=finished, stop_sequences=["STOP"])

    assert [request.stop for request in stage.engine.received] == [("STOP",)] * 2
    assert (streamed.stop_reason, streamed.stop_sequence) == ("stop_sequence", "STOP")
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "STOP")


async def test_a_streamed_answer_has_the_tool_calls_that_a_whole_one_has(stage):
    """waybarrios/vllm-mlx#107, ddalcu/mlx-serve#287."""
    streamed, whole = await answered(stage, *call("look", '{"at":1}'), finished=CALLED, tools=[TOOL])

    [block] = streamed.blocks
    [made] = whole["content"]
    assert (block["start"]["id"], block["start"]["name"]) == (made["id"], made["name"])
    assert streamed.stop_reason == whole["stop_reason"] == "tool_use"


async def test_an_answer_of_nothing_still_has_a_block(stage):
    """Claude Code ends the session at a message without content."""
    streamed, whole = await answered(stage, finished=wire.Finished(reason="stop", usage=USAGE))

    assert streamed.values("text") == [""]
    assert whole["content"] == [{"type": "text", "text": ""}]


# --- What goes wrong ---


async def test_a_client_that_goes_away_in_the_middle_does_not_take_the_server_with_it(stage):
    """ml-explore/mlx-lm#677, ggml-org/llama.cpp#24630."""
    stage.engine.scripts = [in_decode(), says(wire.TextDelta(text="next"))]
    async with asking_in(stage, MESSAGES, stream=True):
        await eventually(lambda: reached(stage, "decode"))

    await eventually(lambda: len(stage.engine.cancelled) == 1)
    answer = await asked(stage, MESSAGES)

    assert answer.json()["content"][0]["text"] == "next"
    assert (await row_with(stage, stage.engine.received[0].id)).outcome == "cancelled"


async def test_copies_that_a_client_gave_up_do_not_run_one_behind_the_other(stage):
    """tale#3387, #3396: identical requests stood in line for twenty minutes."""
    stage.engine.scripts = [gate := in_decode(), says(wire.TextDelta(text="next"))]
    async with asking_in(stage, MESSAGES, stream=True):
        await eventually(lambda: len(stage.engine.received) == 1)
        for _ in range(3):
            async with asking_in(stage, MESSAGES, stream=True):
                await eventually(lambda: len(stage.line.waiting) == 1)
            await eventually(lambda: not stage.line.waiting, within_s=1)
        gate.opened.set()
        await eventually(lambda: not stage.line.running)

    assert len(stage.engine.received) == 1


async def test_a_stream_that_cannot_be_admitted_is_an_error_with_a_status_not_an_empty_200(stage):
    """jundot/omlx#3665."""
    stage.line.hold()
    async with asking_in(stage, MESSAGES):
        await eventually(lambda: len(stage.line.waiting) == 1)

        answer = await asked(stage, MESSAGES, stream=True)
    await eventually(lambda: not stage.line.waiting)

    assert refusal_of(answer, is_anthropic=True).type == "rate_limit_error"


async def test_a_model_that_is_not_there_is_404_and_not_answered_by_another(stage):
    """ddalcu/mlx-serve#257, lmstudio-bug-tracker#619."""
    answer = await asked(stage, MESSAGES, model="no-such-model-xyz")

    assert refusal_of(answer, is_anthropic=True).type == "not_found_error"
    assert stage.engine.received == []


async def test_a_prefill_longer_than_five_minutes_is_one_request(tmp_path, monkeypatch):
    """Wei-Shaw/sub2api#3626: pings do not wind up Claude Code's watchdog. Here with all times a thousandth."""
    monkeypatch.setattr("control.delivery.YIELD_LIMIT_S", 0.06)

    async def slow(request):
        yield accepted(request)
        await asyncio.sleep(0.4)
        yield [wire.TextDelta(text="x"), wire.Finished(reason="stop", usage=USAGE)]

    async with staged(tmp_path, grace_s=0.01, heartbeat_s=0.015) as stage:
        stage.engine.scripts = [slow]
        stream = checked((await asked(stage, MESSAGES, stream=True)).content)

    assert stream.names[0] == "message_start"
    assert stream.names.count("message_delta") >= 3
    assert stream.names.count("ping") > stream.names.count("message_delta")
