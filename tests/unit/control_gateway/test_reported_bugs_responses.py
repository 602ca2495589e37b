"""Bugs that users of other local servers reported, by what a user would see on /v1/responses, over a socket.

Each names its report. Those of other dialects have files of their own.
"""

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio
from backports import zstd

from engine import wire
from tests.unit.control_dialects.responses_checker import Checker, check
from tests.unit.control_dialects.responses_stage import NAMESPACE, PATCH, PIXEL, SHELL, call, codex_body
from tests.unit.control_gateway.dialect_calls import RESPONSES, as_new, asked, asking_in, refusal_of, row_with
from tests.unit.control_gateway.gateway_scripts import in_decode, reached
from tests.unit.control_gateway.gateway_stage import accepted, eventually, says, staged

PATH = "/v1/responses"
USAGE = wire.Usage(prompt=100, cached=75, completion=9, reasoning=4)
DONE = wire.Finished(reason="stop", usage=USAGE)
CALLED = wire.Finished(reason="tool_calls", usage=USAGE)
USER = {"role": "user", "content": "hi"}
NO_IMAGES = "[image: this model takes no images]"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with staged(tmp_path_factory.mktemp("home"), concurrency=1, limit=1) as stage:
        yield stage, stage.source.engine


@pytest.fixture
def stage(shared):
    return as_new(*shared)


async def prompt_of(stage, *items: dict[str, Any], **fields: Any) -> wire.Prompt:
    """What reaches the engine of a request that is answered."""
    answer = await asked(stage, RESPONSES, input=list(items), **fields)
    assert answer.status_code == 200, answer.text
    return stage.engine.received[-1].prompt


async def answered(stage, *events: wire.AnyEvent, finished: wire.Finished = DONE, **fields: Any):
    """The answer as a stream and as a whole."""
    stage.engine.scripts = [says(*events, finished=finished)]
    streamed = await asked(stage, RESPONSES, stream=True, **fields)
    whole = await asked(stage, RESPONSES, **fields)
    return check(streamed.content), whole.json()


def texts(message: wire.Message) -> list[str]:
    return [part.text for part in message.content if isinstance(part, wire.TextPart)]


def made(item: dict[str, Any]) -> dict[str, Any]:
    """An item without what differs from one answer to the next."""
    return {name: value for name, value in item.items() if name != "id"}


# --- What is sent ---


@pytest.mark.parametrize(
    "tool", [{"type": "web_search", "external_web_access": True}, {"type": "local_shell"}, {"type": "x"}]
)
async def test_a_tool_of_another_kind_does_not_make_the_request_fail(stage, tool):
    """ggml-org/llama.cpp#20156, openai/codex#10635: every request of Codex has one."""
    prompt = await prompt_of(stage, USER, tools=[tool, SHELL])

    assert [each.name for each in prompt.tools] == ["shell"]


async def test_a_namespace_of_tools_is_flattened_and_its_calls_are_told_apart_again(stage):
    """lmstudio-bug-tracker#1810; ollama#18284: the item has `namespace` and `name`."""
    events = call("multi_agent_v1__spawn_agent", "{}")

    streamed, whole = await answered(stage, *events, finished=CALLED, tools=[NAMESPACE])

    assert [tool.name for tool in stage.engine.received[0].prompt.tools] == ["multi_agent_v1__spawn_agent"]
    for [item] in (streamed.output, whole["output"]):
        assert (item["type"], item["namespace"], item["name"]) == ("function_call", "multi_agent_v1", "spawn_agent")


async def test_instructions_and_developer_messages_do_not_break_the_template(stage):
    """raullenchai/Rapid-MLX#549: a template takes a system message at the beginning only, and no developer."""
    developer = {"role": "developer", "content": "Be brief."}

    prompt = await prompt_of(stage, developer, USER, instructions="You help.")

    roles = [message.role for message in prompt.messages]
    assert roles == [*["system"] * roles.count("system"), "user"]
    said = "\n".join(text for message in prompt.messages for text in texts(message))
    assert said.index("You help.") < said.index("Be brief.") < said.index("hi")


