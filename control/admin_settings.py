"""The settings that a person changes while Splash runs, as routes of the admin API: concurrency, aliases, heartbeats.

Each is in force at once and kept for the next start. What a setting means, and what it can be, is elsewhere.
"""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin_edge import body_of, json_answer
from control.admin_errors import OrderInvalid
from control.aliases import ALIASES_SETTING, Aliases, checked
from control.fifo import Line
from control.heartbeats import Heartbeats
from control.metrics.settings import Settings

CONCURRENCY_SETTING: Final = "concurrency"


@dataclass(frozen=True, slots=True)
class SettingsApi:
    settings: Settings
    line: Line
    aliases: Aliases
    heartbeats: Heartbeats

    def routes(self) -> list[Route]:
        return [
            Route(wire.CONCURRENCY, self._set_concurrency, methods=["POST"]),
            Route(wire.ALIASES, self._list_aliases, methods=["GET"]),
            Route(wire.ALIASES, self._set_aliases, methods=["PUT"]),
            Route(wire.HEARTBEATS, self._list_heartbeats, methods=["GET"]),
            Route(wire.HEARTBEATS, self._set_heartbeats, methods=["PUT"]),
        ]

    async def _set_concurrency(self, request: Request) -> Response:
        order = await body_of(request, wire.ConcurrencyRequest)
        try:
            self.line.set_concurrency(order.concurrency)
        except ValueError as error:
            raise OrderInvalid(f"{error}.") from error
        await self.settings.put(CONCURRENCY_SETTING, order.concurrency)
        return json_answer(order)

    async def _list_aliases(self, request: Request) -> Response:
        return json_answer(wire.AliasList(aliases=self.aliases.list()))

    async def _set_aliases(self, request: Request) -> Response:
        aliases = checked((await body_of(request, wire.AliasList)).aliases)
        await self.settings.put(ALIASES_SETTING, aliases)
        self.aliases.replace(aliases)
        return json_answer(wire.AliasList(aliases=self.aliases.list()))

    async def _list_heartbeats(self, request: Request) -> Response:
        return json_answer(self.heartbeats.view())

    async def _set_heartbeats(self, request: Request) -> Response:
        await self.heartbeats.change((await body_of(request, wire.HeartbeatModes)).modes)
        return json_answer(self.heartbeats.view())
