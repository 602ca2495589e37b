"""The admin API's room for the machine: memory, swap, disks, heat, and who else holds memory.

It measures nothing itself: `control.machine.sampler` does, on a thread.
"""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import json_answer
from control.machine.sampler import MachineSampler


@dataclass(frozen=True, slots=True)
class MachineApi:
    sampler: MachineSampler

    def routes(self) -> list[Route]:
        return [Route(wire.MACHINE, self._machine, methods=["GET"])]

    async def _machine(self, request: Request) -> Response:
        return json_answer(await self.sampler.sample())
