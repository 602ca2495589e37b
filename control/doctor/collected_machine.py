"""Looks at the machine: memory and who holds it, who listens where, and what starts at login.

It judges nothing; what only macOS tells is in `mac`.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from control.doctor.facts import EngineMemory, Holder, LoginFacts, MachineFacts, PortFacts
from control.doctor.mac import is_translated, quarantined, wired_limit_mib
from control.doctor.port_checks import collides
from control.loopback import is_listening, reached_at
from control.machine.programs import all_processes, largest_users
from control.services.login import LOGIN_FOLDER, listed

NUM_USERS: Final = 6
PROJECT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Listener:
    pid: int
    address: str
    port: int
    command: str


def machine_facts(our_pids: Iterable[int], engine: EngineMemory | None, login_label: str) -> MachineFacts:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return MachineFacts(
        total_bytes=int(memory.total),
        available_bytes=int(memory.available),
        swap_used_bytes=int(swap.used),
        users=largest_users(all_processes(), our_pids, most=NUM_USERS),
        wired_limit_mib=wired_limit_mib(),
        is_translated=is_translated(),
        engine=engine,
        quarantined=quarantined(_started_by_hand()),
        login=login_facts(Path.home() / LOGIN_FOLDER, login_label) if sys.platform == "darwin" else (),
    )


def login_facts(folder: Path, label: str) -> tuple[LoginFacts, ...]:
    """Of the one property list that starts this home at login; nothing when it is off. Never run on a Mac."""
    file = folder / f"{label}.plist"
    if not file.exists():
        return ()
    try:
        program = Path((listed(file) or {})["ProgramArguments"][0])  # type: ignore[index]  # a list, when it is ours
    except (LookupError, TypeError):
        return (LoginFacts(file, None, program_is_there=False),)
    return (LoginFacts(file, program, program_is_there=os.access(program, os.X_OK)),)


def listeners() -> tuple[Listener, ...]:
    """All that this user may see."""
    return tuple(_listeners())


def port_facts(
    ports: Mapping[str, tuple[str, int]], found: Iterable[Listener], homes: Mapping[int, Path]
) -> tuple[PortFacts, ...]:
    """`ports`: the host and the number by the name of the setting; `homes`: of a process of Splash, by its pid."""
    listening = tuple(found)
    facts = []
    for key, (host, port) in ports.items():
        holders = tuple(
            Holder(each.pid, each.command, homes.get(each.pid), each.address)
            for each in listening
            if each.port == port and collides(each.address, host)
        )
        if not holders and is_listening(port, host=reached_at(host)):
            holders = (Holder(None),)
        facts.append(PortFacts(key, port, holders, host))
    return tuple(facts)


def _listeners() -> Iterator[Listener]:
    for process in psutil.process_iter():
        try:
            connections = process.net_connections(kind="tcp")
            listening = {(str(each.laddr.ip), int(each.laddr.port)) for each in connections if _listens(each)}
            command = " ".join(process.cmdline()) or process.name() if listening else ""
        except psutil.Error:
            continue
        yield from (Listener(process.pid, address, port, command) for address, port in sorted(listening))


def _listens(connection: object) -> bool:
    return bool(getattr(connection, "status", None) == psutil.CONN_LISTEN)


def _started_by_hand() -> tuple[Path, ...]:
    """What a person double-clicks, and the Python behind it."""
    places = (
        PROJECT / "Splash.command",
        PROJECT / "launchd" / "Splash.command",
        Path(sys.prefix),
        Path(sys.executable),
    )
    return tuple(place for place in places if place.exists())
