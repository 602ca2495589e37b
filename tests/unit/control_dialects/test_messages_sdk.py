"""The real Anthropic SDK against the real dialect: its bodies are parsed, and it reads what the encoders write."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, APIStatusError, AsyncAnthropic
from pydantic import BaseModel

from control.dialects.error_answers import answers_of
from control.dialects.exchange import HeartbeatMode
from control.dialects.messages import COUNT_PATH, PATH, count_body, parse_count, parse_messages
from control.errors import ApiError, EngineDied
from engine import wire
from tests.unit.control_dialects.messages_bodies import claude_code_body

FINISHED = wire.Finished(reason="tool_calls", usage=wire.Usage(prompt=100, cached=75, completion=9, reasoning=4))
EVENTS: tuple[wire.AnyEvent, ...] = (
    wire.ReasoningDelta(text="I "),
    wire.ReasoningDelta(text="think ü."),
    wire.TextDelta(text="I look."),
    wire.ToolCallBegin(index=0, id="call_a", name="Read"),
    wire.ToolCallDelta(index=0, arguments='{"path": '),
    wire.ToolCallDelta(index=0, arguments='"/tmp/ä"}'),
    wire.ToolCallEnd(index=0),
    wire.ToolCallBegin(index=1, id="call_b", name="Bash"),
    wire.ToolCallDelta(index=1, arguments="{}"),
    wire.ToolCallEnd(index=1),
    FINISHED,
)
QUESTION: dict[str, Any] = {
    "model": "splash-9b",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "What is in /tmp/ä?"}],
}


class Pieces(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that arrives in pieces that end anywhere, within a character too."""

    def __init__(self, body: bytes) -> None:
        self._pieces = [body[at : at + 7] for at in range(0, len(body), 7)]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class Server:
    """Answers with `events`, a heartbeat before each; `error` comes in the place of the last event."""

    def __init__(
        self,
        events: tuple[wire.AnyEvent, ...] = EVENTS,
        *,
        heartbeat: HeartbeatMode = "typed",
        error: ApiError | None = None,
    ) -> None:
        self._events = events
        self._heartbeat = heartbeat
        self._error = error

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        try:
            if request.url.path == COUNT_PATH:
                asked = parse_count(request.content, "r1")
                return httpx2.Response(200, content=count_body(len(asked.prompt.messages or ())))
            assert request.url.path == PATH
            return self._answer(request.content)
        except ApiError as error:
            answer = answers_of(request.url.path, "r1")(error)
            return httpx2.Response(answer.status, content=answer.body, headers={"content-type": "application/json"})

    async def later(self, request: httpx2.Request) -> httpx2.Response:
        return self(request)

    def _answer(self, body: bytes) -> httpx2.Response:
        exchange = parse_messages(body, "r1")
        encoder = exchange.encoder(heartbeat=self._heartbeat)
        encoder.expect(model="splash-9b", prompt_tokens=None)
        written = encoder.heartbeat(is_yielded=True)
        encoder.encode([wire.Accepted(id="r1", prompt_tokens=100)])
        for event in self._events[:-1]:
            written += encoder.heartbeat(is_yielded=True) + encoder.encode([event])
        written += encoder.encode(self._events[-1:]) if self._error is None else encoder.error(self._error)
        if exchange.is_stream:
            return httpx2.Response(200, stream=Pieces(written), headers={"content-type": "text/event-stream"})
        return httpx2.Response(200, content=written, headers={"content-type": "application/json"})


def client(server: Server | None = None) -> Anthropic:
    transport = httpx2.MockTransport(server or Server())
    return Anthropic(
        api_key="k", base_url="http://splash", max_retries=0, http_client=httpx2.Client(transport=transport)
    )


def async_client() -> AsyncAnthropic:
    transport = httpx2.MockTransport(Server().later)
    return AsyncAnthropic(
        api_key="k", base_url="http://splash", max_retries=0, http_client=httpx2.AsyncClient(transport=transport)
    )


