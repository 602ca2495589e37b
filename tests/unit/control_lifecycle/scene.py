"""A supervisor around an engine that is a puppet: the test decides when it is ready, dies, or cannot be ended."""

from __future__ import annotations

import asyncio

import msgspec

from control.admin.errors import ModelRefused
from control.command_errors import HomeUnusable
from control.ending import Ending
from control.engine_process import Adopted
from control.errors import EngineGone, EngineLingers, EngineRefused
from control.fifo import Line, Ticket
from control.lifecycle import Exit, Wanted
from control.remembered import RememberedLoads
from control.supervisor import Supervisor
from control.wire import LoadRequest
from engine import wire


class PuppetEngine:
    """What `EngineProcess` is to the supervisor; the test decides when it is ready, dies, or cannot be ended."""

    def __init__(self) -> None:
        self.spawned: list[Wanted] = []
        self.record: wire.ProcessRecord | None = None
        self.client: PuppetEngine | None = None
        self.is_overdue = False
        self.end: Exit | None = None
        self.can_be_ended = True
        self.cannot_be_signalled = False
        self.is_silent = False
        self.says = status()
        self.lingers = False
        self.started_at_s = 1.0
        self.cannot_start: Exception | None = None
        self.disk_is_full = False
        self.adoptable: Adopted | None = None
        self.answers_at_once = True
        self.was_stuck = False
        self.holds_its_end: asyncio.Event | None = None
        self.cleared = wire.CacheCleared(freed_bytes=2**30, blocks=96, snapshots=3)
        self.refuses: EngineRefused | None = None

    @property
    def is_running(self) -> bool:
        return self.record is not None

    def require_startable(self) -> None:
        if self.disk_is_full:
            raise HomeUnusable("secrets/engine.json can't be written: No space left on device.")

    def spawn(self, wanted: Wanted) -> None:
        self.require_startable()
        if self.lingers:
            raise EngineLingers("an engine of an earlier start is still there")
        if self.cannot_start is not None:
            raise self.cannot_start
        self.spawned.append(wanted)
        self._appear()

    async def adopt(self) -> Adopted | None:
        if self.lingers:
            raise EngineLingers("an engine of an earlier start is still there")
        adopted, self.adoptable = self.adoptable, None
        if adopted is not None:
            self._appear()
            if not self.answers_at_once or adopted.wanted is None:
                self.client = None
        return adopted

    def _appear(self) -> None:
        self.record = wire.ProcessRecord(
            name="engine",
            pid=7,
            created_at_s=1.0,
            nonce="n",
            port=1,
            manager="control",
            started_at_s=self.started_at_s,
            version="0",
        )
        self.client = self

    async def status(self) -> wire.Status:
        if self.is_silent:
            raise EngineGone("no answer", was_reached=True)
        return self.says

    async def clear_cache(self) -> wire.CacheCleared:
        if self.refuses is not None:
            raise self.refuses
        return self.cleared

    def poll(self) -> Exit | None:
        end, self.end = self.end, None
        if end is not None:
            self.record = self.client = None
        return end

    async def aclose(self) -> None:
        """It lives on."""

    async def stop(self, *, is_forced, is_stuck=False) -> Ending:
        self.was_stuck = is_stuck
        if self.holds_its_end is not None:
            await self.holds_its_end.wait()
        if self.cannot_be_signalled:
            raise PermissionError(1, "Operation not permitted")
        if self.can_be_ended:
            self.record = self.client = None
        return Ending("asked", 0.1, is_gone=self.can_be_ended, port_holder=None, held_bytes=1)


class Memory:
    """Settings that are forgotten with the test."""

    def __init__(self) -> None:
        self.values = {}
        self.failure: Exception | None = None

    def get(self, name, kind):
        value = self.values.get(name)
        return None if value is None else msgspec.convert(value, kind)

    async def put(self, name, value):
        self.values[name] = value
        if self.failure is not None:
            raise self.failure


class Preview:
    """Refuses the models that it is told to refuse. Those that are `elsewhere` have to be downloaded: each until the
    test sets its event, or puts a refusal in its place."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.elsewhere: dict[str, Hub] = {}

    async def check(self, wanted: Wanted) -> bool:
        if wanted.model in self.refused:
            raise ModelRefused(f"{wanted.model} does not fit")
        return wanted.model not in self.elsewhere

    async def find(self, wanted: Wanted) -> None:
        if wanted.model in self.refused:
            raise ModelRefused(f"{wanted.model} is gone")

    async def fetch(self, model: str, on_progress) -> None:
        hub = self.elsewhere[model]
        on_progress(wire.LoadProgress(bytes_read=3, bytes_total=10))
        try:
            await hub.over.wait()
        except asyncio.CancelledError:
            hub.was_called_off = True
            raise
        if hub.refusal is not None:
            raise ModelRefused(hub.refusal)
        del self.elsewhere[model]


class Hub:
    """One model that is somewhere else."""

    def __init__(self, refusal: str | None = None) -> None:
        self.over = asyncio.Event()
        self.refusal = refusal
        self.was_called_off = False

    def end(self) -> None:
        self.over.set()


class Scene:
    def __init__(self, memory: Memory | None = None) -> None:
        self.now = 0.0
        self.engine = PuppetEngine()
        self.line = Line(2)
        self.memory = memory or Memory()
        self.preview = Preview()
        self.supervisor = Supervisor(
            self.engine,
            self.line,
            remembered=RememberedLoads(self.memory),
            questions=self.preview,
            fetch_notice_s=0.05,
            monotonic=lambda: self.now,
        )

    @property
    def state(self) -> str:
        return self.supervisor.view().state

    async def look(self, after_s: float = 0.0) -> None:
        """Time passes, the supervisor looks, and everything that it began comes to its end."""
        self.now += after_s
        self.supervisor.look()
        for _ in range(5):
            await asyncio.sleep(0)

    async def ready(self, model: str = "demo", **more) -> Scene:
        await self.supervisor.load(LoadRequest(model=model, **more))
        await self.supervisor.refresh()
        assert self.state == "ready"
        return self

    def join(self, name: str = "a") -> Ticket:
        ticket = Ticket(name)
        self.line.join(ticket)
        return ticket


def status(**changes) -> wire.Status:
    fields = {
        "sampled_at_s": 0.0,
        "sampled_monotonic_s": 0.0,
        "wire_version": 1,
        "state": "ready",
        "ready": True,
        "pid": 7,
        "uptime_s": 0.0,
        "membership_epoch": 0,
        "steps": 0,
        "concurrency": 4,
        "model": None,
        "layout": None,
        "self_tests": (),
        "load": wire.LoadProgress(),
        "admission": wire.Admission(),
        "scheduler": wire.SchedulerStatus(),
        "request_counts": wire.RequestCounts(),
        "memory_plan": None,
        "memory_actual": wire.MemoryActual(),
        "requests": (),
    }
    return wire.Status(**fields | changes)
