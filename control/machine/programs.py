"""Who holds the memory of this machine: every process that can be seen, grouped by the name of its program.

It names no owner and no argument of anybody's command. What is ours is one group by the name of Splash.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import psutil

from control.wire import MemoryUser

OURS: Final = "Splash"
MOST_SHOWN: Final = 8
# Python holds its lock while it reads; after this many processes others get a turn, the event loop above all.
TURN_LENGTH: Final = 20
TURN_BREAK_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Seen:
    pid: int
    parent_pid: int
    name: str
    resident_bytes: int


def all_processes() -> Iterator[Seen]:
    """Each process that may be looked at. Takes a moment, and gives way to other threads meanwhile."""
    attributes = ["pid", "ppid", "name", "memory_info"]
    for number, process in enumerate(psutil.process_iter(attributes), start=1):
        memory = process.info["memory_info"]
        if memory is not None:
            yield Seen(process.pid, process.info["ppid"], process.info["name"] or "?", memory.rss)
        if number % TURN_LENGTH == 0:
            time.sleep(TURN_BREAK_S)


def largest_users(
    processes: Iterable[Seen], our_pids: Iterable[int], *, most: int = MOST_SHOWN
) -> tuple[MemoryUser, ...]:
    """The largest first. What a process of ours has started is ours, too."""
    seen = tuple(processes)
    ours = _with_children(seen, set(our_pids))
    num_processes: dict[tuple[str, bool], int] = {}
    resident_bytes: dict[tuple[str, bool], int] = {}
    for process in seen:
        group = (OURS, True) if process.pid in ours else (process.name, False)
        num_processes[group] = num_processes.get(group, 0) + 1
        resident_bytes[group] = resident_bytes.get(group, 0) + process.resident_bytes
    users = (
        MemoryUser(name=name, num_processes=count, resident_bytes=resident_bytes[name, is_ours], is_ours=is_ours)
        for (name, is_ours), count in num_processes.items()
        # The kernel's own threads hold nothing.
        if resident_bytes[name, is_ours]
    )
    return tuple(sorted(users, key=lambda user: (-user.resident_bytes, user.name))[:most])


def _with_children(seen: tuple[Seen, ...], pids: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in seen:
        children.setdefault(process.parent_pid, []).append(process.pid)
    found: set[int] = set()
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found
