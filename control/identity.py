"""Is the process that a record names really ours: pid, start time, port and nonce, in this order; and who holds a port.

It signals only what it has verified; it decides nothing about what should run.
"""

import logging
import os
import signal
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import msgspec
import psutil

from control.loopback import ask, reached_at
from engine.wire import HEALTHZ, ProcessRecord

logger = logging.getLogger(__name__)

# The kernel's start time is read through boot time and clock ticks, which move a little between two readings. When the
# clock is set, boot time moves by as much: then only the time between boot and start is the same.
CREATION_TOLERANCE_S: Final = 2.0
HEALTHZ_TIMEOUT_S: Final = 2.0

# ours: all four hold. gone: the pid is free, a zombie's, or another's by now. closed: it lives, its port is closed.
# silent: it holds the port and does not answer. stranger: what answers on the port has another nonce.
Verdict = Literal["ours", "gone", "closed", "silent", "stranger"]


@dataclass(frozen=True, slots=True)
class Identity:
    """`reason` is a clause for a person, in the words of the record."""

    verdict: Verdict
    reason: str

    @property
    def is_ours(self) -> bool:
        return self.verdict == "ours"

    @property
    def is_alive(self) -> bool:
        """The very process that wrote the record still exists, whether it answers or not."""
        return self.verdict != "gone"


@dataclass(frozen=True, slots=True)
class PortHolder:
    """Who listens on a port. The operating system does not always tell: then `pid` is None."""

    pid: int | None
    command: str | None

    def __str__(self) -> str:
        if self.pid is None:
            return "a process that this user may not see"
        return f"pid {self.pid} ({self.command or 'command unknown'})"


class _Health(msgspec.Struct):
    """The part of every process's /healthz that identity needs."""

    pid: int
    nonce: str


def verify(record: ProcessRecord) -> Identity:
    """Check one record against the machine. Blocks for at most HEALTHZ_TIMEOUT_S."""
    process = live_process(record)
    if process is None:
        return Identity("gone", f"pid {record.pid} has ended")
    address = _listening_address(process, record.port)
    if address is None:
        return Identity("closed", f"pid {record.pid} does not listen on port {record.port}")
    answer = ask(record.port, HEALTHZ, timeout_s=HEALTHZ_TIMEOUT_S, host=reached_at(address))
    if answer is None:
        return Identity("silent", f"pid {record.pid} holds port {record.port} and does not answer")
    try:
        health = msgspec.json.decode(answer.body, type=_Health)
    except msgspec.DecodeError:
        return Identity("stranger", f"pid {record.pid} on port {record.port} does not speak as Splash")
    if (health.pid, health.nonce) != (record.pid, record.nonce):
        return Identity("stranger", f"pid {record.pid} on port {record.port} answers for another launch")
    return Identity("ours", f"pid {record.pid} on port {record.port}")


def listening_address(record: ProcessRecord, port: int) -> str | None:
    """Where a process of ours listens on that port of it; None when it doesn't, or has ended."""
    process = live_process(record)
    return None if process is None else _listening_address(process, port)


def live_process(record: ProcessRecord) -> psutil.Process | None:
    """The process that wrote the record; None when it has ended (a zombie has), or when the pid is another's by now.

    A zombie of which threads still run has not: it holds its memory and its port, and can't be reaped yet.
    """
    try:
        process = psutil.Process(record.pid)
        if process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1:
            return None
        is_same = _apart_s(process, record) <= CREATION_TOLERANCE_S
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return None
    return process if is_same else None


def runs_for(record: ProcessRecord, root: Path) -> bool:
    """Whether the command of a live process is one of Splash for the home at `root`.

    It stands in for an answer of a process that gives none: a record alone could have been written by anybody.
    """
    process = live_process(record)
    if process is None:
        return False
    try:
        words = pairwise(process.cmdline())
        return any(
            pair == ("--home", str(root)) or (pair == ("-m", record.name) and Path(process.cwd()) == root)
            for pair in words
        )
    except psutil.Error:
        return False


