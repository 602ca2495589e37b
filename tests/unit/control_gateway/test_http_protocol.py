"""Clients on raw sockets: that stop reading, send too early or not enough, are too many, speak HTTP/1.0 or no HTTP."""

import asyncio
import contextlib
import time

import msgspec
import pytest

from control.http_protocol import HttpProtocol
from engine import wire
from tests.unit.control_gateway.gateway_scripts import in_decode, reached
from tests.unit.control_gateway.gateway_stage import FINISHED, accepted, chat_body, eventually, says, staged
from tests.unit.control_gateway.raw_clients import (
    PATH,
    asked,
    connected,
    head_of,
    read_one_answer,
    read_to_the_end,
    sent,
)

LONG = "a" * 200_000


def protocol(**limits):
    return type("TestProtocol", (HttpProtocol,), limits)


LONG_ANSWER = says(wire.TextDelta(text=LONG * 25))


async def never_ends(request):
    yield accepted(request)
    while True:
        yield [wire.TextDelta(text=LONG)]
        await asyncio.sleep(0)


# --- A client that stops reading ---


@pytest.mark.parametrize(
    ("is_stream", "script", "outcome"),
    [(True, never_ends, "cancelled"), (True, LONG_ANSWER, "completed"), (False, LONG_ANSWER, "completed")],
)
async def test_a_client_that_reads_nothing_is_cut_off_and_its_slot_is_free(tmp_path, is_stream, script, outcome):
    async with staged(tmp_path, concurrency=1, http=protocol(stall_limit_s=0.1)) as stage:
        stage.engine.scripts = [script, says(wire.TextDelta(text="next"))]
        async with connected(stage, num_buffered_bytes=4096) as silent:
            await sent(silent, asked(stage, stream=is_stream))
            await eventually(lambda: len(stage.engine.received) == 1)
            after = await stage.client.post(PATH, json=chat_body(), timeout=5)
            await eventually(lambda: len(stage.connections) == 1)
            _, body = await read_to_the_end(silent)
        first, _ = await stage.rows(2)

    assert after.json()["choices"][0]["message"]["content"] == "next"
    assert len(body) < len(LONG) * 10
    assert first.outcome == outcome
    assert stage.engine.cancelled == ([stage.engine.received[0].id] if script is never_ends else [])


async def test_a_client_that_reads_slowly_gets_everything(tmp_path):
    async with staged(tmp_path, http=protocol(stall_limit_s=0.3)) as stage:
        stage.engine.scripts = [LONG_ANSWER]
        async with connected(stage, num_buffered_bytes=4096) as slow:
            began_at = time.monotonic()
            await sent(slow, asked(stage, version="1.0"))
            _, body = await read_to_the_end(slow, num_slow_bytes=1_500_000)
            took_s = time.monotonic() - began_at

    assert body.count(b"a" * 1000) == 25 * len(LONG) / 1000
    assert took_s > 2 * 0.3


# --- A client that sends more before it has its answer ---


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
async def test_a_client_that_sent_more_and_leaves_frees_its_slot_within_a_second(tmp_path, is_stream, is_large):
    async with staged(tmp_path, concurrency=1) as stage:
        stage.engine.scripts = [in_decode()]
        async with connected(stage) as client:
            more = asked(stage, user="x" * (3_000_000 if is_large else 0))
            await sent(client, asked(stage, stream=is_stream) + more)
            await eventually(lambda: reached(stage, "decode"))

        await eventually(lambda: not stage.line.running and len(stage.engine.cancelled) == 1, within_s=1)
        rows = await stage.rows()

    assert [(row.outcome, row.error_code) for row in rows] == [("cancelled", "client_gone")]
    assert len(stage.engine.received) == 1


@pytest.mark.parametrize("more", ["a request", "no request"])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_more_than_one_request_at_once_gets_the_first_answer_whole_and_the_end(tmp_path, more, is_stream):
    gate = in_decode()
    async with staged(tmp_path) as stage:
        stage.engine.scripts = [gate]
        async with connected(stage) as client:
            await sent(client, asked(stage, stream=is_stream))
            await eventually(lambda: reached(stage, "decode"))
            await sent(client, asked(stage) if more == "a request" else b"\x00 no request\r\n\r\n")
            await asyncio.sleep(0.05)
            gate.opened.set()
            head, body = await read_to_the_end(client)

    assert head.startswith(b"http/1.1 200 ")
    assert body.count(b"HTTP/1.1") == 0
    assert body.count(b"late") == 1
    assert len(stage.engine.received) == 1
    assert is_stream or b"connection: close" in head


async def test_one_request_after_another_goes_over_one_connection(tmp_path):
    async with staged(tmp_path) as stage, connected(stage) as client:
        for _ in range(3):
            await sent(client, asked(stage))
            head, _ = await read_one_answer(client)
            assert head.startswith(b"http/1.1 200 ")

    assert len(stage.engine.received) == 3


