"""A client of HTTP/1.1 that costs little: one connection, one request after the other, chunks as they come.

It measures nothing, and knows no more of HTTP than the two doors of Splash use.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

DONE = b"data: [DONE]"


@dataclass(frozen=True, slots=True)
class Head:
    status: int
    headers: dict[str, str]


class Connection:
    """`token` is sent with every request. Of a request, `head` is awaited first, then `chunks` are read to the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, port: int, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._headers = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"

    @classmethod
    async def open(cls, port: int, token: str) -> "Connection":
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(reader, writer, port=port, token=token)

    def send(self, path: str, body: bytes, *, announced_bytes: int | None = None) -> None:
        """POST. `announced_bytes`: the length that the header says, when it is not that of `body`."""
        length = len(body) if announced_bytes is None else announced_bytes
        head = f"POST {path} HTTP/1.1\r\n{self._headers}Content-Length: {length}\r\n\r\n"
        self._writer.write(head.encode() + body)

    def get(self, path: str) -> None:
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._headers}\r\n".encode())

    async def head(self) -> Head:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return Head(int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs})

    async def chunks(self, head: Head) -> AsyncIterator[bytes]:
        """As they were sent; a body of known length is one."""
        if "content-length" in head.headers:
            yield await self._reader.readexactly(int(head.headers["content-length"]))
            return
        while True:
            size = int(await self._reader.readline(), 16)
            chunk = await self._reader.readexactly(size + 2)
            if size == 0:
                return
            yield chunk[:-2]

    async def body(self) -> bytes:
        """Of the request that was sent last. Raises RuntimeError when the answer is no 200."""
        head = await self.head()
        body = b"".join([chunk async for chunk in self.chunks(head)])
        if head.status != 200:
            raise RuntimeError(f"answered {head.status}: {body[:300]!r}")
        return body

    def close(self) -> None:
        """At once, whatever is on the way."""
        self._writer.transport.abort()