@dataclass(frozen=True, slots=True)
class Start:
    """When a process started, as the kernel knows it: Unix seconds, and seconds since the boot (None off Linux)."""

    at_s: float
    after_boot_s: float | None


def start_of(pid: int) -> Start:
    at_s = float(psutil.Process(pid).create_time())
    return Start(at_s, at_s - psutil.boot_time() if psutil.LINUX else None)


def resident_bytes(record: ProcessRecord) -> int | None:
    process = live_process(record)
    try:
        return None if process is None else int(process.memory_info().rss)
    except psutil.Error:
        return None


def send_signal(record: ProcessRecord, number: signal.Signals) -> bool:
    """Signal the process that wrote the record, and its group when it leads one; False when that process is gone.

    The caller has verified the identity before; what is checked again here is that the pid was not reused since.
    """
    process = live_process(record)
    if process is None:
        return False
    try:
        if number == signal.SIGKILL and os.getpgid(record.pid) == record.pid:
            os.killpg(record.pid, number)
        else:
            os.kill(record.pid, number)
    except ProcessLookupError:
        return False
    log = logger.warning if number == signal.SIGKILL else logger.info
    log("signal sent name=%s pid=%d signal=%s", record.name, record.pid, number.name)
    return True


def port_holder(port: int) -> PortHolder | None:
    """Who listens on a port of this machine; None when nobody does, as far as this user may see."""
    for process in psutil.process_iter():
        if _listening_address(process, port) is not None:
            return PortHolder(process.pid, _command(process))
    return None


def outgoing_holder(port: int) -> PortHolder | None:
    """Who has a connection whose near end is that port, and does not listen there; None when nobody is seen."""
    for process in psutil.process_iter():
        if any(near == port and status != psutil.CONN_LISTEN for near, status in _near_ends(process)):
            return PortHolder(process.pid, _command(process))
    return None


def splash_home_of(holder: PortHolder | None) -> Path | None:
    """The home of a Splash of which this is a process: its command or its folder names it, and its record the pid."""
    if holder is None or holder.pid is None:
        return None
    try:
        process = psutil.Process(holder.pid)
        named = [Path(home) for option, home in pairwise(process.cmdline()) if option == "--home"]
        candidates = [*named, Path(process.cwd())]
    except psutil.Error:
        return None
    return next((home for home in candidates if _has_record(home, holder.pid)), None)


def _apart_s(process: psutil.Process, record: ProcessRecord) -> float:
    """By how much its start differs from the record's; a clock that was set since is no difference."""
    if record.created_after_boot_s is None:
        return float(abs(process.create_time() - record.created_at_s))
    return float(abs(process.create_time() - psutil.boot_time() - record.created_after_boot_s))


def _has_record(home: Path, pid: int) -> bool:
    for file in (home / "run").glob("*.json"):
        try:
            if msgspec.json.decode(file.read_bytes(), type=ProcessRecord).pid == pid:
                return True
        except (OSError, msgspec.DecodeError):
            continue
    return False


def _listening_address(process: psutil.Process, port: int) -> str | None:
    """The numeric address at which the process listens on that port; None when it doesn't, or isn't shown to us."""
    try:
        connections = process.net_connections(kind="tcp")
    except psutil.Error:
        return None
    addresses = (c.laddr for c in connections if c.status == psutil.CONN_LISTEN)
    return next((str(address.ip) for address in addresses if address.port == port), None)


def _near_ends(process: psutil.Process) -> tuple[tuple[int, str], ...]:
    """The local port and the state of each TCP socket; none when they are not shown to us."""
    try:
        return tuple((c.laddr.port, c.status) for c in process.net_connections(kind="tcp") if c.laddr)
    except psutil.Error:
        return ()


def _command(process: psutil.Process) -> str | None:
    try:
        words = process.cmdline()
        return " ".join(words) if words else str(process.name())
    except psutil.Error:
        return None
