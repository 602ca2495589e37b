"""The machine's figures, sampled on a thread when somebody asks, and at most every two seconds however many ask.

It rests while nobody asks; a rate needs two samples that are not too far apart.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import psutil

from control.identity import live_process
from control.machine.disk_bytes import DiskBytes, disk_bytes
from control.machine.heat import heat
from control.machine.programs import Seen, all_processes, largest_users
from control.wire import Machine, MachineMemory, OwnProcess, ProcessRecord

FRESH_S: Final = 2.0
# A mean over a longer time than this says nothing about now.
LONGEST_RATE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Counters:
    """Cumulative figures at one moment, in monotonic seconds."""

    at: float
    swapped_in_bytes: int
    swapped_out_bytes: int
    disk: dict[int, DiskBytes]


class MachineSampler:
    """`records` are our processes as they wrote themselves down; it is called on the thread. One sample at a time."""

    def __init__(
        self,
        records: Callable[[], Iterable[ProcessRecord]],
        *,
        processes: Callable[[], Iterable[Seen]] = all_processes,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._processes = processes
        self._now = monotonic
        self._before: _Counters | None = None
        self._sample: Machine | None = None
        self._sampled_at = float("-inf")
        self._sampling: asyncio.Task[Machine] | None = None

    async def sample(self) -> Machine:
        if self._sample is not None and self._now() - self._sampled_at < FRESH_S:
            return self._sample
        if self._sampling is None or self._sampling.done():
            self._sampling = asyncio.create_task(self._take())
        # Shielded: whoever leaves must not take the answer away from the others.
        return await asyncio.shield(self._sampling)

    async def _take(self) -> Machine:
        machine, self._before = await asyncio.to_thread(self._read, self._before)
        self._sample, self._sampled_at = machine, self._now()
        return machine

    def _read(self, before: _Counters | None) -> tuple[Machine, _Counters]:
        ours = [record for record in self._records() if live_process(record) is not None]
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        disk = {record.pid: counted for record in ours if (counted := disk_bytes(record.pid)) is not None}
        now = _Counters(self._now(), swap.sin, swap.sout, disk)
        seen = tuple(self._processes())
        resident_bytes = {process.pid: process.resident_bytes for process in seen}
        warmth = heat()
        machine = Machine(
            sampled_at_s=time.time(),
            memory=MachineMemory(
                total_bytes=memory.total,
                available_bytes=memory.available,
                used_bytes=memory.total - memory.available,
                swap_total_bytes=swap.total,
                swap_used_bytes=swap.used,
                swap_in_bytes_per_second=_rate(before, now, lambda counters: counters.swapped_in_bytes),
                swap_out_bytes_per_second=_rate(before, now, lambda counters: counters.swapped_out_bytes),
            ),
            processes=tuple(_own(record, resident_bytes, before, now) for record in ours),
            users=largest_users(seen, resident_bytes.keys() & {record.pid for record in ours}),
            num_processes=len(seen),
            temperatures=warmth.temperatures,
            fans=warmth.fans,
            thermal_pressure=warmth.pressure,
        )
        return machine, now


def _own(record: ProcessRecord, resident_bytes: dict[int, int], before: _Counters | None, now: _Counters) -> OwnProcess:
    counted = now.disk.get(record.pid)
    known = before is not None and record.pid in before.disk and counted is not None
    since = before if known else None
    return OwnProcess(
        name=record.name,
        pid=record.pid,
        resident_bytes=resident_bytes.get(record.pid, 0),
        disk_read_bytes=counted.read_bytes if counted is not None else None,
        disk_written_bytes=counted.written_bytes if counted is not None else None,
        disk_read_bytes_per_second=_rate(since, now, lambda counters: counters.disk[record.pid].read_bytes),
        disk_written_bytes_per_second=_rate(since, now, lambda counters: counters.disk[record.pid].written_bytes),
    )


def _rate(before: _Counters | None, now: _Counters, counter: Callable[[_Counters], int]) -> float | None:
    """A second. None without an earlier sample, with one that is too old, and when a counter began anew."""
    if before is None or not 0 < now.at - before.at <= LONGEST_RATE_S:
        return None
    grown = counter(now) - counter(before)
    return grown / (now.at - before.at) if grown >= 0 else None
