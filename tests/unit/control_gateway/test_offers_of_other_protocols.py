"""Clients that offer another protocol with their request: every stock Java client and `curl --http2`, and websockets.

Format: RFC 9110, 7.8: a server may ignore the Upgrade header; RFC 9113, 3.1: h2c by upgrade is no more.
"""

import asyncio

import msgspec
import pytest

from tests.unit.control_gateway.gateway_scripts import in_decode, reached
from tests.unit.control_gateway.gateway_stage import chat_body, eventually, staged
from tests.unit.control_gateway.raw_clients import (
    asked,
    connected,
    head_of,
    read_one_answer,
    read_to_the_end,
    sent,
)

# As Java's HttpClient sends them.
H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAA",
)
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
EACH_OFFER = pytest.mark.parametrize("offer", [H2C, WEBSOCKET], ids=["h2c", "websocket"])


@pytest.fixture
async def stage(tmp_path):
    async with staged(tmp_path) as stage:
        yield stage


def said(body: bytes) -> str:
    return msgspec.json.decode(body)["choices"][0]["message"]["content"]


@EACH_OFFER
@pytest.mark.parametrize("step", [1, 7, 100, 1_000_000])
async def test_an_offer_of_another_protocol_is_ignored_and_the_body_is_read(stage, offer, step):
    request = asked(stage, headers=offer, user="ü" * 50)

    async with connected(stage) as client:
        for start in range(0, len(request), step):
            await sent(client, request[start : start + step])
            await asyncio.sleep(0)
        head, body = await read_one_answer(client)

    assert head.startswith(b"http/1.1 200 ")
    assert b"upgrade" not in head
    assert said(body) == "hello"


async def test_a_large_body_behind_an_offer_arrives_whole(stage):
    text = "word " * 400_000

    async with connected(stage) as client:
        await sent(client, asked(stage, headers=H2C, messages=[{"role": "user", "content": text}]))
        head, _ = await read_one_answer(client)

    assert head.startswith(b"http/1.1 200 ")
    assert stage.engine.received[0].prompt.messages[0].content[0].text == text


async def test_a_body_in_chunks_behind_an_offer_is_read(stage):
    body = msgspec.json.encode(chat_body())
    head = head_of(stage, headers=(*H2C, "Transfer-Encoding: chunked")).replace(b"Content-Length: 0\r\n", b"")

    async with connected(stage) as client:
        for part in (body[:9], body[9:]):
            await sent(client, head + b"%x\r\n%b\r\n" % (len(part), part))
            head = b""
        await sent(client, b"0\r\n\r\n")
        _, answer = await read_one_answer(client)

    assert said(answer) == "hello"


async def test_a_stream_that_came_with_an_offer_ends_whole(stage):
    async with connected(stage) as client:
        await sent(client, asked(stage, headers=("Connection: close, Upgrade", "Upgrade: h2c"), stream=True))
        head, body = await read_to_the_end(client)

    assert b"connection: close" in head
    assert b"data: [DONE]\n\n" in body


async def test_each_request_of_a_connection_may_offer(stage):
    async with connected(stage) as client:
        answers = []
        for headers in (H2C, (), WEBSOCKET, H2C):
            await sent(client, asked(stage, headers=headers))
            answers.append(said((await read_one_answer(client))[1]))

    assert answers == ["hello"] * 4


async def test_a_request_without_a_body_may_offer(stage):
    async with connected(stage) as client:
        await sent(client, head_of(stage, method="GET", path="/v1/models", headers=H2C))
        head, body = await read_one_answer(client)
        await sent(client, asked(stage))
        after, _ = await read_one_answer(client)

    assert (head[:12], after[:12]) == (b"http/1.1 200", b"http/1.1 200")
    assert msgspec.json.decode(body)["data"]


async def test_a_client_that_expects_a_go_ahead_gets_it_once(stage):
    request = asked(stage, headers=(*H2C, "Expect: 100-continue"))
    head, _, body = request.partition(b"\r\n\r\n")

    async with connected(stage) as client:
        await sent(client, head + b"\r\n\r\n")
        go_ahead = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1000), 2)
        await sent(client, body)
        answer, _ = await read_one_answer(client)

    assert go_ahead == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.startswith(b"http/1.1 200 ")


@pytest.mark.parametrize("more", ["a request that offers, too", "no request"])
async def test_what_follows_a_request_that_offers_is_not_taken_for_a_part_of_it(stage, more):
    gate = in_decode()
    stage.engine.scripts = [gate]
    junk = asked(stage, headers=H2C) if more == "a request that offers, too" else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    async with connected(stage) as client:
        await sent(client, asked(stage, headers=H2C) + junk)
        await eventually(lambda: reached(stage, "decode"))
        gate.opened.set()
        head, body = await read_to_the_end(client)

    assert head.startswith(b"http/1.1 200 ")
    assert said(body) == "earlylate"
    assert len(stage.engine.received) == 1


@pytest.mark.parametrize(
    "first", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT example.org:443 HTTP/1.1\r\n\r\n\x16\x03"]
)
async def test_another_protocol_without_an_offer_is_refused_and_closed(stage, first):
    async with connected(stage) as client:
        await sent(client, first)
        head, _ = await read_to_the_end(client)

    assert head.startswith(b"http/1.1 400 ")


async def test_an_offer_leaves_no_advice_in_the_log(stage, caplog):
    async with connected(stage) as client:
        for offer in (H2C, WEBSOCKET):
            await sent(client, asked(stage, headers=offer))
            await read_one_answer(client)

    assert [record.getMessage() for record in caplog.records if record.name == "uvicorn.error"] == []
