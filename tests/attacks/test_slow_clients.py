"""Clients that say nothing, drip, or take nothing: they are cut off, and the others are served meanwhile.

The limits are half a minute, so cutting is shown on servers in this process with the same protocols and small limits;
that nobody else waits is shown on the real ones. A body that drips into the public API: `tests/unit/control_gateway`.
"""

import asyncio
import contextlib
import time

import pytest
from starlette.applications import Starlette

from control import wire
from control.admin import edge
from control.admin.database import DatabaseApi
from control.home import Home
from control.http_protocol import HttpProtocol as ControlProtocol
from engine.door.http_protocol import HttpProtocol as EngineProtocol
from tests.attacks.doors import first_answer
from tests.unit.control_gateway.gateway_stage import eventually, serving
from tests.unit.control_lifecycle.rooms import SECRET
from webui.http_protocol import HttpProtocol as ConsoleProtocol

PROTOCOLS = {
    "control": (ControlProtocol, {"head_limit_s": 0.1, "stall_limit_s": 0.1}),
    "console": (ConsoleProtocol, {"patience_s": 0.1}),
    "engine": (EngineProtocol, {"patience_s": 0.1}),
}
DRIPPED = {
    "nothing": (b"", b""),
    "a head, byte by byte": (b"GET / HTTP/1.1\r\n", b"a"),
    "headers, one by one": (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
    "empty lines": (b"", b"\r\n"),
}
NUM_SLOW = 40
DRIP_S = 0.02


async def hello(scope, receive, send) -> None:
    """Answers every request once its body is there, /slow after a while and /large with 32 MiB."""
    while (await receive()).get("more_body"):
        continue
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = bytes(2**25) if scope["path"] == "/large" else b"hello"
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def served_by(name, **more):
    protocol, limits = PROTOCOLS[name]
    async with serving(lambda _: hello, type("Quick", (protocol,), limits | more)) as server:
        yield server


async def dripped(port: int, first: bytes, drop: bytes) -> bytes:
    """Send `first`, and then `drop` for as long as the other side stays; what it said. Fails when that is 5 s."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = asyncio.create_task(reader.read())
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            writer.write(first)
            while not answer.done():
                writer.write(drop)
                await asyncio.sleep(DRIP_S)
        writer.close()
        with contextlib.suppress(ConnectionError):
            return await answer
    return b""


async def asked(port: int, path: str = "/") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.timed
@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("dripping", DRIPPED)
async def test_who_never_says_what_is_wanted_is_cut_off_and_the_next_is_served(name, dripping):
    async with served_by(name) as server:
        slow = asyncio.create_task(dripped(server.port, *DRIPPED[dripping]))
        meanwhile = await asked(server.port)
        said = await slow

    assert said == b""
    assert b"hello" in meanwhile


@pytest.mark.timed
@pytest.mark.parametrize("name", ["console", "engine"])
@pytest.mark.parametrize("drop", [b"", b"a"])
async def test_who_never_ends_a_body_is_cut_off(name, drop):
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"

    async with served_by(name) as server:
        said = await dripped(server.port, head, drop)

    assert said == b""


@pytest.mark.timed
async def test_an_order_to_control_that_drips_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(edge, "BODY_TIMEOUT_S", 0.1)
    monkeypatch.setattr(ControlProtocol, "head_limit_s", 0.1)
    orders = Starlette(routes=DatabaseApi(home=Home(tmp_path)).routes(), exception_handlers=edge.HANDLERS)

    async with serving(lambda port: edge.Guard(orders, secret=SECRET, port=port), ControlProtocol) as server:
        lines = [f"POST {wire.BACKUP} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Authorization: Bearer {SECRET}"]
        said = await dripped(server.port, "\r\n".join([*lines, "Content-Length: 60000", "", ""]).encode(), b" ")

    assert said.startswith(b"HTTP/1.1 408 ")


@pytest.mark.timed
@pytest.mark.parametrize("name", ["control", "console"])
async def test_who_takes_nothing_of_an_answer_is_cut_off(name):
    async with served_by(name) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        writer.write(f"GET /large HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        await eventually(lambda: len(server.server_state.connections) == 1)
        await eventually(lambda: not server.server_state.connections)
        writer.close()


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_who_waits_for_us_is_never_cut_off(name):
    async with served_by(name) as server:
        answer = await asked(server.port, "/slow")

    assert b"hello" in answer


async def test_one_browser_too_many_is_cut_off_and_the_others_are_served():
    async with (
        served_by("console", connection_limit=2, patience_s=30) as server,
        contextlib.AsyncExitStack() as clients,
    ):
        for _ in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            clients.callback(writer.close)
        await eventually(lambda: len(server.server_state.connections) == 2)
        with contextlib.suppress(ConnectionError):
            assert await asked(server.port) == b""
        writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        await eventually(lambda: server.server_state.total_requests == 1)


def test_nobody_has_longer_than_half_a_minute_for_a_head():
    assert ControlProtocol.head_limit_s == ConsoleProtocol.patience_s == EngineProtocol.patience_s == 30


@pytest.mark.timed
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\nContent-Length: 9999\r\n\r\nab"])
def test_many_that_say_nothing_more_keep_nobody_waiting(door, said):
    with contextlib.ExitStack() as slow:
        for _ in range(NUM_SLOW):
            slow.enter_context(door.connected()).sendall(said)
        began_at = time.monotonic()
        with door.connected() as client:
            client.sendall(door.request(has_pass=True))
            answer = first_answer(client)
        took_s = time.monotonic() - began_at

    assert answer.status == 200
    assert took_s < 2