async def test_a_call_is_an_item_and_not_an_answer_of_nothing(stage):
    """raullenchai/Rapid-MLX#549: the markup of a call was cut out before it was parsed; earendil-works/pi#5819."""
    streamed, whole = await answered(stage, *call("shell", '{"command":', '["ls"]}'), finished=CALLED, tools=[SHELL])

    for [item] in (streamed.output, whole["output"]):
        assert (item["type"], item["name"], item["call_id"]) == ("function_call", "shell", "call_1")
        assert json.loads(item["arguments"]) == {"command": ["ls"]}


async def test_an_answer_that_was_sent_back_as_output_text_is_understood(stage):
    """vllm-project/vllm#45273."""
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]}

    prompt = await prompt_of(stage, USER, answer, USER)

    assert texts(prompt.messages[1]) == ["x"]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ([{"type": "input_text", "text": "a"}], ["a"]),
        ([{"type": "input_image", "image_url": PIXEL, "detail": "high"}], [NO_IMAGES]),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PIXEL}], ["a", NO_IMAGES]),
    ],
)
async def test_the_output_of_a_call_may_be_a_list(stage, output, said):
    """ggml-org/llama.cpp#23465."""
    items = [
        {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]

    prompt = await prompt_of(stage, USER, *items, tools=[SHELL])

    assert [part.text for message in prompt.messages[2:] for part in message.content] == said


@pytest.mark.parametrize("fields", [{}, {"summary": []}, {"content": None}, {"encrypted_content": "x"}])
async def test_a_thought_in_the_history_needs_no_summary(stage, fields):
    """ggml-org/llama.cpp#27751, BerriAI/litellm#13420."""
    prompt = await prompt_of(stage, USER, {"type": "reasoning", "id": "rs_1", **fields}, USER)

    assert prompt.messages[-1].role == "user"


@pytest.mark.parametrize("arguments", ['{"value": ', "{bad", '["a"]', "null"])
async def test_a_broken_call_in_the_history_does_not_end_the_session(stage, arguments):
    """local-inference-lab/vllm#684: Codex sends it back word for word."""
    broken = {"type": "function_call", "call_id": "c", "name": "shell", "arguments": arguments}

    prompt = await prompt_of(stage, USER, broken, tools=[SHELL])

    [made_call] = prompt.messages[1].tool_calls
    assert (made_call.arguments_raw, made_call.arguments) == (arguments, None)


async def test_a_call_without_arguments_comes_and_goes_as_an_empty_object(stage):
    """MetaFARS/codex-relay#57."""
    streamed, whole = await answered(stage, *call("shell", "{}"), finished=CALLED, tools=[SHELL])
    empty = {"type": "function_call", "call_id": "c", "name": "shell", "arguments": ""}

    prompt = await prompt_of(stage, USER, empty, tools=[SHELL])

    assert streamed.output[0]["arguments"] == whole["output"][0]["arguments"] == "{}"
    assert prompt.messages[1].tool_calls[0].arguments == {}


async def test_a_body_packed_with_zstd_is_unpacked(stage):
    """QuantumNous/new-api#4913, cc-switch-cli#469: the bytes 28 b5 2f fd were read as JSON."""
    content = zstd.compress(json.dumps({**codex_body(), "stream": False}).encode())

    answer = await stage.client.post(PATH, content=content, headers={"content-encoding": "zstd"})

    assert content.startswith(bytes.fromhex("28b52ffd"))
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")


async def test_the_second_turn_of_codex_is_answered_as_it_is_sent(stage):
    """Namespaces, custom tools, web searches, broken arguments, pictures, all in one."""
    answer = await stage.client.post(PATH, json=codex_body())

    assert check(answer.content).terminal["status"] == "completed"


@pytest.mark.parametrize("fields", [{"background": True}, {"conversation": "conv_1"}])
async def test_what_is_not_done_is_refused_by_name_and_not_left_out_silently(stage, fields):
    refusal = refusal_of(await asked(stage, RESPONSES, **fields), is_anthropic=False)

    assert (refusal.status, refusal.param) == (400, next(iter(fields)))


async def test_a_schema_that_cannot_be_enforced_is_a_400_and_not_an_answer_without_it(stage):
    """ggml-org/llama.cpp#19051."""
    stage.engine.refusal = wire.ErrorAnswer(code="invalid_request", message="Nothing satisfies it.", param="grammar")
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object", "minProperties": 9}}

    refusal = refusal_of(await asked(stage, RESPONSES, text={"format": form}, stream=True), is_anthropic=False)

    assert (refusal.status, refusal.param) == (400, "text.format")
    assert stage.engine.received[0].grammar.kind == "json_schema"


# --- What comes back ---


async def test_every_event_has_what_the_ai_sdk_needs_of_it(stage):
    """ggml-org/llama.cpp#20607, #24882; the checker looks at the rest."""
    events = [wire.ReasoningDelta(text="so"), wire.TextDelta(text="x"), *call("shell", "{}")]

    streamed, _ = await answered(stage, *events, finished=CALLED, tools=[SHELL])

    assert all(isinstance(event["sequence_number"], int) for event in streamed.events)
    items = [event for event in streamed.events if "item" in event["type"] or "delta" in event["type"]]
    assert items and all("output_index" in event for event in items)
    assert isinstance(streamed.created["created_at"], int)
    added = [event["item"] for event in streamed.events if event["type"] == "response.output_item.added"]
    assert added[-1]["id"] and added[-1]["call_id"] == "call_1"


async def test_the_thought_is_told_as_a_summary(stage):
    """The ai-sdk shows nothing of `reasoning_text`, and openai-node fails on it."""
    streamed, whole = await answered(stage, wire.ReasoningDelta(text="so"), wire.TextDelta(text="x"))

    for output in (streamed.output, whole["output"]):
        assert [item["type"] for item in output] == ["reasoning", "message"]
        assert output[0]["summary"] == [{"type": "summary_text", "text": "so"}]


async def test_a_message_without_text_is_not_there_before_a_call(stage):
    """earendil-works/pi#5819: `content: null`, and the call was lost."""
    streamed, whole = await answered(stage, wire.TextDelta(text=""), *call("shell", "{}"), finished=CALLED)

    assert [item["type"] for item in streamed.output] == ["function_call"]
    assert [item["type"] for item in whole["output"]] == ["function_call"]


async def test_a_custom_tool_gets_its_input_as_it_is(stage):
    """decolua/9router#1371, copilot-api#242: apply_patch came as a function_call."""
    patch = "*** Begin Patch\n+é"
    pieces = json.dumps({"input": patch})

    streamed, whole = await answered(
        stage, *call("apply_patch", pieces[:9], pieces[9:]), finished=CALLED, tools=[PATCH]
    )

    for [item] in (streamed.output, whole["output"]):
        assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", patch)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_next_request_goes_on_from_the_one_before(stage, is_stream):
    """lmstudio-bug-tracker#1188: the id of a streamed response was not found."""
    first = await asked(stage, RESPONSES, stream=is_stream, input="first")
    first_id = (check(first.content).terminal if is_stream else first.json())["id"]

    second = await asked(stage, RESPONSES, input="second", previous_response_id=first_id)

    assert second.json()["previous_response_id"] == first_id
    assert [texts(message) for message in stage.engine.received[1].prompt.messages] == [
        ["first"],
        ["hello"],
        ["second"],
    ]


async def test_history_that_is_not_there_is_not_left_out_silently(stage):
    not_stored = await asked(stage, RESPONSES, store=False)

    for response_id in (not_stored.json()["id"], "resp_nobody"):
        refusal = refusal_of(await asked(stage, RESPONSES, previous_response_id=response_id), is_anthropic=False)

        assert (refusal.status, refusal.code) == (404, "previous_response_not_found")


async def test_a_response_is_found_by_the_key_that_it_was_made_for_and_by_no_other(stage):
    first_id = (await asked(stage, RESPONSES)).json()["id"]
    body = RESPONSES.body(previous_response_id=first_id)
    other = (await stage.keys.create("other")).key

    theirs = await stage.client.post(PATH, json=body, headers={"authorization": f"Bearer {other}"})
    mine = await stage.client.post(PATH, json=body)

    assert refusal_of(theirs, is_anthropic=False).code == "previous_response_not_found"
    assert mine.status_code == 200


async def test_json_that_was_asked_for_is_the_content_and_not_a_thought(stage):
    """lmstudio-bug-tracker#1698."""
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}

    streamed, whole = await answered(
        stage, wire.ReasoningDelta(text="hm"), wire.TextDelta(text='{"a":1}'), text={"format": form}
    )

    for output in (streamed.output, whole["output"]):
        assert output[-1]["content"][0]["text"] == '{"a":1}'


