"""Gathers all facts about a home and its machine: every question of `splash doctor`, each with a limit of its own.

It changes nothing, starts no process of Splash, signals nobody, and works when nothing runs and when control hangs.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import psutil

from control.command_errors import HomeUnusable
from control.config import PORT_FIELDS, Settings, default_home
from control.console_password import ConsolePassword
from control.doctor.collected_home import home_facts
from control.doctor.collected_machine import Listener, listeners, machine_facts, port_facts
from control.doctor.collected_versions import version_facts
from control.doctor.facts import EngineMemory, Facts, LockFacts, RecordFacts
from control.doctor.process_table import Part, others, parts, user_processes
from control.home import PROCESS_NAMES, Home, ProcessName
from control.identity import runs_for, verify
from control.loopback import LOOPBACK, ask
from control.misplaced import misplaced
from control.services.agents import label_of
from control.wire import HEALTHZ
from engine.wire import STATUS, DeviceStatus, MemoryPlan, ProcessRecord

HEALTHZ_TIMEOUT_S: Final = 2.0
STATUS_TIMEOUT_S: Final = 2.0


class _Health(msgspec.Struct):
    wire_version: int


class _Status(msgspec.Struct):
    """The part of the engine's status that is needed; an older engine has it in the same form."""

    memory_plan: MemoryPlan | None = None
    device: DeviceStatus | None = None


def collect(settings: Settings, environment: Mapping[str, str]) -> Facts:
    """Takes a second or two, and a few more for each process that hangs."""
    home = Home(settings.home)
    records = tuple(_record_facts(home, name, settings) for name in PROCESS_NAMES)
    alive = {each.name: each.record for each in records if each.record is not None and each.is_ours}
    processes, listening = user_processes(), listeners()
    found = parts(processes, home.root)
    homes = {part.process.pid: part.home for part in found} | {each.pid: home.root for each in alive.values()}
    beside = others(processes, home.root, {name: record.pid for name, record in alive.items()})
    our_pids = {*(record.pid for record in alive.values()), *(other.process.pid for other in beside)}
    ports = _ports(settings, settings.console_host(has_password=ConsolePassword(home).is_set))
    return Facts(
        home=home_facts(home, alive.get("engine"), environment),
        records=records,
        parts=found,
        others=beside,
        gone_homes=_gone_homes(found, home.root),
        listening=_ports_by_pid(listening, homes),
        lock=_lock(home),
        ports=port_facts(ports, listening, homes | dict.fromkeys(our_pids, home.root)),
        misplaced=misplaced(home, settings),
        machine=machine_facts(
            our_pids,
            _engine_memory(home, next(each for each in records if each.name == "engine")),
            label_of("login", home.root, default_root=default_home()),
        ),
        versions=version_facts(),
        now_s=time.time(),
    )


def _record_facts(home: Home, name: ProcessName, settings: Settings) -> RecordFacts:
    file = home.record_file(name)
    record = home.read_record(name)
    if record is None:
        return RecordFacts(name, file, is_file=file.exists())
    identity = verify(record)
    return RecordFacts(
        name,
        file,
        is_file=True,
        record=record,
        verdict=identity.verdict,
        reason=identity.reason,
        age_s=max(time.time() - record.created_at_s, 0.0),
        pid_is_taken=_is_taken(record.pid),
        runs_for_home=identity.is_ours or runs_for(record, home.root),
        wire_version=_wire_version(record, settings) if identity.is_ours else None,
    )


def _is_taken(pid: int) -> bool:
    """By a process that runs. A zombie, which waits to be reaped, may be the very one that has ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False


def _wire_version(record: ProcessRecord, settings: Settings) -> int | None:
    """As the process itself says. Every process of Splash has that path, and needs no secret for it."""
    host = settings.host if record.name == "webui" else LOOPBACK
    answer = ask(record.port, HEALTHZ, timeout_s=HEALTHZ_TIMEOUT_S, host=host)
    try:
        return None if answer is None else msgspec.json.decode(answer.body, type=_Health).wire_version
    except msgspec.DecodeError:
        return None


def _engine_memory(home: Home, engine: RecordFacts) -> EngineMemory | None:
    """What the running engine may use. Asked of the engine, so that control may be dead.

    Only an engine that has proven its identity gets to see its secret.
    """
    launch = home.read_launch()
    if engine.verdict != "ours" or engine.record is None or launch is None:
        return None
    answer = ask(engine.record.port, STATUS, secret=launch.secret, timeout_s=STATUS_TIMEOUT_S)
    try:
        status = None if answer is None else msgspec.json.decode(answer.body, type=_Status)
    except msgspec.DecodeError:
        return None
    if status is None:
        return None
    plan, device = status.memory_plan, status.device
    return EngineMemory(
        limit_bytes=None if plan is None else plan.limit_bytes,
        device=None if device is None else device.kind,
        working_set_bytes=None if device is None else device.working_set_bytes,
    )


def _lock(home: Home) -> LockFacts | None:
    """Asked only where there is a file already: asking would make it."""
    try:
        holder = home.holder_of("control") if (home.root / "run" / "control.lock").exists() else None
    except (HomeUnusable, OSError):
        return None
    if holder is None:
        return None
    try:
        began_at_s = psutil.Process(holder.pid).create_time() if holder.pid is not None else time.time()
    except psutil.Error:
        began_at_s = time.time()
    return LockFacts(holder.pid, max(time.time() - began_at_s, 0.0))


def _gone_homes(found: tuple[Part, ...], root: Path) -> frozenset[Path]:
    return frozenset(part.home for part in found if part.home != root and not part.home.is_dir())


def _ports_by_pid(listening: tuple[Listener, ...], homes: Mapping[int, Path]) -> dict[int, tuple[int, ...]]:
    ports: dict[int, tuple[int, ...]] = {}
    for each in listening:
        if each.pid in homes:
            ports[each.pid] = (*ports.get(each.pid, ()), each.port)
    return ports


def _ports(settings: Settings, console_host: str) -> dict[str, tuple[str, int]]:
    """Where each of the four has to be had by the settings, in LAN mode at every address."""
    hosts = {"SPLASH_API_PORT": settings.api_host, "SPLASH_CONSOLE_PORT": console_host}
    return {key: (hosts.get(key, LOOPBACK), getattr(settings, field)) for key, field in PORT_FIELDS.items()}
