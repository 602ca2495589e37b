"""The admin API's room for sleep: whether the machine is kept awake, as a setting. Its state is in the overview."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import body_of, json_answer
from control.power.keeper import AwakeKeeper


@dataclass(frozen=True, slots=True)
class PowerApi:
    keeper: AwakeKeeper

    def routes(self) -> list[Route]:
        return [Route(wire.KEEP_AWAKE, self._set_keep_awake, methods=["POST"])]

    async def _set_keep_awake(self, request: Request) -> Response:
        order = await body_of(request, wire.KeepAwakeRequest)
        await self.keeper.change(order.keep_awake)
        return json_answer(order)
