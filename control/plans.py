"""Plans of loads, asked of the engine's program and kept for a moment: a slider asks for the same one again and again.

It judges no plan, and loads nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from control.lifecycle import Wanted
from control.wire import PlanAnswer

# What is free on this machine moves all the time, and every plan depends on it.
FRESH_S: Final = 15.0
MOST_KEPT: Final = 64
# Each is a process that works for half a second.
MOST_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class Planned:
    """`folder` None: there is none, and the answer is not kept."""

    answer: PlanAnswer
    folder: Path | None


@dataclass(frozen=True, slots=True)
class _Key:
    model: str
    context: int | None
    budget_bytes: int | None
    kv_bits: int | None

    @classmethod
    def of(cls, wanted: Wanted) -> "_Key":
        return cls(wanted.model, wanted.context, wanted.budget_bytes, wanted.kv_bits)


@dataclass(frozen=True, slots=True)
class _Kept:
    planned: Planned
    changed_ns: int | None
    at: float


@dataclass(slots=True)
class _Flight:
    """One question that is being asked. The last of its askers who leaves calls it off."""

    task: asyncio.Task[PlanAnswer]
    num_askers: int = 0


class Plans:
    """`ask` raises what its callers get. A folder that changed, or time, makes a plan old."""

    def __init__(
        self, ask: Callable[[Wanted], Awaitable[Planned]], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._now = monotonic
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._kept: dict[_Key, _Kept] = {}
        self._flights: dict[_Key, _Flight] = {}

    async def plan(self, wanted: Wanted) -> PlanAnswer:
        """Cancelled, it leaves no process behind, unless others want the same."""
        key = _Key.of(wanted)
        kept = await self._still_true(key)
        if kept is not None:
            return kept
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(self._plan(key, wanted)))
        flight.num_askers += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.num_askers -= 1
            if flight.num_askers == 0:
                del self._flights[key]
                flight.task.cancel()
                await asyncio.wait({flight.task})

    async def _plan(self, key: _Key, wanted: Wanted) -> PlanAnswer:
        async with self._turns:
            planned = await self._ask(wanted)
        if planned.folder is not None:
            changed_ns = await asyncio.to_thread(_changed_ns, planned.folder)
            self._kept.pop(key, None)
            self._kept[key] = _Kept(planned, changed_ns, self._now())
            if len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return planned.answer

    async def _still_true(self, key: _Key) -> PlanAnswer | None:
        kept = self._kept.get(key)
        if kept is None or kept.planned.folder is None or self._now() - kept.at >= FRESH_S:
            return None
        is_same = await asyncio.to_thread(_changed_ns, kept.planned.folder) == kept.changed_ns
        return kept.planned.answer if is_same else None


def _changed_ns(folder: Path) -> int | None:
    """None when it is gone."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
