"""The admin API on :18084: what the console and the command line ask of control, behind the admin secret.

It checks who asks and what is asked, and passes it on; it does nothing itself. Paths and bodies are in `control.wire`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from control import wire
from control.admin_edge import HANDLERS, Guard, body_of, json_answer, number_of
from control.admin_errors import LoginLinkInvalid, OrderInvalid, UnknownRequest
from control.engine_questions import EngineQuestions
from control.keys import KeyRing
from control.login_links import LoginLinks
from control.metrics.questions import Questions
from control.overview import OverviewSource
from control.prometheus import CONTENT_TYPE, Prometheus
from control.quotas import Quotas
from control.relay import Relay
from control.supervisor import Supervisor

REQUESTS_DEFAULT: Final = 50
REQUESTS_LIMIT: Final = 1000
LINK_LIMIT_S: Final = 600.0


class AdminRoom(Protocol):
    """Routes that belong together, and those whom they ask: a part of the API in a file of its own."""

    def routes(self) -> list[Route]: ...


@dataclass(frozen=True, slots=True)
class AdminApi:
    """Everybody that an order can go to."""

    supervisor: Supervisor
    relay: Relay
    keys: KeyRing
    quotas: Quotas
    links: LoginLinks
    questions: Questions
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
            Route(wire.REQUESTS, self._requests, methods=["GET"]),
            Route(wire.CANCEL, self._cancel, methods=["POST"]),
            Route(wire.KEYS, self._list_keys, methods=["GET"]),
            Route(wire.KEYS, self._new_key, methods=["POST"]),
            Route(wire.KEY, self._limit_key, methods=["PATCH"]),
            Route(wire.KEY, self._revoke_key, methods=["DELETE"]),
            Route(wire.MODELS, self._models, methods=["GET"]),
            Route(wire.LOGIN_LINKS, self._new_link, methods=["POST"]),
            Route(wire.REDEEM, self._redeem, methods=["POST"]),
            Route(wire.METRICS, self._metrics, methods=["GET"]),
            Route(wire.QUIT, self._quit, methods=["POST"]),
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

    async def _requests(self, request: Request) -> Response:
        text = request.query_params.get("limit", str(REQUESTS_DEFAULT))
        limit = number_of(text)
        if limit is None or not 1 <= limit <= REQUESTS_LIMIT:
            raise OrderInvalid(f"limit must be a number from 1 to {REQUESTS_LIMIT}.")
        return json_answer(wire.RequestList(requests=await self.questions.recent_requests(limit)))

    async def _cancel(self, request: Request) -> Response:
        request_id = request.path_params["id"]
        if not self.relay.cancel(request_id):
            raise UnknownRequest(request_id)
        return Response(status_code=204)

    async def _list_keys(self, request: Request) -> Response:
        return json_answer(wire.KeyList(keys=tuple(self._with_usage(view) for view in self.keys.list())))

    async def _new_key(self, request: Request) -> Response:
        order = await body_of(request, wire.NewKey)
        return json_answer(await self.keys.create(order.name, order.request_class, order.limits), status=201)

    async def _limit_key(self, request: Request) -> Response:
        order = await body_of(request, wire.LimitsChange)
        return json_answer(self._with_usage(await self.keys.limit(_key_id(request), order)))

    async def _revoke_key(self, request: Request) -> Response:
        return json_answer(self._with_usage(await self.keys.revoke(_key_id(request))))

    async def _models(self, request: Request) -> Response:
        return json_answer(wire.ModelList(models=await self.engine_questions.models()))

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
        return json_answer(self.supervisor.quit(force=order.force), status=202)

    def _with_usage(self, view: wire.KeyView) -> wire.KeyView:
        return msgspec.structs.replace(view, today=self.quotas.usage(view.id))


def _key_id(request: Request) -> int:
    key_id = number_of(request.path_params["id"])
    if key_id is None:
        raise OrderInvalid("The id of a key is a number.")
    return key_id
