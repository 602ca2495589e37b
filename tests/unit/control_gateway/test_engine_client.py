"""The client of the engine's door over real sockets, and the parser of its events over every way to cut bytes."""

import asyncio
import itertools

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.engine_client import EngineClient, EventParser
from control.errors import EngineGone, EngineRefused
from engine import wire
from tests.unit.control_gateway.gateway_stage import SECRET, Died, ScriptedEngine, eventually, says, serving

REQUEST = wire.GenerateRequest(id="r", prompt=wire.Prompt(text="hi"))
EVENTS = [
    wire.Accepted(id="r", prompt_tokens=3),
    wire.Prefill(processed=1, cached=0, total=3),
    wire.ReasoningDelta(text="思考 🙂"),
    wire.TextDelta(text='line\nbreak "quoted"'),
    wire.ToolCallBegin(index=0, id="c", name="f"),
    wire.ToolCallDelta(index=0, arguments='{"a": "é"}'),
    wire.ToolCallEnd(index=0),
    wire.Finished(reason="stop", usage=wire.Usage(prompt=3)),
]
LINES = b"".join(msgspec.json.encode(event) + b"\n" for event in EVENTS)


@pytest.fixture
async def engine():
    return ScriptedEngine()


@pytest.fixture
async def client(engine):
    async with serving(engine.app) as server:
        client = EngineClient(port=server.port, secret=SECRET, is_there=lambda: True)
        yield client
        await client.aclose()


async def generated(client) -> list[wire.AnyEvent]:
    async with client.generate(REQUEST) as generation:
        return [event async for events in generation for event in events]


@given(st.lists(st.integers(0, len(LINES))))
def test_events_are_the_same_however_the_bytes_are_cut(cuts):
    parser = EventParser()
    edges = [0, *sorted(cuts), len(LINES)]

    events = [event for begin, end in itertools.pairwise(edges) for event in parser.push(LINES[begin:end])]

    assert events == EVENTS


@pytest.mark.parametrize(
    "line", [b"{}\n", b"null\n", b"[1]\n", b'{"type":"new"}\n', b"\xff\n", b'{"type":"accepted"}\n']
)
def test_a_line_that_is_not_an_event_ends_the_trust(line):
    with pytest.raises(EngineGone, match="not an event"):
        EventParser().push(line)


async def test_events_that_are_ready_together_come_together(engine, client):
    engine.scripts = [says(wire.TextDelta(text="a"), wire.TextDelta(text="b"))]

    async with client.generate(REQUEST) as generation:
        batches = [[type(event).__name__ for event in events] async for events in generation]

    assert batches[-1][-3:] == ["TextDelta", "TextDelta", "Finished"]
    assert engine.received == [REQUEST]
    assert engine.cancelled == []


async def test_a_stream_that_breaks_off_is_an_engine_that_is_gone(engine, client):
    async def script(request):
        yield [wire.TextDelta(text="a")]
        raise Died

    engine.scripts = [script]

    with pytest.raises(EngineGone) as caught:
        await generated(client)

    assert caught.value.was_reached


async def test_a_stream_that_ends_without_an_end_event_is_an_engine_that_is_gone(engine, client):
    async def script(request):
        yield [wire.TextDelta(text="a")]

    engine.scripts = [script]

    with pytest.raises(EngineGone, match="before the end event"):
        await generated(client)


async def test_leaving_a_generation_closes_its_connection(engine, client):
    async def script(request):
        yield [wire.TextDelta(text="a")]
        await asyncio.Event().wait()

    engine.scripts = [script]

    async with client.generate(REQUEST) as generation:
        await anext(generation)

    await eventually(lambda: engine.cancelled, within_s=1)
    assert engine.cancelled == ["r"]


async def test_a_task_that_is_cancelled_before_any_event_closes_its_connection(engine, client):
    async def script(request):
        yield [wire.Accepted(id="r", prompt_tokens=1)]
        await asyncio.Event().wait()

    engine.scripts = [script]
    task = asyncio.create_task(generated(client))
    await eventually(lambda: len(engine.received) == 1)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: engine.cancelled == ["r"], within_s=1)


async def test_a_task_that_is_cancelled_while_it_leaves_keeps_nothing_of_its_request(engine, client):
    engine.scripts = [says(wire.TextDelta(text="a"))]

    async def generate_and_be_cancelled():
        async with client.generate(REQUEST) as generation:
            async for _ in generation:
                pass
            # It comes where the task waits next: in the middle of leaving.
            asyncio.current_task().cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(generate_and_be_cancelled())

    pool = client._http._transport._pool
    await eventually(lambda: not pool._requests and not pool.connections)


class CutAtOnce(httpx.AsyncBaseTransport):
    """As httpx behaves on uvloop when the engine is killed just after it took the connection."""

    async def handle_async_request(self, request):
        socket = None
        return socket.getpeername()


async def test_a_connection_that_is_cut_before_its_first_use_is_an_engine_that_is_gone():
    client = EngineClient(port=1, secret=SECRET, is_there=lambda: True)
    client._http = httpx.AsyncClient(transport=CutAtOnce(), base_url="http://127.0.0.1:1")

    with pytest.raises(EngineGone) as gone:
        await generated(client)

    assert not gone.value.was_reached


@pytest.mark.parametrize("question", ["generate", "count", "status", "healthz", "cancel", "clear", "shutdown"])
async def test_when_nobody_listens_every_question_says_so(question):
    client = EngineClient(port=1, secret=SECRET, is_there=lambda: True)
    ask = {
        "generate": lambda: generated(client),
        "count": lambda: client.count(REQUEST.prompt),
        "status": client.status,
        "healthz": client.healthz,
        "cancel": lambda: client.cancel("r"),
        "clear": client.clear_cache,
        "shutdown": client.shutdown,
    }[question]

    with pytest.raises(EngineGone) as caught:
        await ask()

    assert not caught.value.was_reached
    await client.aclose()


async def test_a_refusal_comes_with_its_numbers(engine, client):
    engine.refusal = wire.ErrorAnswer(
        code="context_length_exceeded", message="too long", prompt_tokens=9, maximum_context_tokens=8
    )

    with pytest.raises(EngineRefused) as caught:
        await generated(client)

    assert caught.value.answer == engine.refusal
    assert caught.value.engine_status == 400


async def test_a_wrong_secret_is_refused_and_an_answer_of_another_server_is_not_believed(engine, client):
    assert (await client.healthz()).nonce == "n"
    assert await client.cancel("r") is True
    stranger = EngineClient(port=client.port, secret="wrong", is_there=lambda: True)

    with pytest.raises(EngineRefused, match="no"):
        await stranger.healthz()
    with pytest.raises(EngineRefused, match="404"):
        await client.status()
    await stranger.aclose()


async def test_an_engine_that_does_not_answer_is_gone_in_time(engine, client, monkeypatch):
    monkeypatch.setattr("control.engine_client.COUNT_TIMEOUT_S", 0.05)
    engine.count_opened = asyncio.Event()

    with pytest.raises(EngineGone, match="no answer from /count"):
        await client.count(REQUEST.prompt)

    engine.count_opened.set()


async def test_a_proxy_of_the_environment_is_not_used(engine, client, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    again = EngineClient(port=client.port, secret=SECRET, is_there=lambda: True)

    assert (await again.healthz()).state == "ready"

    await again.aclose()