def check(message: Any) -> None:
    """What the scripted answer is, whichever way it came."""
    assert (message.id, message.model, message.role) == ("msg_r1", "splash-9b", "assistant")
    thought, text, read, bash = message.content
    assert (thought.type, thought.thinking) == ("thinking", "I think ü.") and thought.signature
    assert (text.type, text.text) == ("text", "I look.")
    assert (read.type, read.id, read.name, read.input) == ("tool_use", "call_a", "Read", {"path": "/tmp/ä"})
    assert (bash.type, bash.id, bash.input) == ("tool_use", "call_b", {})
    assert (message.stop_reason, message.stop_sequence) == ("tool_use", None)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (25, 75, 9)
    assert usage.cache_creation_input_tokens == 0
    assert usage.output_tokens_details.thinking_tokens == 4


def test_a_whole_answer():
    check(client().messages.create(**QUESTION))


@pytest.mark.parametrize("mode", ["typed", "ping", "comment"])
def test_a_stream_through_the_helper_with_heartbeats_between_all_events(mode: HeartbeatMode):
    with client(Server(heartbeat=mode)).messages.stream(**QUESTION) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()

    check(message)
    assert text == "I look."


def test_a_raw_stream():
    kinds = [event.type for event in client().messages.create(**QUESTION, stream=True)]

    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4


async def test_the_async_client_reads_the_same():
    asynchronous = async_client()

    check(await asynchronous.messages.create(**QUESTION))
    async with asynchronous.messages.stream(**QUESTION) as stream:
        check(await stream.get_final_message())
    kinds = [event.type async for event in await asynchronous.messages.create(**QUESTION, stream=True)]

    assert kinds[-1] == "message_stop"


def test_the_beta_resource_reads_the_same():
    with client().beta.messages.stream(**QUESTION, betas=["interleaved-thinking-2025-05-14"]) as stream:
        check(stream.get_final_message())


def test_an_answer_that_was_streamed_can_be_sent_back():
    with client().messages.stream(**QUESTION) as stream:
        message = stream.get_final_message()
    results = [{"type": "tool_result", "tool_use_id": id_, "content": "ok"} for id_ in ("call_a", "call_b")]
    turns: Any = [*QUESTION["messages"], {"role": "assistant", "content": message.content}]

    check(client().messages.create(**QUESTION | {"messages": [*turns, {"role": "user", "content": results}]}))


def test_the_parse_helper_gets_its_object():
    class Weather(BaseModel):
        city: str

    events = (wire.TextDelta(text='{"city":"Bonn"}'), wire.Finished(reason="stop"))
    message = client(Server(events)).messages.parse(**QUESTION, output_format=Weather)

    assert message.parsed_output == Weather(city="Bonn")


def test_a_stop_sequence_is_told():
    events = (wire.TextDelta(text="a"), wire.Finished(reason="stop", stop_sequence="STOP"))

    message = client(Server(events)).messages.create(**QUESTION, stop_sequences=["STOP"])

    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "STOP")


@pytest.mark.parametrize("is_stream", [True, False])
def test_an_answer_of_nothing_has_one_empty_text(is_stream: bool):
    server = Server((wire.Finished(reason="stop", usage=wire.Usage(prompt=3)),))
    if is_stream:
        with client(server).messages.stream(**QUESTION) as stream:
            message: Any = stream.get_final_message()
    else:
        message = client(server).messages.create(**QUESTION)

    assert [(block.type, block.text) for block in message.content] == [("text", "")]


def test_a_call_that_was_cut_off_is_no_input_of_its_tool_in_a_whole_answer():
    events = (*EVENTS[3:5], wire.ToolCallEnd(index=0), wire.Finished(reason="length"))

    message: Any = client(Server(events)).messages.create(**QUESTION)

    assert (message.content[0].name, message.content[0].input) == ("Read", {"raw": '{"path": '})
    assert message.stop_reason == "max_tokens"


def test_an_error_within_a_stream_is_raised():
    with (
        pytest.raises(APIStatusError) as raised,
        client(Server(error=EngineDied())).messages.stream(**QUESTION) as stream,
    ):
        stream.get_final_message()

    assert isinstance(raised.value.body, dict) and raised.value.body["type"] == "error"


def test_a_refusal_names_the_field():
    with pytest.raises(APIStatusError) as raised:
        client().messages.create(**QUESTION | {"messages": [{"role": "robot", "content": "hi"}]})

    assert raised.value.status_code == 400 and "messages[0].role" in raised.value.message


def test_tokens_are_counted_with_claude_codes_body():
    body = claude_code_body()

    counted = client().messages.count_tokens(
        **{name: body[name] for name in ("model", "messages", "system", "tools", "thinking")}
    )

    assert counted.input_tokens == 7
