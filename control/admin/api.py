"""The admin API on :18084: what the console and the command line ask of control, behind the admin secret.

It checks who asks and what is asked, and passes it on; it does nothing itself. Paths and bodies are in `control.wire`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from control import wire
from control.admin.edge import HANDLERS, Guard, body_of, json_answer
from control.admin.errors import LoginLinkInvalid, OrderInvalid
from control.departure import Departure
from control.engine_questions import EngineQuestions
from control.login_links import LoginLinks
from control.overview import OverviewSource
from control.prometheus import CONTENT_TYPE, Prometheus
from control.supervisor import Supervisor

LINK_LIMIT_S: Final = 600.0


class AdminRoom(Protocol):
    """Routes that belong together, and those whom they ask: a part of the API in a file of its own."""

    def routes(self) -> list[Route]: ...


@dataclass(frozen=True, slots=True)
class AdminApi:
    """Everybody that an order can go to."""

    supervisor: Supervisor
    departure: Departure
    links: LoginLinks
    rooms: Sequence[AdminRoom]
    prometheus: Prometheus
    engine_questions: EngineQuestions
    overviews: OverviewSource
    health: wire.Health

    def app(self, *, secret: str, port: int) -> ASGIApp:
        routes = [
            Route(wire.HEALTHZ, self._healthz, methods=["GET"]),
            Route(wire.OVERVIEW, self._overview, methods=["GET"]),
            Route(wire.LOAD, self._load, methods=["POST"]),
            Route(wire.UNLOAD, self._unload, methods=["POST"]),
            Route(wire.RESTART, self._restart, methods=["POST"]),
            Route(wire.CACHE_CLEAR, self._clear_cache, methods=["POST"]),
            *(route for room in self.rooms for route in room.routes()),
            Route(wire.MODELS, self._models, methods=["GET"]),
            Route(wire.LOGIN_LINKS, self._new_link, methods=["POST"]),
            Route(wire.REDEEM, self._redeem, methods=["POST"]),
            Route(wire.METRICS, self._metrics, methods=["GET"]),
            Route(wire.QUIT, self._quit, methods=["POST"]),
            Route(wire.LEAVE, self._leave, methods=["POST"]),
        ]
        return Guard(Starlette(routes=routes, exception_handlers=HANDLERS), secret=secret, port=port)

    async def _healthz(self, request: Request) -> Response:
        return json_answer(self.health)

    async def _overview(self, request: Request) -> Response:
        return json_answer(await self.overviews.overview())

    async def _load(self, request: Request) -> Response:
        return json_answer(await self.supervisor.load(await body_of(request, wire.LoadRequest)), status=202)

    async def _unload(self, request: Request) -> Response:
        order = await body_of(request, wire.UnloadRequest)
        return json_answer(self.supervisor.unload(force=order.force), status=202)

    async def _restart(self, request: Request) -> Response:
        return json_answer(await self.supervisor.restart(), status=202)

    async def _clear_cache(self, request: Request) -> Response:
        return json_answer(await self.supervisor.clear_cache())

    async def _models(self, request: Request) -> Response:
        return json_answer(await self.engine_questions.models())

    async def _new_link(self, request: Request) -> Response:
        order = await body_of(request, wire.NewLoginLink)
        if not 0 < order.valid_s <= LINK_LIMIT_S:
            raise OrderInvalid(f"valid_s must be more than 0 and at most {LINK_LIMIT_S:.0f}.")
        return json_answer(self.links.mint(order.valid_s), status=201)

    async def _redeem(self, request: Request) -> Response:
        order = await body_of(request, wire.Redeem)
        if not self.links.redeem(order.token):
            raise LoginLinkInvalid
        return Response(status_code=204)

    async def _metrics(self, request: Request) -> Response:
        return Response(self.prometheus.exposition(), headers={"content-type": CONTENT_TYPE})

    async def _quit(self, request: Request) -> Response:
        order = await body_of(request, wire.QuitRequest)
        return json_answer(self.departure.quit(force=order.force), status=202)

    async def _leave(self, request: Request) -> Response:
        order = await body_of(request, wire.LeaveRequest)
        return json_answer(self.departure.leave(force=order.force), status=202)
