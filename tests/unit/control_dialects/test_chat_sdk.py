"""/v1/chat/completions with the official SDK: create, stream, its helpers to stream and to parse, sync and async."""

import openai
import pydantic
import pytest

from control.errors import RequestFailed
from engine import wire
from tests.unit.control_dialects.chat_stage import CALLED, Played, call

USER = {"role": "user", "content": "hi"}
ASKED = {"model": "demo", "messages": [USER]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
PATCH_TOOL = {"type": "custom", "custom": {"name": "apply_patch", "description": "Changes files."}}
TEXTS = (wire.ReasoningDelta(text="so"), wire.TextDelta(text="hel"), wire.TextDelta(text="lo"))


class Place(pydantic.BaseModel):
    name: str
    floor: int


@pytest.fixture
def played():
    return Played()


@pytest.fixture
def sdk(played):
    with played.client() as client:
        yield client


@pytest.fixture
async def async_sdk(played):
    async with played.async_client() as client:
        yield client


def test_a_whole_answer(played, sdk):
    played.events = TEXTS

    answer = sdk.chat.completions.create(**ASKED)

    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].message.reasoning_content == "so"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens_details.cached_tokens == 4


async def test_a_whole_answer_async(played, async_sdk):
    played.events = TEXTS

    answer = await async_sdk.chat.completions.create(**ASKED)

    assert answer.choices[0].message.content == "hello"


def test_a_stream_with_heartbeats_before_and_between(played, sdk):
    played.events, played.num_heartbeats = TEXTS, 3

    stream = sdk.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True})
    *parts, usage = list(stream)

    assert "".join(part.choices[0].delta.content or "" for part in parts) == "hello"
    assert usage.usage.total_tokens == 12


async def test_a_stream_async(played, async_sdk):
    played.events, played.num_heartbeats = TEXTS, 2

    stream = await async_sdk.chat.completions.create(**ASKED, stream=True)
    parts = [part async for part in stream]

    assert "".join(part.choices[0].delta.content or "" for part in parts) == "hello"


