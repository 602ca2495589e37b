"""Watches over the engine: tells `lifecycle` what happens, carries out what it answers, opens and holds the line.

It makes no decision of its own about the engine's life, and touches no request but through the line.
All state is changed on the event loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from control.admin.errors import EngineNotReady, HomeFull, OrderInvalid, Quitting
from control.command_errors import HomeUnusable
from control.engine_client import EngineClient
from control.engine_process import INTRODUCTION_LIMIT_S, EngineProcess, secret_lost
from control.engine_questions import EngineQuestions
from control.engine_view import NewestStatus, engine_view
from control.errors import (
    ApiError,
    EngineGone,
    EngineLingers,
    EngineRefused,
    EngineStopped,
    GatewayRestarts,
    NoModel,
    SplashQuits,
)
from control.fifo import Line
from control.lifecycle import Action, Exit, Gate, Lifecycle, Spawn, Stop, Wanted
from control.load_orders import NOTICE_S, LoadOrders
from control.load_settings import complaint
from control.remembered import RememberedLoads
from control.repeating import repeat
from control.wedge import USUAL_LIMITS, WedgeLimits, WedgeWatch
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
        fetch_notice_s: float = NOTICE_S,
        wedge_limits: WedgeLimits = USUAL_LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine: EngineClient | None = None
        self.model: wire.ModelStatus | None = None
        self.is_quitting = False
        self.is_leaving = False
        self.finished = asyncio.Event()
        self.on_status: Callable[[wire.Status], None] = _nobody_listens
        self.look_at_clocks: Callable[[], None] = lambda: None
        self._process = process
        self._line = line
        self._remembered = remembered
        self._questions = questions
        self._orders = LoadOrders(remembered, questions, notice_s=fetch_notice_s)
        self.wedge = WedgeWatch(wedge_limits)
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
        if self.is_quitting or self.is_leaving:
            return "none"
        # An engine that is ending takes nobody any more, even when its state has not followed yet.
        return "held" if self._lifecycle.gate == "ready" and self._ending is not None else self._lifecycle.gate

    @property
    def wanted_model(self) -> str | None:
        wanted = self._lifecycle.coming or self._lifecycle.wanted
        return None if wanted is None else wanted.model

    @property
    def status(self) -> wire.Status | None:
        """The newest of the engine that lives; None until it answers."""
        return self._newest.status

    # --- What a person asks ---

    async def load(self, request: LoadRequest) -> Accepted:
        """Raises OrderInvalid for a setting that can't be, and Quitting.

        Raises ModelRefused for a model that would not load, while others run or wait for one that does, and HomeFull.
        A model that is not on this machine is downloaded first, and what runs goes on meanwhile.
        """
        wrong = complaint(request)
        if wrong is not None:
            raise OrderInvalid(wrong)
        await self._adopt_first()
        wanted = self.completed(request)
        if self._lifecycle.gate == "none" or wanted == self._lifecycle.wanted:
            self._orders.call_off()
        elif not await self._orders.prepare(wanted, self._load_prepared):
            self._require_not_quitting()
            return self._accepted(f"{wanted.model} is being downloaded; it is loaded when it is here.")
        self._require_not_quitting()
        self._load_prepared(wanted)
        return self._accepted(f"{wanted.model} is {'ready' if self._lifecycle.state == 'ready' else 'on its way'}.")

    def completed(self, request: LoadRequest) -> Wanted:
        """What would be loaded by this order, which is not given here: with what it leaves out filled in."""
        return self._orders.complete(request, self._lifecycle)

    async def restart(self) -> Accepted:
        """Stop the engine gracefully and load the same model, else the last one. Raises Quitting.

        Raises ModelRefused and HomeFull when what runs could not be loaded again.
        """
        await self._adopt_first()
        self._require_not_quitting()
        self._orders.call_off()
        wanted = self._lifecycle.wanted or self._orders.complete(LoadRequest(), self._lifecycle)
        if self._lifecycle.state == "ready":
            await self._questions.find(wanted)
            self._require_not_quitting()
        self._require_startable()
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
        self._orders.call_off()
        if force:
            self._is_forced = True
            self._line.cut_running(SplashQuits() if self.is_quitting else EngineStopped())
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
            self._lifecycle.left_over(secret_lost(self._process.record), now=self._now())
        else:
            self._lifecycle.adopted(adopted.wanted, now=self._now())
        self._settle()
        await self.refresh()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(repeat("watching the engine", self._watch, every_s=lambda: LOOK_EVERY_S))
            tasks.create_task(repeat("asking the engine for its status", self.refresh, every_s=self._status_every_s))

    def leave(self) -> None:
        """Control is about to end: nobody is let in any more, and those that wait are told."""
        self.is_leaving = True
        self._settle()

    async def release(self) -> None:
        """Control ends and the engine lives on."""
        await self._orders.aclose()
        if self._ending is not None:
            await self._ending
        await self._process.aclose()

    def view(self) -> EngineView:
        return engine_view(
            self._lifecycle,
            self._process.record,
            self._newest,
            self._orders,
            wanted_model=self.wanted_model,
            since_s=self._since_s,
            now=self._now(),
        )

    def look(self) -> None:
        """See what changed since the last look. The gateway calls it when a connection to the engine broke."""
        self.look_at_clocks()
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
        """Ask the engine for its status, once; it becomes ready by its answer, and is ended when it is stuck."""
        client = self._process.client
        if client is None or self._ending is not None:
            return
        try:
            status = await client.status()
        except (EngineGone, EngineRefused) as error:
            logger.debug("status not answered reason=%s", error)
            status = None
        if client is not self._process.client or self._ending is not None:
            return
        self.look_at_clocks()
        if status is None:
            is_loading = self._lifecycle.state == "loading"
            self._end_if_stuck(self.wedge.unanswered(is_loading=is_loading, now=self._now()))
            return
        self._newest.answered(status, now=self._now())
        self.on_status(status)
        self._end_if_stuck(self.wedge.answered(status, num_sent=len(self._line.running), now=self._now()))
        if status.state == "failed":
            self._end(status.error or "The engine says that it failed.")
        elif status.ready and self._lifecycle.state == "loading":
            await self._became_ready()

    # --- Machinery ---

    async def _watch(self) -> None:
        self.look()
        if self._process.is_running and self._ending is None:
            await self._process.introduce()

    def _status_every_s(self) -> float:
        return STATUS_EVERY_WHILE_LOADING_S if self._lifecycle.state == "loading" else STATUS_EVERY_S

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
        self._is_forced = False
        try:
            self._process.spawn(wanted)
        except EngineLingers as error:
            self._ended(Exit(str(error), is_final=True))
        except (FileNotFoundError, PermissionError) as error:
            # Of the program, not of the home: no time mends that.
            self._ended(Exit(f"The engine can't be started: {error}.", is_final=True))
        except HomeUnusable as error:
            self._not_started(str(error))
        except OSError as error:
            self._not_started(f"The engine can't be started: {error}.")

    def _end_if_stuck(self, verdict: str | None) -> None:
        if verdict is not None and self._lifecycle.state in ("loading", "ready", "draining"):
            logger.error("engine is stuck state=%s reason=%s", self._lifecycle.state, verdict)
            self._end(verdict, is_stuck=True)

    def _end(self, failure: str | None, *, is_stuck: bool = False) -> None:
        """Stop the process; `failure` says why when nobody asked for it."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_and_prove(failure, is_stuck=is_stuck))
            self._settle()

    async def _end_and_prove(self, failure: str | None, *, is_stuck: bool) -> None:
        """Exactly one runs at a time, and nobody else polls the process meanwhile."""
        ending, shortcoming = None, None
        try:
            if self._process.is_running:
                ending = await self._process.stop(is_forced=lambda: self._is_forced, is_stuck=is_stuck)
        except OSError as error:
            shortcoming = f"The engine can't be ended: {error}."
        except EngineLingers as error:
            shortcoming = str(error)
        finally:
            self._ending = None
        if ending is not None and not ending.is_proven:
            shortcoming = ending.shortcoming(self._process.record)
        if shortcoming is None:
            self._ended(Exit(failure or "The engine was stopped."))
        else:
            self._lifecycle.left_over(shortcoming, now=self._now())
            self._settle()

    def _load_prepared(self, wanted: Wanted) -> None:
        """Raises HomeFull, and what runs goes on."""
        if self.is_quitting:
            return
        if self._lifecycle.state not in ("loading", "ready") or wanted != self._lifecycle.wanted:
            self._require_startable()
        self._carry_out(self._lifecycle.load(wanted, now=self._now()))

    def _require_startable(self) -> None:
        try:
            self._process.require_startable()
        except HomeUnusable as error:
            raise HomeFull(f"{error} Nothing was stopped.") from error

    def _not_started(self, reason: str) -> None:
        logger.warning("engine not started reason=%s", reason)
        self._lifecycle.not_started(reason, now=self._now())

    def _ended(self, end: Exit) -> None:
        logger.info("engine gone state=%s reason=%s", self._lifecycle.state, end.reason)
        self._newest.forget()
        self.wedge.forget()
        self._carry_out(self._lifecycle.exited(end, now=self._now()))

    def _settle(self) -> None:
        """Make everything that hangs on the state agree with it."""
        if self._lifecycle.state != self._shown_state:
            logger.info("engine state from=%s to=%s", self._shown_state, self._lifecycle.state)
            self._shown_state = self._lifecycle.state
            self._since_s = self._began_at_s()
        is_ready = self._lifecycle.state == "ready" and self._ending is None
        self.engine = self._process.client if is_ready else None
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

    def _began_at_s(self) -> float:
        """When the present state began, in Unix time. An engine that was adopted was in it before anybody looked."""
        record, status, now_s = self._process.record, self._newest.status, time.time()
        if record is None or self._lifecycle.state not in ("loading", "ready"):
            return now_s
        took_s = status.load.seconds if self._lifecycle.state == "ready" and status is not None else 0.0
        return min(record.started_at_s + took_s, now_s)

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
            return SplashQuits()
        return GatewayRestarts() if self.is_leaving else NoModel()


def _nobody_listens(status: wire.Status) -> None:
    """Until the gateway is there."""
