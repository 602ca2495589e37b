"""The logs of our three processes as routes of the admin API: pages of lines, newest first, and each log as a file.

Names come from a fixed list, so no path is made of what was asked. Files are read on threads.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Final, get_args

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from control import wire
from control.admin.edge import json_answer, number_of
from control.admin.errors import LogUnreadable, OrderInvalid
from control.home import Home
from control.log_reading import Filter, Place, log_files, read_page

LINES_DEFAULT: Final = 200
LINES_LIMIT: Final = 1000
TEXT_LIMIT: Final = 200
CHUNK_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class LogsApi:
    home: Home

    def routes(self) -> list[Route]:
        return [
            Route(wire.LOGS, self._page, methods=["GET"]),
            Route(wire.LOG_FILE, self._file, methods=["GET"]),
        ]

    async def _page(self, request: Request) -> Response:
        name = _name(request)
        limit, before, only = _limit(request), _before(request), _filter(request)
        try:
            page = await asyncio.to_thread(
                read_page, name, self.home.log_file(name), limit=limit, before=before, only=only
            )
        except OSError as error:
            raise LogUnreadable(name, error) from error
        return json_answer(page)

    async def _file(self, request: Request) -> Response:
        """All that is kept of the log when it is asked for, oldest first."""
        name = _name(request)
        opened = ExitStack()
        try:
            files = [opened.enter_context(each.path.open("rb")) for each in log_files(self.home.log_file(name))]
        except OSError as error:
            opened.close()
            raise LogUnreadable(name, error) from error
        headers = {"content-disposition": f'attachment; filename="splash-{name}.log"'}
        return StreamingResponse(_chunks(files, opened), media_type="text/plain; charset=utf-8", headers=headers)


async def _chunks(files: Sequence[IO[bytes]], opened: ExitStack) -> AsyncIterator[bytes]:
    """What is written meanwhile is not followed: it could go on for ever."""
    try:
        for file in files:
            left = file.seek(0, 2)
            file.seek(0)
            while left > 0:
                chunk = await asyncio.to_thread(file.read, min(CHUNK_BYTES, left))
                if not chunk:
                    break
                left -= len(chunk)
                yield chunk
    finally:
        opened.close()


def _name(request: Request) -> wire.LogName:
    wanted = request.path_params["name"]
    for name in wire.LOG_NAMES:
        if name == wanted:
            return name
    raise OrderInvalid(f"There is no log of that name; there are {', '.join(wire.LOG_NAMES)}.")


def _limit(request: Request) -> int:
    limit = number_of(request.query_params.get("limit", str(LINES_DEFAULT)))
    if limit is None or not 1 <= limit <= LINES_LIMIT:
        raise OrderInvalid(f"limit must be a number from 1 to {LINES_LIMIT}.")
    return limit


def _before(request: Request) -> Place | None:
    text = request.query_params.get("before")
    place = None if text is None else Place.parsed(text)
    if text is not None and place is None:
        raise OrderInvalid("before must be what `older` or the id of an entry was.")
    return place


def _filter(request: Request) -> Filter:
    text = request.query_params.get("text", "")
    if len(text) > TEXT_LIMIT:
        raise OrderInvalid(f"text must have {TEXT_LIMIT} characters at most.")
    wanted = request.query_params.get("level")
    if wanted is None:
        return Filter(text=text)
    for level in get_args(wire.LogLevel):
        if level == wanted:
            return Filter(level=level, text=text)
    raise OrderInvalid(f"level must be one of {', '.join(get_args(wire.LogLevel))}.")
