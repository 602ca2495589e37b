import asyncio
import contextlib

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from control import wire
from control.admin.edge import HANDLERS
from control.admin.playground import PlaygroundApi
from control.http_protocol import HttpProtocol
from control.reception import Reception
from control.wire import PLAYGROUND, AdminError, PlaygroundMessage, PlaygroundRequest
from engine.wire import ReasoningDelta, TextDelta
from tests.fakes.newest_rows import newest_rows
from tests.unit.control_gateway.gateway_stage import accepted, chunks, eventually, says, serving, staged

JSON = {"content-type": "application/json"}
HELLO = PlaygroundRequest(messages=(PlaygroundMessage(role="user", content="hello"),))


@contextlib.asynccontextmanager
async def playground(stage):
    """Asks the room of the admin API, which shares its relay with the public one."""
    api = PlaygroundApi(relay=stage.relay, source=stage.source, reception=Reception())
    app = Starlette(routes=api.routes(), exception_handlers=HANDLERS)
    async with (
        serving(lambda _: app, HttpProtocol) as server,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, verify=False) as client,
    ):
        yield client


async def asked(client, order=HELLO):
    return await client.post(PLAYGROUND, headers=JSON, content=msgspec.json.encode(order))


async def test_a_question_is_answered_as_a_chat_with_usage_and_recorded_under_the_key_console(tmp_path):
    async with staged(tmp_path) as stage, playground(stage) as client:
        stage.engine.scripts = [says(ReasoningDelta(text="hm"), TextDelta(text="hello"))]

        answer = await asked(client)
        rows = await _rows(stage)

    parts = chunks(answer.text)
    deltas = [choice["delta"] for part in parts for choice in part["choices"]]
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta] == ["hm"]
    assert "".join(delta.get("content", "") for delta in deltas) == "hello"
    assert parts[-1]["usage"]["completion_tokens"] == 5
    assert [(row.key, row.dialect, row.outcome, row.id) for row in rows] == [
        ("console", "chat", "completed", answer.headers["x-request-id"])
    ]


async def test_the_settings_of_a_question_reach_the_engine_and_what_is_left_out_is_the_models(tmp_path):
    told = (PlaygroundMessage(role="system", content="Be brief."), *HELLO.messages)
    async with staged(tmp_path) as stage, playground(stage) as client:
        await asked(client, PlaygroundRequest(messages=told, temperature=0.0, max_tokens=7))
        await asked(client)

    first, second = stage.engine.received
    assert [message.role for message in first.prompt.messages] == ["system", "user"]
    assert (first.sampling.temperature, first.max_tokens, first.request_class) == (0.0, 7, "interactive")
    assert (second.sampling.temperature, second.max_tokens) == (None, None)


async def test_without_a_model_the_refusal_has_the_shape_of_the_admin_api(tmp_path):
    async with staged(tmp_path) as stage, playground(stage) as client:
        stage.source.availability = "none"

        answer = await asked(client)

    error = msgspec.json.decode(answer.content, type=AdminError)
    assert (answer.status_code, error.code) == (503, "no_model")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{}", 400, "invalid_request"),
        (b"[" * 5_000, 400, "invalid_request"),
        (b'{"messages": []}', 400, "invalid_request"),
        (b'{"messages": [{"role": "user", "content": "a"}], "temperature": 3}', 400, "invalid_request"),
        (b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}', 400, "invalid_request"),
        (b" " * (wire.PLAYGROUND_LIMIT_BYTES + 1), 413, "request_too_large"),
    ],
    ids=["nothing", "deep", "no message", "hot", "no tokens", "large"],
)
async def test_a_body_that_cannot_be_asked_is_refused_with_a_code(tmp_path, body, status, code):
    async with staged(tmp_path) as stage, playground(stage) as client:
        answer = await client.post(PLAYGROUND, headers=JSON, content=body)

    assert (answer.status_code, msgspec.json.decode(answer.content, type=AdminError).code) == (status, code)
    assert stage.engine.received == []


async def test_who_hangs_up_cancels_the_request(tmp_path):
    async def endless(request):
        yield accepted(request)
        while True:
            yield [TextDelta(text="on and ")]
            await asyncio.sleep(0.01)

    async with staged(tmp_path) as stage, playground(stage) as client:
        stage.engine.scripts = [endless]
        async with client.stream("POST", PLAYGROUND, headers=JSON, content=msgspec.json.encode(HELLO)) as answer:
            await anext(answer.aiter_lines())
            request_id = answer.headers["x-request-id"]

        await eventually(lambda: stage.engine.cancelled == [request_id], within_s=1)
        rows = await _rows(stage)

    assert [(row.outcome, row.error_code) for row in rows] == [("cancelled", "client_gone")]


async def _rows(stage):
    async with asyncio.timeout(3):
        while not (rows := await newest_rows(stage.questions)):  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(0.005)
    return rows
