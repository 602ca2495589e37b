"""How control ends: with all of Splash, by a quit or a signal; or alone, so that the next control adopts the engine.

It decides when requests are told what, and in which order; the engine's own end is the supervisor's.
"""

import asyncio
import logging
import time
from typing import Final

from control.admin.errors import Quitting
from control.errors import GatewayRestarts
from control.fifo import Line
from control.reception import Reception
from control.supervisor import Supervisor
from control.wire import Accepted

logger = logging.getLogger(__name__)

POLL_S: Final = 0.05
# How long streams may go on after a signal before they get their typed end.
STREAM_GRACE_S: Final = 3.0
# How long the typed ends may take to reach their clients.
FAREWELL_S: Final = 1.0
# After that a person must look: `splash status` and `splash quit --force` name what is left.
ENGINE_LIMIT_S: Final = 30.0


class Departure:
    """`left` is set when control may end and leave the engine: it was told to, and no request runs any more."""

    def __init__(self, supervisor: Supervisor, line: Line, reception: Reception) -> None:
        self.left = asyncio.Event()
        self._supervisor = supervisor
        self._line = line
        self._reception = reception
        self._leaving: asyncio.Task[None] | None = None

    def leave(self, *, force: bool) -> Accepted:
        """Take nothing new, tell those that wait, and let those that run finish, unless `force`. May be repeated.

        Raises Quitting.
        """
        if self._supervisor.is_quitting:
            raise Quitting
        answer = Accepted(
            message="Control leaves; the engine goes on.",
            running=len(self._line.running),
            waiting=len(self._line.waiting),
        )
        self._turn_away()
        if force:
            self._line.cut_running(GatewayRestarts())
        if self._leaving is None:
            logger.info("control leaves running=%d waiting=%d force=%s", answer.running, answer.waiting, force)
            self._leaving = asyncio.create_task(self._leave())
        return answer

    def quit(self, *, force: bool) -> Accepted:
        """All of Splash; the supervisor is `finished` when the engine is gone. May be repeated, with force."""
        answer = self._supervisor.quit(force=force)
        if self._line.refusal is not None:
            self._reception.close(self._line.refusal)
        return answer

    async def quit_by_signal(self) -> bool:
        """A quit that nobody watches or can hurry, in seconds; whether the engine is proven gone."""
        self.quit(force=False)
        await self._wait_for_line(STREAM_GRACE_S)
        self.quit(force=True)
        try:
            await asyncio.wait_for(self._supervisor.finished.wait(), ENGINE_LIMIT_S)
        except TimeoutError:
            logger.error("the engine did not end limit_s=%.0f", ENGINE_LIMIT_S)
        return self._supervisor.finished.is_set()

    async def say_goodbye(self) -> None:
        """The last act of every end: whoever is still here is told, and gets a moment to hear it."""
        self._turn_away()
        await self._wait_for_line(STREAM_GRACE_S)
        self._line.cut_running(GatewayRestarts())
        await self._wait_for_line(FAREWELL_S)
        if self._leaving is not None:
            self._leaving.cancel()

    def _turn_away(self) -> None:
        self._supervisor.leave()
        self._reception.close(self._line.refusal or GatewayRestarts())

    async def _leave(self) -> None:
        await self._wait_for_line(float("inf"))
        self.left.set()

    async def _wait_for_line(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while (self._line.running or self._line.waiting) and time.monotonic() < deadline:  # noqa: ASYNC110  # no such event
            await asyncio.sleep(POLL_S)
