"""Watches over the engine: tells `lifecycle` what happens, carries out what it answers, opens and holds the line.

It makes no decision of its own about the engine's life, and touches no request but through the line.
All state is changed on the event loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from control.command_errors import HomeUnusable
from control.ending import Ending
from control.engine_client import EngineClient
from control.engine_process import INTRODUCTION_LIMIT_S, EngineProcess
from control.engine_questions import EngineQuestions
from control.engine_view import NewestStatus, engine_view
from control.errors import (
    ApiError,
    EngineGone,
    EngineLingers,
    EngineNotReady,
    EngineRefused,
    EngineStopped,
    GatewayRestarts,
    NoModel,
    OrderInvalid,
    Quitting,
)
from control.fifo import Line
from control.lifecycle import Action, Exit, Gate, Lifecycle, Spawn, Stop, Wanted
from control.load_settings import complaint, completed
from control.remembered import RememberedLoads
from control.wire import Accepted, CacheCleared, EngineView, LoadRequest
from engine import wire

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.1
STATUS_EVERY_S: Final = 1.0
STATUS_EVERY_WHILE_LOADING_S: Final = 0.2


class Supervisor:
    """The `EngineSource` of the gateway. `run` must run; `finished` is set when a quit has stopped the engine."""

    def __init__(
        self,
        process: EngineProcess,
        line: Line,
        *,
        remembered: RememberedLoads,
        questions: EngineQuestions,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine: EngineClient | None = None
        self.model: wire.ModelStatus | None = None
        self.is_quitting = False
        self.finished = asyncio.Event()
        self.on_status: Callable[[wire.Status], None] = _nobody_listens
        self._is_leaving = False
        self._process = process
        self._line = line
        self._remembered = remembered
        self._questions = questions
        self._now = monotonic
        self._lifecycle = Lifecycle(now=monotonic())
        self._since_s = time.time()
        self._shown_state = self._lifecycle.state
        self._newest = NewestStatus()
        self._is_forced = False
        self._ending: asyncio.Task[None] | None = None

    # --- What the gateway reads ---

    @property
    def availability(self) -> Gate:
        return "none" if self.is_quitting or self._is_leaving else self._lifecycle.gate

    @property
    def wanted_model(self) -> str | None:
        wanted = self._lifecycle.coming or self._lifecycle.wanted
        return None if wanted is None else wanted.model

    # --- What a person asks ---

    async def load(self, request: LoadRequest) -> Accepted:
        """Raises OrderInvalid for a setting that can't be, and Quitting.

        Raises ModelRefused for a model that would not load, while others run or wait for one that does.
        """
        wrong = complaint(request)
        if wrong is not None:
            raise OrderInvalid(wrong)
        await self._adopt_first()
        wanted = self._complete(request)
        if self._lifecycle.gate != "none" and wanted != self._lifecycle.wanted:
            await self._questions.check(wanted)
        self._require_not_quitting()
        self._carry_out(self._lifecycle.load(wanted, now=self._now()))
        return self._accepted(f"{wanted.model} is {'ready' if self._lifecycle.state == 'ready' else 'on its way'}.")

    async def restart(self) -> Accepted:
        """Stop the engine gracefully and load the same model, else the last one. Raises Quitting."""
        await self._adopt_first()
        self._require_not_quitting()
        wanted = self._lifecycle.wanted or self._complete(LoadRequest())
        self._carry_out(self._lifecycle.load(wanted, now=self._now(), again=True))
        return self._accepted("The engine is being restarted.")

    async def clear_cache(self) -> CacheCleared:
        """Empty the prefix cache; what runs goes on. Raises EngineNotReady, EngineGone, EngineRefused."""
        if self.engine is None:
            raise EngineNotReady(self._lifecycle.state)
        try:
            return await self.engine.clear_cache()
        except EngineRefused as error:
            if error.answer.code in ("not_ready", "stopping"):
                raise EngineNotReady(self._lifecycle.state) from error
            raise

    def unload(self, *, force: bool) -> Accepted:
        answer = self._accepted("The model is being unloaded.")
        if force:
            self._is_forced = True
            self._line.cut_running(EngineStopped())
        self._carry_out(self._lifecycle.unload(now=self._now(), force=force))
        return answer

    def quit(self, *, force: bool) -> Accepted:
        """Stop the engine, gracefully unless `force`, and then be `finished`. Those that wait are told."""
        answer = self._accepted("Splash is quitting.")
        self.is_quitting = True
        self.unload(force=force)
        return answer

    # --- Life ---

    async def adopt(self) -> None:
        """Take over a live engine that an earlier control left; one that does not answer yet is waited for."""
        try:
            adopted = await self._process.adopt()
        except EngineLingers as error:
            logger.warning("engine not adopted reason=%s", error)
            self._lifecycle.error = str(error)
            return
        if adopted is None:
            return
        if adopted.wanted is None:
            self._lifecycle.left_over(_secret_lost(self._process), now=self._now())
        else:
            self._lifecycle.adopted(adopted.wanted, now=self._now())
        self._settle()
        await self.refresh()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._poll_status())

    def leave(self) -> None:
        """Control is about to end: nobody is let in any more, and those that wait are told."""
        self._is_leaving = True
        self._settle()

    async def release(self) -> None:
        """Control ends and the engine lives on."""
        if self._ending is not None:
            await self._ending
        await self._process.aclose()

    def view(self) -> EngineView:
        return engine_view(
            self._lifecycle,
            self._process.record,
            self._newest,
            wanted_model=self.wanted_model,
            since_s=self._since_s,
            now=self._now(),
        )

    def look(self) -> None:
        """See what changed since the last look. The gateway calls it when a connection to the engine broke."""
        if self._ending is not None:
            return
        end = self._process.poll()
        if end is not None:
            self._ended(end)
        elif self._process.is_overdue:
            self._end(f"The engine did not say who it is within {INTRODUCTION_LIMIT_S:.0f} s of its start.")
        self._carry_out(self._lifecycle.tick(now=self._now()))
        if not self._line.running:
            self._carry_out(self._lifecycle.drained(now=self._now()))

    async def refresh(self) -> None:
        """Ask the engine for its status, once; it becomes ready by its answer."""
        client = self._process.client
        if client is None or self._ending is not None:
            return
        try:
            status = await client.status()
        except (EngineGone, EngineRefused) as error:
            logger.debug("status not answered reason=%s", error)
            return
        if client is not self._process.client or self._ending is not None:
            return
        self._newest.answered(status, now=self._now())
        self.on_status(status)
        if status.state == "failed":
            self._end(status.error or "The engine says that it failed.")
        elif status.ready and self._lifecycle.state == "loading":
            await self._became_ready()

    # --- Machinery ---

    async def _watch(self) -> None:
        while True:
            try:
                self.look()
                if self._process.is_running and self._ending is None:
                    await self._process.introduce()
            except Exception:
                logger.exception("watching the engine failed")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _poll_status(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception:
                logger.exception("asking the engine for its status failed")
            is_loading = self._lifecycle.state == "loading"
            await asyncio.sleep(STATUS_EVERY_WHILE_LOADING_S if is_loading else STATUS_EVERY_S)

    async def _became_ready(self) -> None:
        self._lifecycle.became_ready(now=self._now())
        self._settle()
        if self._lifecycle.wanted is not None:
            await self._remembered.remember(self._lifecycle.wanted)

    def _carry_out(self, action: Action | None) -> None:
        match action:
            case Spawn(wanted=wanted):
                self._spawn(wanted)
            case Stop(force=force):
                self._is_forced = self._is_forced or force
                self._end(None)
        self._settle()

    def _spawn(self, wanted: Wanted) -> None:
        self._newest.forget()
        self._is_forced = False
        try:
            self._process.spawn(wanted)
        except (EngineLingers, HomeUnusable) as error:
            self._ended(Exit(str(error), is_final=True))
        except OSError as error:
            self._ended(Exit(f"The engine can't be started: {error}.", is_final=True))

    def _end(self, failure: str | None) -> None:
        """Stop the process; `failure` says why when nobody asked for it."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_and_prove(failure))

    async def _end_and_prove(self, failure: str | None) -> None:
        """Exactly one runs at a time, and nobody else polls the process meanwhile."""
        try:
            ending = await self._process.stop(is_forced=lambda: self._is_forced) if self._process.is_running else None
        except OSError as error:
            self._ending = None
            self._lifecycle.left_over(f"The engine can't be ended: {error}.", now=self._now())
            self._settle()
            return
        finally:
            self._ending = None
        if ending is None or ending.is_proven:
            self._ended(Exit(failure or "The engine was stopped."))
        else:
            self._lifecycle.left_over(_left(ending, self._process), now=self._now())
            self._settle()

    def _ended(self, end: Exit) -> None:
        logger.info("engine gone state=%s reason=%s", self._lifecycle.state, end.reason)
        self._newest.forget()
        self._carry_out(self._lifecycle.exited(end, now=self._now()))

    def _settle(self) -> None:
        """Make everything that hangs on the state agree with it."""
        if self._lifecycle.state != self._shown_state:
            logger.info("engine state from=%s to=%s", self._shown_state, self._lifecycle.state)
            self._shown_state = self._lifecycle.state
            self._since_s = time.time()
        self.engine = self._process.client if self._lifecycle.state == "ready" else None
        status = self._newest.status
        if self.engine is not None and status is not None and status.model is not None:
            self.model = status.model
        if self.availability == "ready":
            self._line.open()
        else:
            self._line.hold()
        if self.availability == "none":
            self._line.turn_away_waiting(self._why_nobody_comes())
        if self.is_quitting and not self._process.is_running and self._ending is None:
            self.finished.set()

    def _complete(self, request: LoadRequest) -> Wanted:
        # A model that failed is not asked for again by somebody who names none.
        is_failed = self._lifecycle.state == "failed"
        running = None if is_failed else self._lifecycle.coming or self._lifecycle.wanted
        model = request.model or (running.model if running is not None else self._remembered.last_model)
        is_running = running is not None and running.model == model
        return completed(request, running if running is not None and is_running else self._remembered.last(model))

    async def _adopt_first(self) -> None:
        """One that could not be adopted at the start may be by now, and a new one could not start beside it."""
        if self._lifecycle.state in ("unloaded", "failed", "crashed"):
            await self.adopt()

    def _require_not_quitting(self) -> None:
        if self.is_quitting:
            raise Quitting

    def _accepted(self, message: str) -> Accepted:
        return Accepted(message=message, running=len(self._line.running), waiting=len(self._line.waiting))

    def _why_nobody_comes(self) -> ApiError:
        if self.is_quitting:
            return EngineStopped()
        return GatewayRestarts() if self._is_leaving else NoModel()


def _nobody_listens(status: wire.Status) -> None:
    """Until the gateway is there."""


def _secret_lost(process: EngineProcess) -> str:
    pid = "?" if process.record is None else process.record.pid
    return (
        f"An engine of an earlier start (pid {pid}) runs and can't be asked anything, because its secret is lost; "
        "the next load ends it and starts another."
    )


def _left(ending: Ending, process: EngineProcess) -> str:
    pid = "?" if process.record is None else process.record.pid
    if not ending.is_gone:
        return f"The engine (pid {pid}) did not end within {ending.seconds:.0f} s, not even by SIGKILL."
    return f"The engine ended, but its port is held by {ending.port_holder}."
