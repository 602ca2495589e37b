"""API keys as routes of the admin API: listed, made, changed, revoked, and what each was used for.

It keeps no key and enforces no limit: the ring and the quotas do.
"""

from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import body_of, json_answer, number_of
from control.admin.errors import OrderInvalid
from control.keys import KeyRing
from control.metrics.key_questions import key_totals
from control.metrics.questions import Questions
from control.quotas import Quotas


@dataclass(frozen=True, slots=True)
class KeysApi:
    keys: KeyRing
    quotas: Quotas
    questions: Questions

    def routes(self) -> list[Route]:
        return [
            Route(wire.KEYS, self._list, methods=["GET"]),
            Route(wire.KEYS, self._create, methods=["POST"]),
            Route(wire.KEY_TOTALS, self._totals, methods=["GET"]),
            Route(wire.KEY, self._change, methods=["PATCH"]),
            Route(wire.KEY, self._revoke, methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        return json_answer(wire.KeyList(keys=tuple(self._with_usage(view) for view in self.keys.list())))

    async def _create(self, request: Request) -> Response:
        order = await body_of(request, wire.NewKey)
        return json_answer(await self.keys.create(order.name, order.request_class, order.limits), status=201)

    async def _totals(self, request: Request) -> Response:
        return json_answer(wire.KeyTotalsList(keys=await key_totals(self.questions, self.keys.list())))

    async def _change(self, request: Request) -> Response:
        order = await body_of(request, wire.KeyChange)
        return json_answer(self._with_usage(await self.keys.change(_key_id(request), order)))

    async def _revoke(self, request: Request) -> Response:
        return json_answer(self._with_usage(await self.keys.revoke(_key_id(request))))

    def _with_usage(self, view: wire.KeyView) -> wire.KeyView:
        return msgspec.structs.replace(view, today=self.quotas.usage(view.id))


def _key_id(request: Request) -> int:
    key_id = number_of(request.path_params["id"])
    if key_id is None:
        raise OrderInvalid("The id of a key is a number.")
    return key_id
