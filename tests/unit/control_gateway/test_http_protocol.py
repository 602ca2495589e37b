"""Clients on raw sockets: those that stop reading, send too early, speak HTTP/1.0, or no HTTP."""

import asyncio
import contextlib
import socket
import time

import msgspec
import pytest

from control.http_protocol import HttpProtocol
from engine import wire
from tests.unit.control_gateway.gateway_scripts import in_decode, reached
from tests.unit.control_gateway.gateway_stage import FINISHED, accepted, chat_body, eventually, says, staged

PATH = "/v1/chat/completions"
LONG = "a" * 200_000


def protocol(**limits):
    return type("TestProtocol", (HttpProtocol,), limits)


LONG_ANSWER = says(wire.TextDelta(text=LONG * 25))


async def never_ends(request):
    yield accepted(request)
    while True:
        yield [wire.TextDelta(text=LONG)]
        await asyncio.sleep(0)


def asked(stage, *, version="1.1", **fields) -> bytes:
    body = msgspec.json.encode(chat_body(**fields))
    head = f"POST {PATH} HTTP/{version}\r\nHost: 127.0.0.1:{stage.port}\r\nx-api-key: {stage.key}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextlib.asynccontextmanager
async def connected(stage, *, num_buffered_bytes=None):
    """A socket that reads only when it is told to; `num_buffered_bytes` of the answer, the kernel reads by itself."""
    client = socket.socket()
    client.setblocking(False)
    if num_buffered_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, num_buffered_bytes)
    with client:
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", stage.port))
        yield client


async def sent(client, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(client, data)


async def read_to_the_end(client, *, num_slow_bytes=0) -> tuple[bytes, bytes]:
    """Head and body; the first bytes at about a megabyte a second."""
    received = bytearray()
    async with asyncio.timeout(20):
        while chunk := await asyncio.get_running_loop().sock_recv(client, 65536):
            received += chunk
            if len(received) < num_slow_bytes:
                await asyncio.sleep(0.003)
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    return head.lower(), body


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
            answer = b""
            while not answer.endswith(b"}}}"):
                answer += await asyncio.get_running_loop().sock_recv(client, 65536)
            assert answer.startswith(b"HTTP/1.1 200 ")

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