async def test_a_streamed_answer_has_what_a_whole_one_has(stage):
    """waybarrios/vllm-mlx#107, ddalcu/mlx-serve#287; cached tokens: jundot/omlx#919."""
    events = [wire.TextDelta(text="x"), *call("shell", '{"command":[]}')]

    streamed, whole = await answered(stage, *events, finished=CALLED, tools=[SHELL])

    assert [made(item) for item in streamed.output] == [made(item) for item in whole["output"]]
    assert streamed.terminal["usage"] == whole["usage"]
    assert whole["usage"]["input_tokens"] == 100
    assert whole["usage"]["input_tokens_details"]["cached_tokens"] == 75


# --- What goes wrong ---


async def test_a_prefill_longer_than_five_minutes_is_one_request(tmp_path):
    """openai/codex#31539, raullenchai/Rapid-MLX#1057: comments do not wind up its timer. All times a thousandth."""

    async def slow(request):
        yield accepted(request)
        await asyncio.sleep(0.35)
        yield [wire.TextDelta(text="x"), DONE]

    async with staged(tmp_path, grace_s=0.01, heartbeat_s=0.02) as stage:
        stage.engine.scripts = [slow]
        streamed: Checker = check((await asked(stage, RESPONSES, stream=True)).content)

    assert streamed.types[:3] == ["created", "in_progress", "keepalive"]
    assert streamed.types.count("keepalive") >= 3
    assert streamed.num_comments == 0


