"""What Anthropic's SDK must read of the gateway, whatever its release, sync and async.

What the engine says is in `tests.sdks.scene`. It runs in the small environments too: the SDK and the standard library.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
from pydantic import BaseModel

from tests.sdks.either import Absent, each, entered, settled

STRUCTURED_OUTPUTS = "structured-outputs-2025-11-13"
TOOL: Any = {"name": "look", "input_schema": {"type": "object"}}


class Count(BaseModel):
    files: int


def clients(url: str, key: str) -> dict[str, Callable[[], Any]]:
    return {
        "sync": lambda: anthropic.Anthropic(base_url=url, api_key=key, max_retries=0),
        "async": lambda: anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0),
    }


def question(text: str) -> dict[str, Any]:
    return {"model": "demo", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}


def check_hello(message: Any) -> None:
    thought, text = message.content
    assert (thought.type, thought.thinking) == ("thinking", "so") and thought.signature
    assert (text.type, text.text) == ("text", "hello")
    assert (message.stop_reason, message.model) == ("end_turn", "demo")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (3, 4, 5)


def check_look(message: Any) -> None:
    [call] = [block for block in message.content if block.type == "tool_use"]
    assert (call.id, call.name, call.input) == ("call_1", "look", {"at": "door"})
    assert message.stop_reason == "tool_use"


async def messages_whole(client: Any) -> None:
    check_hello(await settled(client.messages.create(**question("say hello"))))


async def messages_raw_stream(client: Any) -> None:
    events = await each(await settled(client.messages.create(**question("say hello"), stream=True)))

    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert events[0].message.usage.input_tokens > 0
    texts = [event.delta.text for event in events if event.type == "content_block_delta" and event.index == 1]
    assert "".join(texts) == "hello"


async def messages_stream_helper(client: Any) -> None:
    async with entered(client.messages.stream(**question("say hello"))) as stream:
        texts = await each(stream.text_stream)
        check_hello(await settled(stream.get_final_message()))

    assert "".join(texts) == "hello"


async def messages_stream_helper_with_a_tool(client: Any) -> None:
    async with entered(client.messages.stream(**question("look"), tools=[TOOL])) as stream:
        check_look(await settled(stream.get_final_message()))


async def messages_tool_and_its_result(client: Any) -> None:
    message = await settled(client.messages.create(**question("look"), tools=[TOOL]))
    check_look(message)
    [call] = [block for block in message.content if block.type == "tool_use"]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "a door"}]}
    turns = [*question("look")["messages"], {"role": "assistant", "content": message.content}, result]
    asked = question("") | {"messages": [*turns, {"role": "user", "content": "say hello"}]}

    check_hello(await settled(client.messages.create(**asked, tools=[TOOL])))


async def messages_parse(client: Any) -> None:
    if hasattr(client.messages, "parse"):
        message = await settled(client.messages.parse(**question("count"), output_format=Count))
    elif hasattr(client.beta.messages, "parse"):
        asked = client.beta.messages.parse(**question("count"), betas=[STRUCTURED_OUTPUTS], output_format=Count)
        message = await settled(asked)
    else:
        raise Absent

    assert message.parsed_output == Count(files=3)


async def beta_stream_helper(client: Any) -> None:
    betas = ["interleaved-thinking-2025-05-14"]
    async with entered(client.beta.messages.stream(**question("say hello"), betas=betas)) as stream:
        check_hello(await settled(stream.get_final_message()))


async def count_tokens(client: Any) -> None:
    counted = await settled(client.messages.count_tokens(model="demo", messages=question("say hello")["messages"]))

    assert counted.input_tokens == 7


async def models(client: Any) -> None:
    listed = await each(client.models.list())
    one = await settled(client.models.retrieve("demo"))

    assert "demo" in [model.id for model in listed]
    assert (one.id, one.type) == ("demo", "model") and one.display_name


async def unknown_model(client: Any) -> None:
    try:
        await settled(client.messages.create(**question("say hello") | {"model": "nobody"}))
    except anthropic.NotFoundError as error:
        assert error.body["error"]["type"] == "not_found_error"
        return
    raise AssertionError("it was answered")


async def too_long(client: Any) -> None:
    try:
        await settled(client.messages.create(**question("too long"), stream=True))
    except anthropic.BadRequestError as error:
        assert error.body["error"]["message"] == "prompt is too long: 5000 tokens > 4095 maximum"
        return
    raise AssertionError("it was answered")


async def failure_in_the_middle(client: Any) -> None:
    stream = await settled(client.messages.create(**question("fail"), stream=True))
    try:
        await each(stream)
    except anthropic.APIStatusError as error:
        assert error.body["error"]["type"] == "api_error"
        return
    raise AssertionError("it ended well")


CHECKS: tuple[Callable[[Any], Awaitable[None]], ...] = (
    messages_whole,
    messages_raw_stream,
    messages_stream_helper,
    messages_stream_helper_with_a_tool,
    messages_tool_and_its_result,
    messages_parse,
    beta_stream_helper,
    count_tokens,
    models,
    unknown_model,
    too_long,
    failure_in_the_middle,
)
