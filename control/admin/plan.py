"""The admin API's room for plans: what a load would find, before it is ordered.

It computes no plan (`engine.memory` does), and ends the question when nobody waits for the answer any more.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import body_of, json_answer
from control.admin.errors import OrderInvalid
from control.load_settings import complaint
from control.plans import Plans
from control.supervisor import Supervisor
from control.wire import LoadRequest

# Nobody reads it; as web servers write it in their logs.
NOBODY_WAITS: Final = 499


@dataclass(frozen=True, slots=True)
class PlanApi:
    plans: Plans
    supervisor: Supervisor

    def routes(self) -> list[Route]:
        return [Route(wire.PLAN, self._plan, methods=["POST"])]

    async def _plan(self, request: Request) -> Response:
        """Raises OrderInvalid, UnknownModel, ModelRefused."""
        asked = await body_of(request, wire.PlanRequest)
        load = LoadRequest(
            model=asked.model, context=asked.context, budget_bytes=asked.budget_bytes, kv_bits=asked.kv_bits
        )
        wrong = complaint(load) if asked.model else "model must be a name."
        if wrong is not None:
            raise OrderInvalid(wrong)
        planning = asyncio.create_task(self.plans.plan(self.supervisor.completed(load)))
        leaving = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({planning, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not planning.done():
                return Response(status_code=NOBODY_WAITS)
            return json_answer(planning.result())
        finally:
            for task in (planning, leaving):
                task.cancel()
            await asyncio.gather(planning, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
