"""OpenAI's own SDK reads what /v1/responses writes: raw, by its stream helper, whole and parsed, sync and async."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from control.dialects.response_history import ResponseHistory
from control.dialects.responses import parse_responses
from engine import wire
from tests.unit.control_dialects.responses_checker import check
from tests.unit.control_dialects.responses_stage import NAMESPACE, PATCH, SHELL, call, played

ANSWER: list[wire.AnyEvent] = [
    wire.ReasoningDelta(text="Let me "),
    wire.ReasoningDelta(text="see."),
    wire.TextDelta(text='{"files'),
    wire.TextDelta(text='": 3}'),
    *call("shell", '{"command":', '["ls"]}', index=0, call_id="c1"),
    *call("multi_agent_v1__spawn_agent", "{}", index=1, call_id="c2"),
    *call("apply_patch", '{"input":"*** Be', 'gin"}', index=2, call_id="c3"),
]
TOOLS: list[Any] = [SHELL, NAMESPACE, PATCH]


class Count(BaseModel):
    files: int


class Answers:
    """Answers each request as the gateway would; heartbeats come at the start and in the midst."""

    def __init__(self) -> None:
        self._history = ResponseHistory().of("key")
        self._num_requests = 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self._num_requests += 1
        exchange = parse_responses(request.content, f"r{self._num_requests}", history=self._history)
        encoder = exchange.encoder(heartbeat="typed")
        encoder.expect(model="demo-4bit", prompt_tokens=None)
        stream = encoder.heartbeat(is_yielded=True) + encoder.encode(ANSWER[:3]) + encoder.heartbeat(is_yielded=True)
        content = stream + played(encoder, ANSWER[3:]) if exchange.is_stream else played(encoder, ANSWER)
        if exchange.is_stream:
            check(content)
        kind = "text/event-stream" if exchange.is_stream else "application/json"
        return httpx2.Response(200, headers={"content-type": kind}, content=content)


@pytest.fixture
def client() -> Iterator[openai.OpenAI]:
    transport = httpx2.Client(transport=httpx2.MockTransport(Answers()))
    with openai.OpenAI(api_key="sk", base_url="http://gateway/v1", http_client=transport) as client:
        yield client


@pytest.fixture
async def async_client() -> AsyncIterator[openai.AsyncOpenAI]:
    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(Answers()))
    async with openai.AsyncOpenAI(api_key="sk", base_url="http://gateway/v1", http_client=transport) as client:
        yield client


def told(response: Any) -> list[Any]:
    """Reasoning, text and calls of a final response."""
    reasoning, message, shell, agent, patch = response.output
    return [
        reasoning.summary[0].text,
        message.content[0].text,
        (shell.name, json.loads(shell.arguments)),
        (agent.namespace, agent.name),
        (patch.type, patch.name, patch.input),
        response.output_text,
        response.usage.input_tokens_details.cached_tokens,
        response.status,
    ]


EXPECTED = [
    "Let me see.",
    '{"files": 3}',
    ("shell", {"command": ["ls"]}),
    ("multi_agent_v1", "spawn_agent"),
    ("custom_tool_call", "apply_patch", "*** Begin"),
    '{"files": 3}',
    75,
    "completed",
]


def test_a_whole_answer_is_read(client: openai.OpenAI):
    response = client.responses.create(model="demo", input="hi", tools=TOOLS)

    assert told(response) == EXPECTED


def test_raw_events_are_read(client: openai.OpenAI):
    events: list[Any] = list(client.responses.create(model="demo", input="hi", tools=TOOLS, stream=True))

    assert events[0].type == "response.created"
    assert "keepalive" in [event.type for event in events]
    assert told(events[-1].response) == EXPECTED


def test_the_stream_helper_collects_the_answer(client: openai.OpenAI):
    with client.responses.stream(model="demo", input="hi", tools=TOOLS) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()

    assert snapshots == ['{"files', '{"files": 3}']
    assert told(response) == EXPECTED


def test_the_parse_helper_gives_an_object(client: openai.OpenAI):
    response = client.responses.parse(model="demo", input="hi", tools=TOOLS, text_format=Count)

    assert response.output_parsed == Count(files=3)


def test_the_stream_helper_parses_too(client: openai.OpenAI):
    with client.responses.stream(model="demo", input="hi", tools=TOOLS, text_format=Count) as stream:
        response = stream.get_final_response()

    assert response.output_parsed == Count(files=3)


def test_the_next_request_goes_on_from_a_streamed_response(client: openai.OpenAI):
    with client.responses.stream(model="demo", input="hi", tools=TOOLS) as stream:
        first = stream.get_final_response()

    second = client.responses.create(model="demo", input="go on", tools=TOOLS, previous_response_id=first.id)

    assert second.previous_response_id == first.id


async def test_the_async_client_reads_a_whole_answer(async_client: openai.AsyncOpenAI):
    response = await async_client.responses.create(model="demo", input="hi", tools=TOOLS)

    assert told(response) == EXPECTED


async def test_the_async_client_reads_raw_events(async_client: openai.AsyncOpenAI):
    stream = await async_client.responses.create(model="demo", input="hi", tools=TOOLS, stream=True)

    events: list[Any] = [event async for event in stream]

    assert told(events[-1].response) == EXPECTED


async def test_the_async_stream_helper_collects_the_answer(async_client: openai.AsyncOpenAI):
    async with async_client.responses.stream(model="demo", input="hi", tools=TOOLS, text_format=Count) as stream:
        response = await stream.get_final_response()

    assert told(response) == EXPECTED
    assert response.output_parsed == Count(files=3)


async def test_the_async_parse_helper_gives_an_object(async_client: openai.AsyncOpenAI):
    response = await async_client.responses.parse(model="demo", input="hi", tools=TOOLS, text_format=Count)

    assert response.output_parsed == Count(files=3)
