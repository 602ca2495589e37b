"""Clients on raw sockets, which send and read exactly what a test says."""

import asyncio
import contextlib
import socket

import msgspec

from tests.unit.control_gateway.gateway_stage import chat_body

PATH = "/v1/chat/completions"


def head_of(stage, *, num_body_bytes=0, method="POST", path=PATH, version="1.1", headers=()) -> bytes:
    own = (f"Host: 127.0.0.1:{stage.port}", f"x-api-key: {stage.key}", f"Content-Length: {num_body_bytes}")
    return "\r\n".join((f"{method} {path} HTTP/{version}", *own, *headers, "", "")).encode()


def asked(stage, *, version="1.1", headers=(), **fields) -> bytes:
    body = msgspec.json.encode(chat_body(**fields))
    return head_of(stage, num_body_bytes=len(body), version=version, headers=headers) + body


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


async def read_one_answer(client) -> tuple[bytes, bytes]:
    """Head and body of an answer that says how long it is."""
    received = b""
    async with asyncio.timeout(5):
        while b"\r\n\r\n" not in received or len(received) < _whole_len(received):
            chunk = await asyncio.get_running_loop().sock_recv(client, 65536)
            assert chunk, received
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    return head.lower(), body


def _whole_len(received: bytes) -> int:
    head, _, _ = received.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return len(head) + 4 + int(length)