def test_the_stream_helper_assembles_two_calls(played, sdk):
    played.events = (*TEXTS, *call("look", '{"at":', '"door"}'), *call("look", "{}", index=1))
    played.finished, played.num_heartbeats = CALLED, 1

    with sdk.chat.completions.stream(**ASKED, tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_completion().choices[0].message

    assert [(each.id, each.function.arguments) for each in message.tool_calls] == [
        ("call_0", '{"at":"door"}'),
        ("call_1", "{}"),
    ]
    assert message.content == "hello"
    assert kinds.count("tool_calls.function.arguments.done") == 2


async def test_the_stream_helper_async(played, async_sdk):
    played.events, played.finished = call("look", "{}"), CALLED

    async with async_sdk.chat.completions.stream(**ASKED, tools=[TOOL]) as stream:
        async for _ in stream:
            pass
        completion = await stream.get_final_completion()

    assert completion.choices[0].message.tool_calls[0].function.arguments == "{}"


def test_the_parse_helper_gets_an_object_of_its_model(played, sdk):
    played.events = (wire.TextDelta(text='{"name":"hall",'), wire.TextDelta(text='"floor":2}'))

    completion = sdk.chat.completions.parse(**ASKED, response_format=Place)

    assert completion.choices[0].message.parsed == Place(name="hall", floor=2)
    grammar = played.exchanges[0].generate.grammar
    assert grammar.kind == "json_schema"
    assert grammar.schema["required"] == ["name", "floor"]


async def test_the_parse_helper_async(played, async_sdk):
    played.events = (wire.TextDelta(text='{"name":"hall","floor":2}'),)

    completion = await async_sdk.chat.completions.parse(**ASKED, response_format=Place)

    assert completion.choices[0].message.parsed == Place(name="hall", floor=2)


def test_the_stream_helper_parses_what_it_streams(played, sdk):
    played.events = (wire.TextDelta(text='{"name":"hall",'), wire.TextDelta(text='"floor":2}'))

    with sdk.chat.completions.stream(**ASKED, response_format=Place) as stream:
        completion = stream.get_final_completion()

    assert completion.choices[0].message.parsed == Place(name="hall", floor=2)


def test_the_parse_helper_gets_arguments_of_its_tool(played, sdk):
    played.events, played.finished = call("Place", '{"name":"hall","floor":2}'), CALLED

    completion = sdk.chat.completions.parse(**ASKED, tools=[openai.pydantic_function_tool(Place)])

    [made] = completion.choices[0].message.tool_calls
    assert made.function.parsed_arguments == Place(name="hall", floor=2)
    assert played.prompt.tools[0].strict


def test_a_custom_tool_is_called_with_plain_text(played, sdk):
    played.events = call("apply_patch", '{"input": "*** Begin\\n', '+caf\\u00e9 \\"x\\""}')
    played.finished = CALLED

    answer = sdk.chat.completions.create(**ASKED, tools=[PATCH_TOOL])

    [made] = answer.choices[0].message.tool_calls
    assert (made.id, made.type) == ("call_0", "custom")
    assert (made.custom.name, made.custom.input) == ("apply_patch", '*** Begin\n+café "x"')


def test_the_stream_helper_assembles_a_custom_call(played, sdk):
    """As far as it can: its types know no custom call, so that its final completion raises, whoever serves it."""
    played.events = call("apply_patch", '{"input": "*** Begin\\n', '+caf\\u00e9 \\"x\\""}')
    played.finished = CALLED

    with sdk.chat.completions.stream(**ASKED, tools=[PATCH_TOOL, TOOL]) as stream:
        stream.until_done()
        snapshot = stream.current_completion_snapshot

    [made] = snapshot.choices[0].message.tool_calls
    assert (made.type, made.custom["input"]) == ("custom", '*** Begin\n+café "x"')


def test_a_client_of_functions_gets_a_function_call(played, sdk):
    played.events, played.finished = call("look", '{"at":', '"door"}'), CALLED
    functions = [TOOL["function"]]

    answer = sdk.chat.completions.create(**ASKED, functions=functions)
    parts = list(sdk.chat.completions.create(**ASKED, functions=functions, stream=True))

    assert answer.choices[0].message.function_call.name == "look"
    assert answer.choices[0].message.function_call.arguments == '{"at":"door"}'
    assert answer.choices[0].message.tool_calls is None
    deltas = [part.choices[0].delta.function_call for part in parts if part.choices[0].delta.function_call]
    assert "".join(delta.arguments for delta in deltas) == '{"at":"door"}'
    assert answer.choices[0].finish_reason == parts[-1].choices[0].finish_reason == "function_call"
    assert not played.prompt.tool_choice.parallel


def test_log_probabilities_of_a_helper_are_those_of_the_answer(played, sdk):
    token = wire.TokenLogprob(token="hi", bytes=(104, 105), logprob=-0.5)
    played.events = (wire.TextDelta(text="hi", logprobs=(token,)), wire.TextDelta(text="hi", logprobs=(token,)))

    with sdk.chat.completions.stream(**ASKED, logprobs=True) as stream:
        completion = stream.get_final_completion()

    assert [each.logprob for each in completion.choices[0].logprobs.content] == [-0.5, -0.5]


def test_a_refused_request_is_a_bad_request_with_the_field(sdk):
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(**ASKED, n=2)

    assert caught.value.param == "n"


@pytest.mark.parametrize("num_heartbeats", [0, 2])
def test_an_error_in_a_stream_is_raised(sdk, played, num_heartbeats):
    played.num_heartbeats = num_heartbeats
    played.error = RequestFailed("4 GiB are missing.", engine_code="out_of_memory")

    with pytest.raises(openai.APIError, match="4 GiB are missing"):
        list(sdk.chat.completions.create(**ASKED, stream=True))
