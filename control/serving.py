"""Two HTTP servers in one event loop, on sockets that were bound before, ended by one call.

It knows no route; signals are left to `__main__`.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from control.http_protocol import HttpProtocol


class QuietServer(uvicorn.Server):
    """A server that leaves the signals of the process alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Servers:
    """`close_limit_s`: so long after `stop_listening` the connections that are left are cut, without a word."""

    def __init__(self, *, close_limit_s: int) -> None:
        self._close_limit_s = close_limit_s
        self._servers: list[QuietServer] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, app: ASGIApp, bound: socket.socket, *, connection_limit: int | None = None) -> None:
        config = uvicorn.Config(
            app,
            http=HttpProtocol if connection_limit is None else HttpProtocol.limited_to(connection_limit),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=self._close_limit_s,
        )
        server = QuietServer(config)
        self._servers.append(server)
        self._tasks.append(asyncio.create_task(server.serve(sockets=[bound])))

    def stop_listening(self) -> None:
        """No new connection; those that are idle are closed, those that answer go on."""
        for server in self._servers:
            server.should_exit = True

    async def closed(self) -> None:
        """Until every connection has ended, or was cut."""
        await asyncio.gather(*self._tasks)
