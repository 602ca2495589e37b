"""Where this Splash keeps its things and what they take, as a route of the admin API.

It changes nothing, and shows no secret.
"""

import asyncio
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import json_answer
from control.config import PORT_FIELDS, Settings
from control.console_password import ConsolePassword
from control.home import Home
from control.lan import lan_urls
from control.metrics.questions import Questions
from control.metrics.row_questions import stored_rows

# Beside the file: what was written since it was last put into it, and the index of that.
DATABASE_PARTS: Final = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class InstallationApi:
    settings: Settings
    home: Home
    questions: Questions
    version: str

    def routes(self) -> list[Route]:
        return [Route(wire.INSTALLATION, self._show, methods=["GET"])]

    async def _show(self, request: Request) -> Response:
        rows = await self._rows()
        return json_answer(await asyncio.to_thread(self._installation, rows))

    async def _rows(self) -> wire.StoredRows | None:
        """Where the files are is told whatever the database says."""
        try:
            return await stored_rows(self.questions)
        except (SQLAlchemyError, TimeoutError):
            return None

    def _installation(self, rows: wire.StoredRows | None) -> wire.Installation:
        is_lan_on, has_password = self.settings.is_lan_on, ConsolePassword(self.home).is_set
        database, logs = self.home.database, self.home.log_file("control").parent
        return wire.Installation(
            home=str(self.home.root),
            database=str(database),
            database_bytes=sum(_size_bytes(database.with_name(f"{database.name}{each}")) for each in DATABASE_PARTS),
            logs=str(logs),
            logs_bytes=sum(_size_bytes(each) for each in logs.glob("*")),
            disk_free_bytes=_free_bytes(self.home.root),
            rows=rows,
            host=self.settings.host,
            ports={key: getattr(self.settings, field) for key, field in PORT_FIELDS.items()},
            version=self.version,
            python=platform.python_version(),
            system=f"{platform.system()} {platform.release()} ({platform.machine()})",
            lan_api=tuple(f"{url}/v1" for url in lan_urls(self.settings.api_port)) if is_lan_on else (),
            lan_console=lan_urls(self.settings.console_port) if is_lan_on and has_password else (),
        )


def _size_bytes(file: Path) -> int:
    """0 for one that has just gone."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
