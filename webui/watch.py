"""The newest that is known of control, shared by all open pages.

It never invents: when control is silent, it hands out what it saw last, and says how old that is.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from control.wire import EngineState, ModelOnDisk, Overview, RequestRow, UnusableModel
from webui.control_client import ControlClient
from webui.errors import ConsoleError
from webui.home import Fate

logger = logging.getLogger(__name__)

# Several tabs poll once a second each; control is asked at most twice a second, whatever their number.
FRESH_S: Final = 0.5
# Listing the models reads folders and headers of weights: not for every visit of the page.
MODELS_FRESH_S: Final = 30.0
NUM_RECENT: Final = 12


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen last. `is_current` False: control did not answer just now, and the rest is `age_s` old.

    `fate`: what became of control when it does not answer; while it does, it lives.
    """

    overview: Overview | None
    recent: tuple[RequestRow, ...]
    age_s: float
    is_current: bool
    fate: Fate = "lives"


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What has the memory that the other models lack. `path` None: no model."""

    state: EngineState
    path: str | None


class Watch:
    """Asks control on behalf of all pages; one question at a time.

    `unusable`: folders that can't be loaded, of the same list as the newest `models`.
    """

    def __init__(
        self,
        control: ControlClient,
        *,
        fate: Callable[[], Fate],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control = control
        self._fate_now = fate
        self._fate: Fate = "lives"
        self._now_s = now_s
        self._overview: Overview | None = None
        self._recent: tuple[RequestRow, ...] = ()
        self._models: tuple[ModelOnDisk, ...] = ()
        self.unusable: tuple[UnusableModel, ...] = ()
        self._asked_at_s = float("-inf")
        self._answered_at_s = float("-inf")
        self._models_at_s = float("-inf")
        self._models_beside: _Loaded | None = None
        self._is_current = False
        self._asking: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None

    async def look(self) -> Seen:
        if self._now_s() - self._asked_at_s >= FRESH_S:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask())
            # Shielded: a tab that is closed must not take the answer away from the others.
            await asyncio.shield(self._asking)
        age_s = self._now_s() - self._answered_at_s if self._overview is not None else 0.0
        return Seen(
            overview=self._overview,
            recent=self._recent,
            age_s=age_s,
            is_current=self._is_current,
            fate=self._fate,
        )

    async def models(self, *, wait_s: float) -> tuple[ModelOnDisk, ...]:
        """The models on this machine; what was known before, when control needs longer than `wait_s` to list them.

        What is loaded takes memory, so whether another one fits is asked anew when that changed since.
        """
        is_old = self._now_s() - self._models_at_s >= MODELS_FRESH_S or self._loaded() != self._models_beside
        if is_old and (self._listing is None or self._listing.done()):
            self._listing = asyncio.create_task(self._list_models())
        if self._listing is not None:
            await asyncio.wait({self._listing}, timeout=wait_s)
        return self._models

    async def close(self) -> None:
        for task in (self._asking, self._listing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def forget(self) -> None:
        """Ask again at the next look: something was ordered just now."""
        self._asked_at_s = float("-inf")

    async def _ask(self) -> None:
        try:
            overview, recent = await asyncio.gather(self._control.overview(), self._control.recent_requests(NUM_RECENT))
        except ConsoleError as error:
            self._note_silence(error)
        else:
            self._note_answer(overview, recent)

    def _loaded(self) -> "_Loaded | None":
        engine = self._overview.engine if self._overview is not None else None
        return None if engine is None else _Loaded(engine.state, engine.model.path if engine.model else None)

    async def _list_models(self) -> None:
        beside = self._loaded()
        try:
            listed = await self._control.models()
            self._models, self.unusable = listed.models, listed.refused
            self._models_at_s, self._models_beside = self._now_s(), beside
        except ConsoleError as error:
            logger.info("models unknown reason=%s", error)

    def _note_answer(self, overview: Overview, recent: tuple[RequestRow, ...]) -> None:
        if not self._is_current:
            logger.info("control answers")
        self._overview, self._recent, self._is_current, self._fate = overview, recent, True, "lives"
        self._asked_at_s = self._answered_at_s = self._now_s()

    def _note_silence(self, error: ConsoleError) -> None:
        fate = self._fate_now()
        if self._is_current or fate != self._fate:
            logger.warning("control silent fate=%s reason=%s", fate, error)
        self._is_current, self._fate = False, fate
        self._asked_at_s = self._now_s()
