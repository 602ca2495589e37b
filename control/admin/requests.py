"""Single requests as routes of the admin API: the list, one of it, all of it as a file, and the end of one that runs.

It reads what is asked and passes it on; SQL and the form of a file are in `control.metrics`.
"""

import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar, get_args

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from control import wire
from control.admin.edge import json_answer, number_of, require_known_parameters
from control.admin.errors import OrderInvalid, UnknownRequest
from control.metrics.ranges import range_of, since_s
from control.metrics.request_export import FORMATS, MEDIA_TYPES, ExportFormat, beginning, end, middle
from control.metrics.request_kinds import KindFilter
from control.metrics.request_questions import RequestQuestions
from control.metrics.request_search import Search, cursor_of
from control.relay import Relay

REQUESTS_DEFAULT: Final = 50
REQUESTS_LIMIT: Final = 1000
SORTS: Final[tuple[wire.RequestSort, ...]] = get_args(wire.RequestSort)
DIRECTIONS: Final[tuple[wire.SortDirection, ...]] = get_args(wire.SortDirection)
OUTCOMES: Final[tuple[wire.Outcome, ...]] = get_args(wire.Outcome)
CLASSES: Final[tuple[wire.RequestClass, ...]] = get_args(wire.RequestClass)

# What both the list and the file can be asked for.
FILTERS: Final = ("since", "until", "range", "key", "model", "dialect", "outcome", "request_class", "direction")

_Choice = TypeVar("_Choice", bound=str)


@dataclass(frozen=True, slots=True)
class RequestsApi:
    requests: RequestQuestions
    relay: Relay
    wall: Callable[[], float] = time.time

    def routes(self) -> list[Route]:
        return [
            Route(wire.REQUESTS, self._list, methods=["GET"]),
            Route(wire.REQUEST_EXPORT, self._export, methods=["GET"]),
            Route(wire.REQUEST_CHOICES, self._choices, methods=["GET"]),
            Route(wire.REQUEST, self._one, methods=["GET"]),
            Route(wire.CANCEL, self._cancel, methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        require_known_parameters(request, (*FILTERS, "limit", "sort", "after"))
        return json_answer(await self.requests.page(self._search(request)))

    async def _one(self, request: Request) -> Response:
        request_id = request.path_params["id"]
        listed = await self.requests.one(request_id)
        if listed is None:
            raise UnknownRequest(request_id)
        return json_answer(listed)

    async def _choices(self, request: Request) -> Response:
        return json_answer(await self.requests.choices())

    async def _export(self, request: Request) -> Response:
        """In the order of time. A page at a time, so that nobody waits for the reading thread, and nothing piles up."""
        require_known_parameters(request, (*FILTERS, "format"))
        chosen = _one_of(request.query_params.get("format", "csv"), FORMATS, "format")
        now_s = self.wall()
        search = replace(self._filter(request, now_s), direction=_direction(request), limit=REQUESTS_LIMIT)
        # What comes while it is written is not part of it.
        search = replace(search, until_s=now_s if search.until_s is None else search.until_s)
        first = await self._part(search, chosen, is_first=True)
        named = time.strftime("splash-requests-%Y%m%d-%H%M%SZ", time.gmtime(now_s))
        return StreamingResponse(
            self._file(search, chosen, first),
            media_type=MEDIA_TYPES[chosen],
            headers={"content-disposition": f'attachment; filename="{named}.{chosen}"'},
        )

    async def _file(self, search: Search, chosen: ExportFormat, first: "_Part") -> AsyncIterator[bytes]:
        """What goes wrong in the middle breaks the connection off, so that nobody takes it for the whole."""
        yield beginning(chosen) + first.content
        part = first
        while part.next is not None:
            search = replace(search, after=cursor_of(part.next, search.sort, search.direction))
            part = await self._part(search, chosen, is_first=False)
            yield part.content
        yield end(chosen)

    async def _part(self, search: Search, chosen: ExportFormat, *, is_first: bool) -> "_Part":
        return await self.requests.page_as(
            search, lambda page: _Part(middle(chosen, page.requests, is_first=is_first), page.next)
        )

    async def _cancel(self, request: Request) -> Response:
        request_id = request.path_params["id"]
        if not self.relay.cancel(request_id):
            raise UnknownRequest(request_id)
        return Response(status_code=204)

    def _search(self, request: Request) -> Search:
        given = request.query_params
        limit = number_of(given.get("limit", str(REQUESTS_DEFAULT)))
        if limit is None or not 1 <= limit <= REQUESTS_LIMIT:
            raise OrderInvalid(f"limit must be a number from 1 to {REQUESTS_LIMIT}.")
        sort, direction = _one_of(given.get("sort", "started"), SORTS, "sort"), _direction(request)
        after = cursor_of(given["after"], sort, direction) if "after" in given else None
        search = self._filter(request, self.wall())
        return replace(search, sort=sort, direction=direction, limit=limit, after=after)

    def _filter(self, request: Request, now_s: float) -> Search:
        given = request.query_params
        since, until = _moment(given.get("since"), "since"), _moment(given.get("until"), "until")
        if "range" in given:
            if since is not None:
                raise OrderInvalid("Either since or range, not both.")
            chosen = range_of(given["range"])
            if chosen != "all":
                since, until = since_s(chosen, now_s), now_s if until is None else min(until, now_s)
        outcome, request_class = given.get("outcome"), given.get("request_class")
        return Search(
            kinds=KindFilter(
                key=given.get("key"),
                model=given.get("model"),
                dialect=given.get("dialect"),
                outcome=_one_of(outcome, OUTCOMES, "outcome") if outcome is not None else None,
                request_class=_one_of(request_class, CLASSES, "request_class") if request_class is not None else None,
            ),
            since_s=since,
            until_s=until,
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A page as a piece of a file; `next` as in `RequestPage`."""

    content: bytes
    next: str | None


def _direction(request: Request) -> wire.SortDirection:
    return _one_of(request.query_params.get("direction", "desc"), DIRECTIONS, "direction")


def _one_of(text: str, choices: tuple[_Choice, ...], name: str) -> _Choice:
    """Raises OrderInvalid, which names those that there are."""
    for choice in choices:
        if choice == text:
            return choice
    raise OrderInvalid(f"{name} must be one of {', '.join(choices)}.")


def _moment(text: str | None, name: str) -> float | None:
    """Unix time in seconds. Raises OrderInvalid."""
    if text is None:
        return None
    try:
        moment = float(text)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment):
        raise OrderInvalid(f"{name} must be Unix time in seconds.")
    return moment
