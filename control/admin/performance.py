"""What the page Performance asks, as routes of the admin API: throughput and times, and why the cache missed.

It measures nothing: `control.metrics.performance_questions` knows what was measured, and the engine why it missed.
"""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import json_answer, require_known_parameters
from control.metrics.performance_questions import PerformanceQuestions
from control.metrics.ranges import range_of
from control.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class PerformanceApi:
    questions: PerformanceQuestions
    supervisor: Supervisor

    def routes(self) -> list[Route]:
        return [
            Route(wire.PERFORMANCE, self._performance, methods=["GET"]),
            Route(wire.MISSES, self._misses, methods=["GET"]),
        ]

    async def _performance(self, request: Request) -> Response:
        require_known_parameters(request, ("range", "model"))
        chosen = range_of(request.query_params.get("range", "day"))
        return json_answer(await self.questions.performance(chosen, request.query_params.get("model")))

    async def _misses(self, request: Request) -> Response:
        status = self.supervisor.status
        cache = None if status is None else status.cache
        if cache is None:
            return json_answer(wire.MissList(reason="no model is loaded"))
        return json_answer(wire.MissList(cache.misses, cache.is_on, cache.reason, cache.lookups))
