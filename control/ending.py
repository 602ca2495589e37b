"""Ends one process of ours and proves it: asked, then SIGTERM, then SIGKILL; then it is gone and its port is closed.

It trusts its caller to have verified the record; `identity` sees to it that a pid reused meanwhile is not signalled.
"""

import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from control.identity import PortHolder, live_process, port_holder, resident_bytes, send_signal
from control.loopback import is_listening
from engine.wire import ProcessRecord

logger = logging.getLogger(__name__)

POLL_S: Final = 0.05
# The kernel closes what a dead process had open; on a busy machine that takes a moment.
PORT_LIMIT_S: Final = 2.0

How = Literal["already gone", "asked", "SIGTERM", "SIGKILL"]


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait after each step before the next, harder one. Together they stay below the 30 s of a quit."""

    asked_s: float = 10.0
    terminated_s: float = 6.0
    killed_s: float = 6.0


FORCED: Final = Patience(asked_s=1.5, terminated_s=1.5, killed_s=6.0)


@dataclass(frozen=True, slots=True)
class Ending:
    """What was proven. `held_bytes` is the resident memory that the process had and that its end gives back."""

    how: How
    seconds: float
    is_gone: bool
    port_holder: PortHolder | None
    held_bytes: int | None

    @property
    def is_proven(self) -> bool:
        return self.is_gone and self.port_holder is None

    def shortcoming(self, record: ProcessRecord | None) -> str:
        """What is not proven, of the engine with this record."""
        pid = "?" if record is None else record.pid
        if not self.is_gone:
            return f"The engine (pid {pid}) did not end within {self.seconds:.0f} s, not even by SIGKILL."
        return f"The engine ended, but its port is held by {self.port_holder}."


def end_process(
    record: ProcessRecord,
    *,
    ask: Callable[[], object] | None = None,
    patience: Patience = Patience(),
    is_forced: Callable[[], bool] = lambda: False,
    at_once: bool = False,
) -> Ending:
    """End the process of a verified record. Blocks. `is_forced` may become true meanwhile: then patience is short.

    `at_once`: it is known to be stuck, and SIGKILL is all that is tried.
    """
    began_at = time.monotonic()
    held_bytes = resident_bytes(record)
    how: How = "already gone"
    if live_process(record) is not None:
        how = _kill(record, patience) if at_once else _end_in_steps(record, ask, patience, is_forced)
    is_gone = live_process(record) is None
    holder = _left_on(record.port) if is_gone else port_holder(record.port)
    ending = Ending(how, time.monotonic() - began_at, is_gone, holder, held_bytes)
    log = logger.info if ending.is_proven else logger.error
    log(
        "process ended name=%s pid=%d how=%s seconds=%.2f gone=%s port_closed=%s held_bytes=%s",
        *(record.name, record.pid, how, ending.seconds, is_gone, holder is None, held_bytes),
    )
    return ending


def _end_in_steps(
    record: ProcessRecord, ask: Callable[[], object] | None, patience: Patience, is_forced: Callable[[], bool]
) -> How:
    if ask is not None:
        ask()
        if _is_gone_within(record, lambda: FORCED.asked_s if is_forced() else patience.asked_s):
            return "asked"
    if send_signal(record, signal.SIGTERM) and not _is_gone_within(
        record, lambda: FORCED.terminated_s if is_forced() else patience.terminated_s
    ):
        return _kill(record, patience)
    return "SIGTERM"


def _kill(record: ProcessRecord, patience: Patience) -> How:
    send_signal(record, signal.SIGKILL)
    _is_gone_within(record, lambda: patience.killed_s)
    return "SIGKILL"


def _is_gone_within(record: ProcessRecord, limit_s: Callable[[], float]) -> bool:
    began_at = time.monotonic()
    while time.monotonic() - began_at < limit_s():
        if live_process(record) is None:
            return True
        time.sleep(POLL_S)
    return False


def _left_on(port: int) -> PortHolder | None:
    """Whoever listens still when the dead process's port had time to close is another process."""
    deadline = time.monotonic() + PORT_LIMIT_S
    while is_listening(port):
        if time.monotonic() >= deadline:
            return port_holder(port) or PortHolder(None, None)
        time.sleep(POLL_S)
    return None
