"""What control does about its engine when the machine woke up: all patience anew, then a look at who is there.

It judges nothing: the supervisor and its wedge watch do, as ever.
"""

import time
from collections.abc import Callable

from control.engine_process import EngineProcess
from control.supervisor import Supervisor


class Awakening:
    """The two calls of a `SleepWatch`."""

    def __init__(
        self, supervisor: Supervisor, process: EngineProcess, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._supervisor = supervisor
        self._process = process
        self._now = monotonic

    def woke(self) -> None:
        """At once: silence from before proves nothing, and a timer that ended in sleep was no time to answer in."""
        self._supervisor.wedge.woke(now=self._now())
        self._process.woke()

    async def recheck(self) -> None:
        """It may have ended, or be somebody else's port by now; then it is asked for its status out of turn."""
        await self._process.recheck()
        self._supervisor.look()
        await self._supervisor.refresh()