# --- A client that speaks HTTP/1.0, or none ---


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_of_http_1_0_gets_the_answer_without_chunks(tmp_path, is_stream):
    async with staged(tmp_path) as stage, connected(stage) as client:
        await sent(client, asked(stage, version="1.0", stream=is_stream))
        head, body = await read_to_the_end(client)

    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    if is_stream:
        assert body.startswith(b"data: {")
        assert body.endswith(b"}\n\ndata: [DONE]\n\n")
    else:
        assert f"content-length: {len(body)}".encode() in head
        assert msgspec.json.decode(body)["usage"]["total_tokens"] == FINISHED.usage.prompt + FINISHED.usage.completion


async def test_a_refusal_reaches_a_client_of_http_1_0(tmp_path):
    async with staged(tmp_path) as stage, connected(stage) as client:
        await sent(client, asked(stage, version="1.0", n=2))
        head, body = await read_to_the_end(client)

    assert head.startswith(b"http/1.1 400 ")
    assert msgspec.json.decode(body)["error"]["param"] == "n"


@pytest.mark.parametrize("said", [b"\x16\x03\x01\x00\xa5\x01", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n"])
async def test_what_is_no_http_is_refused_in_the_apis_shape(tmp_path, said):
    async with staged(tmp_path) as stage, connected(stage) as client:
        await sent(client, said)
        head, body = await read_to_the_end(client)

    error = msgspec.json.decode(body)["error"]
    assert head.startswith(b"http/1.1 400 ")
    assert b"content-type: application/json" in head
    assert b"x-request-id: " in head
    assert (error["code"], error["type"]) == ("invalid_request", "invalid_request_error")


# --- A client that does not say what it wants, and one too many ---


@pytest.mark.timed
@pytest.mark.parametrize("said", [b"", b"\r\n", b"POST /v1/chat", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_client_that_never_finishes_its_headers_is_cut_off(tmp_path, said, is_first):
    async with staged(tmp_path, http=protocol(head_limit_s=0.1)) as stage, connected(stage) as client:
        if not is_first:
            await sent(client, asked(stage))
            await read_one_answer(client)
        await sent(client, said)

        await eventually(lambda: not stage.connections, within_s=1 if said or is_first else 8)
        assert stage.engine.received == [] if is_first else len(stage.engine.received) == 1


async def test_a_body_that_takes_longer_than_headers_may_is_read(tmp_path):
    async with staged(tmp_path, http=protocol(head_limit_s=0.1)) as stage, connected(stage) as client:
        whole = asked(stage)
        await sent(client, whole[:-9])
        await asyncio.sleep(0.2)
        await sent(client, whole[-9:])
        head, _ = await read_one_answer(client)

    assert head.startswith(b"http/1.1 200 ")


async def test_one_client_too_many_is_told_and_the_others_are_served(tmp_path):
    async with staged(tmp_path, http=protocol(connection_limit=2)) as stage:
        async with connected(stage) as first, connected(stage) as second:
            await eventually(lambda: len(stage.connections) == 2)
            async with connected(stage) as third, connected(stage) as fourth:
                await sent(third, asked(stage))
                told, body = await read_to_the_end(third)
                await sent(fourth, head_of(stage, path="/v1/messages"))
                _, as_anthropic = await read_to_the_end(fourth)
            answers = []
            for client in (first, second):
                await sent(client, asked(stage))
                answers.append(await read_one_answer(client))
            await eventually(lambda: len(stage.connections) == 2)
        await eventually(lambda: len(stage.connections) == 0)
        after = await stage.client.post(PATH, json=chat_body())

    assert told.startswith(b"http/1.1 429 ")
    assert b"connection: close" in told and b"retry-after: 10" in told and b"\r\nrequest-id: " in told
    assert msgspec.json.decode(body)["error"]["code"] == "rate_limit_exceeded"
    assert msgspec.json.decode(as_anthropic)["error"]["type"] == "rate_limit_error"
    assert [head[:13] for head, _ in answers] == [b"http/1.1 200 "] * 2
    assert after.status_code == 200


async def test_far_too_many_clients_hold_nothing_open(tmp_path, monkeypatch):
    monkeypatch.setattr("control.http_protocol.TOLD_LIMIT", 1)
    async with staged(tmp_path, http=protocol(connection_limit=1)) as stage, connected(stage), connected(stage):
        await eventually(lambda: len(stage.connections) == 2)
        async with connected(stage) as one_more:
            got = await read_to_the_end(one_more)
        num_open = len(stage.connections)

    assert got == (b"", b"")
    assert num_open == 2


# --- The end of the server ---


async def test_a_client_that_is_there_when_the_server_has_ended_is_cut_without_an_answer_or_a_trace(tmp_path, caplog):
    async with contextlib.AsyncExitStack() as clients:
        async with staged(tmp_path) as stage:
            stage.line.hold()
            client = await clients.enter_async_context(connected(stage))
            await sent(client, asked(stage))
            await eventually(lambda: len(stage.line.waiting) == 1)
        got = await read_to_the_end(client)

    assert got == (b"", b"")
    assert "Exception in ASGI application" not in caplog.text
