"""Keeps on disk what others find and verify Splash by: the records of control and the engine, and the admin secret.

It writes only what is missing or damaged; a good file that somebody else wrote stands.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from control.command_errors import HomeUnusable
from control.home import Home
from engine.wire import ProcessRecord

logger = logging.getLogger(__name__)

# Below the patience of `splash quit` with a control that has no record.
LOOK_EVERY_S: Final = 1.0


class RecordKeeper:
    """`records` tells which processes live now, as control knows them by itself."""

    def __init__(self, home: Home, *, secret: str, records: Callable[[], Iterable[ProcessRecord | None]]) -> None:
        self._home = home
        self._secret = secret
        self._records = records

    async def run(self) -> None:
        while True:
            try:
                self.look()
            except HomeUnusable as error:
                logger.warning("records not kept reason=%s", error)
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Raises HomeUnusable."""
        self._home.keep_admin_secret(self._secret)
        for record in self._records():
            if record is not None and self._home.read_record(record.name) is None:
                self._home.write_record(record)
                logger.warning("record written again name=%s pid=%d", record.name, record.pid)
