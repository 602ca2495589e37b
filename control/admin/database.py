"""The database itself, as a route of the admin API: a backup into the backups folder of this home.

It copies nothing; `metrics.backup` does.
"""

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import body_of, json_answer
from control.admin.errors import BackupNameTaken, BackupRefused, OrderInvalid
from control.home import Home
from control.metrics.backup import FOLDER, BackupExists, BackupImpossible, back_up, dated_name

# In that folder and nowhere else: no separator, and no name that is hidden.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class DatabaseApi:
    home: Home

    def routes(self) -> list[Route]:
        return [Route(wire.BACKUP, self._back_up, methods=["POST"])]

    async def _back_up(self, request: Request) -> Response:
        order = await body_of(request, wire.BackupRequest)
        name = dated_name(time.time()) if order.name is None else order.name
        if NAME.fullmatch(name) is None:
            raise OrderInvalid("name is a file's name in the backups folder: letters, digits, `.`, `_` and `-`.")
        try:
            backup = await asyncio.to_thread(back_up, self.home.database, self.home.root / FOLDER / name)
        except BackupExists as error:
            raise BackupNameTaken(str(error)) from error
        except BackupImpossible as error:
            raise BackupRefused(str(error)) from error
        return json_answer(backup, status=201)
