"""What clients need to use this Splash, as a route of the admin API: the blocks that `splash connect` prints.

It makes no key: the place where one belongs is marked. It reads and writes no client's config.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import json_answer
from control.connections.clients import CLIENTS
from control.connections.connection import Client, Connection, context_tokens_of, instructions
from control.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class ConnectionsApi:
    supervisor: Supervisor
    api_base: str

    def routes(self) -> list[Route]:
        return [Route(wire.CONNECTIONS, self._list, methods=["GET"])]

    async def _list(self, request: Request) -> Response:
        connection = Connection(
            api_base=self.api_base,
            key=wire.KEY_PLACEHOLDER,
            context_tokens=context_tokens_of(self.supervisor.view()),
        )
        views = tuple(_view(client, connection) for client in CLIENTS.values())
        return json_answer(wire.ConnectionList(api_base=self.api_base, clients=views))


def _view(client: Client, connection: Connection) -> wire.ClientConnection:
    path = None if client.file is None else client.file.path(os.environ, Path.home())
    return wire.ClientConnection(
        name=client.name,
        title=client.title,
        text=instructions(client, connection),
        file=None if path is None else str(path),
        is_file_content=client.file is not None and not client.environment(connection),
        lacks_context=client.file is not None and connection.context_tokens is None,
    )
