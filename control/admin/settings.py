"""The settings that a person changes while Splash runs, as routes of the admin API: concurrency, aliases, heartbeats.

Each is kept for the next start and in force at once, or neither. What a setting means is elsewhere.
"""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import body_of, json_answer
from control.admin.errors import OrderInvalid
from control.aliases import ALIASES_SETTING, Aliases, checked
from control.fifo import MAXIMUM_CONCURRENCY, Line
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
        if not 1 <= order.concurrency <= MAXIMUM_CONCURRENCY:
            raise OrderInvalid(f"concurrency must be 1 to {MAXIMUM_CONCURRENCY}, not {order.concurrency}.")
        await self.settings.change(CONCURRENCY_SETTING, lambda: order.concurrency, in_force=self.line.set_concurrency)
        return json_answer(order)

    async def _list_aliases(self, request: Request) -> Response:
        return json_answer(wire.AliasList(aliases=self.aliases.list()))

    async def _set_aliases(self, request: Request) -> Response:
        aliases = checked((await body_of(request, wire.AliasList)).aliases)
        await self.settings.change(ALIASES_SETTING, lambda: aliases, in_force=self.aliases.replace)
        return json_answer(wire.AliasList(aliases=self.aliases.list()))

    async def _list_heartbeats(self, request: Request) -> Response:
        return json_answer(self.heartbeats.view())

    async def _set_heartbeats(self, request: Request) -> Response:
        await self.heartbeats.change((await body_of(request, wire.HeartbeatModes)).modes)
        return json_answer(self.heartbeats.view())
