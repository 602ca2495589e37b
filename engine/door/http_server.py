"""The HTTP server under the door: uvicorn on httptools, told when to stop by us alone.

It knows no route; whoever makes it also binds the socket.
"""

import contextlib
from collections.abc import Generator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from engine.door.http_protocol import HttpProtocol

CONNECTIONS_END_TIMEOUT_S: Final = 2


def make_http_server(app: ASGIApp) -> uvicorn.Server:
    """Run it with `serve(sockets=[...])`; end it by `should_exit = True`."""
    return _Server(
        uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=CONNECTIONS_END_TIMEOUT_S,
        )
    )


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: it would end the process by the signal, and the exit code is ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
