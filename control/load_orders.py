"""What an order to load comes to: its settings filled in, the model looked at and, if need be, downloaded first.

While another model runs, nothing stops for one that can't be had: the download is a process beside the engine. Without
one that runs, the engine itself downloads what it is started with. It starts and stops no engine; the last order wins.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from control.admin.errors import HomeFull, ModelRefused
from control.lifecycle import Lifecycle, Wanted
from control.load_settings import completed
from control.remembered import RememberedLoads
from control.wire import LoadProgress, LoadRequest

logger = logging.getLogger(__name__)

# A wrong name or a hub out of reach is known by then, and is the answer to the order; the console waits 20 s for one.
NOTICE_S: Final = 8.0


class Questions(Protocol):
    """The part of `control.engine_questions.EngineQuestions` that is needed here."""

    async def check(self, wanted: Wanted) -> bool: ...

    async def fetch(self, model: str, on_progress: Callable[[LoadProgress], None]) -> None: ...


class LoadOrders:
    """`fetched` None: nothing is being downloaded. `error`: why the last download came to nothing."""

    def __init__(self, remembered: RememberedLoads, questions: Questions, *, notice_s: float = NOTICE_S) -> None:
        self.fetched: Wanted | None = None
        self.progress: LoadProgress | None = None
        self.error: str | None = None
        self._remembered = remembered
        self._questions = questions
        self._notice_s = notice_s
        self._task: asyncio.Task[ModelRefused | HomeFull | None] | None = None

    @property
    def last_model(self) -> str:
        return self._remembered.last_model

    def complete(self, request: LoadRequest, lifecycle: Lifecycle) -> Wanted:
        """What is left out is what is on its way or runs; else what ran last."""
        # A model that failed is not asked for again by somebody who names none.
        is_failed = lifecycle.state == "failed"
        running = self.fetched or (None if is_failed else lifecycle.coming or lifecycle.wanted)
        model = request.model or (running.model if running is not None else self._remembered.last_model)
        is_running = running is not None and running.model == model
        return completed(request, running if running is not None and is_running else self._remembered.last(model))

    async def prepare(self, wanted: Wanted, then: Callable[[Wanted], None]) -> bool:
        """True: it can be loaded now. False: it is being downloaded, and `then` is called with it when it is here.

        Raises ModelRefused when it would not load, or when it soon turns out that it can't be downloaded; and what
        `then` raises, HomeFull, when the download is over as soon.
        """
        if wanted == self.fetched:
            return False
        self.call_off()
        if await self._questions.check(wanted):
            return True
        self.call_off()
        task = self._task = asyncio.create_task(self._fetch(wanted, then))
        self.fetched, self.progress = wanted, LoadProgress()
        await asyncio.wait({task}, timeout=self._notice_s)
        refusal = task.result() if task.done() and not task.cancelled() else None
        if refusal is not None:
            self.error = None
            raise refusal
        return False

    def call_off(self) -> None:
        """Another order came: the download ends where it is, and goes on from there if it is wanted again."""
        if self._task is not None:
            self._task.cancel()
        self.error = None
        self._over()

    async def aclose(self) -> None:
        task = self._task
        self.call_off()
        if task is not None:
            await asyncio.wait({task})

    async def _fetch(self, wanted: Wanted, then: Callable[[Wanted], None]) -> ModelRefused | HomeFull | None:
        """Why it came to nothing; None when it is here."""
        logger.info("download began model=%r", wanted.model)
        began_at = time.monotonic()
        try:
            await self._questions.fetch(wanted.model, lambda progress: self._progressed(progress, began_at))
            await self._questions.check(wanted)
        except ModelRefused as error:
            logger.warning("download failed model=%r reason=%s", wanted.model, error)
            self.error = str(error)
            self._over()
            return error
        logger.info("download done model=%r seconds=%.0f", wanted.model, time.monotonic() - began_at)
        self._over()
        try:
            then(wanted)
        except HomeFull as error:
            logger.warning("model not loaded model=%r reason=%s", wanted.model, error)
            self.error = str(error)
            return error
        return None

    def _progressed(self, progress: LoadProgress, began_at: float) -> None:
        self.progress = LoadProgress(
            bytes_read=progress.bytes_read, bytes_total=progress.bytes_total, seconds=time.monotonic() - began_at
        )

    def _over(self) -> None:
        self.fetched = self.progress = self._task = None
