"""What OpenAI's SDK must read of the gateway, whatever its release, sync and async.

What the engine says is in `tests.sdks.scene`. It runs in the small environments too: the SDK and the standard library.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import openai
from pydantic import BaseModel

from tests.sdks.either import each, entered, settled

HELLO: list[Any] = [{"role": "user", "content": "say hello"}]
LOOK: list[Any] = [{"role": "user", "content": "look"}]
COUNT: list[Any] = [{"role": "user", "content": "count"}]
PLACE = {
    "type": "object",
    "properties": {"at": {"type": "string"}},
    "required": ["at"],
    "additionalProperties": False,
}
# Older stream helpers take strict tools only.
CHAT_TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": PLACE, "strict": True}}
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}


class Count(BaseModel):
    files: int


def clients(url: str, key: str) -> dict[str, Callable[[], Any]]:
    """`url` without the /v1."""
    return {
        "sync": lambda: openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0),
        "async": lambda: openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0),
    }


def chat_counts(usage: Any) -> tuple[int, int, int, int]:
    return (
        usage.prompt_tokens,
        usage.prompt_tokens_details.cached_tokens,
        usage.completion_tokens,
        usage.completion_tokens_details.reasoning_tokens,
    )


def response_counts(usage: Any) -> tuple[int, int, int, int]:
    return (
        usage.input_tokens,
        usage.input_tokens_details.cached_tokens,
        usage.output_tokens,
        usage.output_tokens_details.reasoning_tokens,
    )


async def chat_whole(client: Any) -> None:
    answer = await settled(client.chat.completions.create(model="demo", messages=HELLO))

    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "demo"
    assert chat_counts(answer.usage) == (7, 4, 5, 2)


async def chat_raw_stream(client: Any) -> None:
    chunks = await each(
        await settled(
            client.chat.completions.create(
                model="demo", messages=HELLO, stream=True, stream_options={"include_usage": True}
            )
        )
    )

    *deltas, last = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in deltas) == "hello"
    assert [chunk.choices[0].finish_reason for chunk in deltas if chunk.choices[0].finish_reason] == ["stop"]
    assert last.choices == [] and chat_counts(last.usage) == (7, 4, 5, 2)


async def chat_stream_helper(client: Any) -> None:
    async with entered(client.chat.completions.stream(model="demo", messages=LOOK, tools=[CHAT_TOOL])) as stream:
        await each(stream)
        answer = await settled(stream.get_final_completion())

    [call] = answer.choices[0].message.tool_calls
    assert (call.id, call.function.name, call.function.arguments) == ("call_1", "look", '{"at":"door"}')
    assert answer.choices[0].finish_reason == "tool_calls"


async def chat_parse(client: Any) -> None:
    answer = await settled(client.chat.completions.parse(model="demo", messages=COUNT, response_format=Count))

    assert answer.choices[0].message.parsed == Count(files=3)


async def completions_whole(client: Any) -> None:
    answer = await settled(client.completions.create(model="demo", prompt="say hello"))

    assert answer.choices[0].text == "hello"
    assert chat_counts(answer.usage) == (7, 4, 5, 2)


async def completions_raw_stream(client: Any) -> None:
    chunks = await each(await settled(client.completions.create(model="demo", prompt="say hello", stream=True)))

    assert "".join(chunk.choices[0].text for chunk in chunks) == "hello"
    assert chunks[-1].choices[0].finish_reason == "stop"


async def responses_whole(client: Any) -> None:
    response = await settled(client.responses.create(model="demo", input="say hello"))

    assert response.output_text == "hello"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.status == "completed" and response.model == "demo"
    assert response_counts(response.usage) == (7, 4, 5, 2)


async def responses_raw_stream(client: Any) -> None:
    events = await each(await settled(client.responses.create(model="demo", input="say hello", stream=True)))

    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text == "hello"
    assert response_counts(events[-1].response.usage) == (7, 4, 5, 2)


async def responses_stream_helper(client: Any) -> None:
    async with entered(client.responses.stream(model="demo", input="look", tools=[TOOL])) as stream:
        await each(stream)
        response = await settled(stream.get_final_response())

    [call] = [item for item in response.output if item.type == "function_call"]
    assert (call.call_id, call.name, call.arguments) == ("call_1", "look", '{"at":"door"}')


async def responses_parse(client: Any) -> None:
    response = await settled(client.responses.parse(model="demo", input="count", text_format=Count))

    assert response.output_parsed == Count(files=3)


async def responses_go_on(client: Any) -> None:
    first = await settled(client.responses.create(model="demo", input="say hello"))

    second = await settled(client.responses.create(model="demo", input="say hello", previous_response_id=first.id))

    assert second.previous_response_id == first.id


async def models(client: Any) -> None:
    listed = await each(client.models.list())
    one = await settled(client.models.retrieve("demo"))

    assert "demo" in [model.id for model in listed]
    assert one.id == "demo" and one.created > 0


async def unknown_model(client: Any) -> None:
    try:
        await settled(client.chat.completions.create(model="nobody", messages=HELLO))
    except openai.NotFoundError as error:
        assert error.code == "model_not_found" and error.param == "model"
        return
    raise AssertionError("it was answered")


async def too_long(client: Any) -> None:
    for ask in (
        lambda: client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "too long"}], stream=True
        ),
        lambda: client.responses.create(model="demo", input="too long", stream=True),
    ):
        try:
            await settled(ask())
        except openai.BadRequestError as error:
            assert error.code == "context_length_exceeded"
            continue
        raise AssertionError("it was answered")


async def failure_in_the_middle(client: Any) -> None:
    stream = await settled(
        client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "fail"}], stream=True)
    )
    try:
        await each(stream)
    except openai.APIError as error:
        assert error.code == "engine_error"
        return
    raise AssertionError("it ended well")


CHECKS: tuple[Callable[[Any], Awaitable[None]], ...] = (
    chat_whole,
    chat_raw_stream,
    chat_stream_helper,
    chat_parse,
    completions_whole,
    completions_raw_stream,
    responses_whole,
    responses_raw_stream,
    responses_stream_helper,
    responses_parse,
    responses_go_on,
    models,
    unknown_model,
    too_long,
    failure_in_the_middle,
)