async def test_a_client_that_goes_away_in_the_middle_does_not_take_the_server_with_it(stage):
    """ml-explore/mlx-lm#677, ggml-org/llama.cpp#24630."""
    stage.engine.scripts = [in_decode(), says(wire.TextDelta(text="next"))]
    async with asking_in(stage, RESPONSES, stream=True):
        await eventually(lambda: reached(stage, "decode"))

    await eventually(lambda: len(stage.engine.cancelled) == 1)

    assert (await asked(stage, RESPONSES)).json()["output"][0]["content"][0]["text"] == "next"
    assert (await row_with(stage, stage.engine.received[0].id)).outcome == "cancelled"


async def test_a_stream_that_cannot_be_admitted_is_an_error_with_a_status_not_an_empty_200(stage):
    """jundot/omlx#3665."""
    stage.line.hold()
    async with asking_in(stage, RESPONSES):
        await eventually(lambda: len(stage.line.waiting) == 1)

        answer = await asked(stage, RESPONSES, stream=True)
    await eventually(lambda: not stage.line.waiting)

    assert refusal_of(answer, is_anthropic=False).code == "rate_limit_exceeded"


async def test_a_model_that_is_not_there_is_404_and_not_answered_by_another(stage):
    """ddalcu/mlx-serve#257, lmstudio-bug-tracker#619."""
    answer = await asked(stage, RESPONSES, model="no-such-model-xyz")

    assert refusal_of(answer, is_anthropic=False).code == "model_not_found"
    assert stage.engine.received == []


async def test_the_list_of_models_has_no_half_entries_for_codex(stage):
    """openai/codex#35758, codex-lb#1297: without `models` it warns and works; an entry that lacks a field ends it."""
    listed = (await stage.client.get("/v1/models", params={"limit": 1000})).json()

    assert "models" not in listed
    assert listed["data"][0]["id"] == "demo"
    assert listed["object"] == "list" and listed["has_more"] is False
