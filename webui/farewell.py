"""The end of Splash as the console sees it: the model first, then the gateway, then this page.

It orders nothing: control stops the engine and itself. This watches the processes, so that "stopped" is proven.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from control.wire import ProcessRecord
from webui.home import Home, is_alive

logger = logging.getLogger(__name__)

# Source: requirements W4. After this the page offers force.
PATIENCE_S: Final = 30.0
LOOK_EVERY_S: Final = 0.25
# The last page asks once a second; it must have seen the end before the console is gone.
SHOW_END_S: Final = 2.5

# closable: the page itself, when nothing else is left.
Step = Literal["waiting", "going", "stuck", "gone", "closable"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The three steps. `engine_pid`: the process that is waited for; `is_alone`: nobody is left to stop it."""

    engine: Step
    gateway: Step
    page: Step
    waited_s: float
    engine_pid: int | None
    is_alone: bool

    @property
    def is_over(self) -> bool:
        return self.engine == self.gateway == "gone"


def progress(*, engine: ProcessRecord | None, gateway: ProcessRecord | None, waited_s: float) -> Progress:
    """Which step is at what, from the records of the processes that still live."""
    is_patient = waited_s < PATIENCE_S
    is_alone = engine is not None and gateway is None
    engine_step: Step = "gone" if engine is None else "going" if is_patient and not is_alone else "stuck"
    gateway_step: Step = (
        "gone" if gateway is None else "waiting" if engine is not None else "going" if is_patient else "stuck"
    )
    is_over = engine is None and gateway is None
    return Progress(
        engine=engine_step,
        gateway=gateway_step,
        page="closable" if is_over else "waiting",
        waited_s=waited_s,
        engine_pid=engine.pid if engine is not None else None,
        is_alone=is_alone,
    )


class Farewell:
    """From the order to quit until `leave` is called, which ends this process."""

    def __init__(self, home: Home, leave: Callable[[], None], *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._home = home
        self._leave = leave
        self._now_s = now_s
        self._began_at_s: float | None = None
        self._known: dict[str, ProcessRecord] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        return self._began_at_s is not None

    def remember(self) -> None:
        """Note who lives now, before the order is given: a process may remove its record long before it is gone."""
        for name in ("engine", "control"):
            record = self._home.living(name)
            if record is not None:
                self._known[name] = record

    def begin(self) -> None:
        """The order to quit was given. Patience starts anew when it is given again, with force."""
        self._began_at_s = self._now_s()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def progress(self) -> Progress:
        waited_s = self._now_s() - self._began_at_s if self._began_at_s is not None else 0.0
        return progress(engine=self._living("engine"), gateway=self._living("control"), waited_s=waited_s)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        # Another process ends without an event for us: only looking again tells.
        while not self.progress().is_over:  # noqa: ASYNC110  # see above
            await asyncio.sleep(LOOK_EVERY_S)
        logger.info("everything stopped waited_s=%.1f", self.progress().waited_s)
        await asyncio.sleep(SHOW_END_S)
        self._leave()

    def _living(self, name: str) -> ProcessRecord | None:
        known = self._known.get(name)
        if known is not None and is_alive(known):
            return known
        return self._home.living(name)
