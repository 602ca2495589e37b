"""What every service manager can do: start a process of ours so that it outlives its starter, and leave nothing of it.

It starts nothing itself; which manager a home uses is decided in `choice`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from control.home import Manager, ProcessName
from engine.wire import ProcessRecord


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that ended before it was found. `exit_code` None: a signal ended it, or nobody knows."""

    exit_code: int | None
    reason: str


class Launched(Protocol):
    """A process that was started and has not been found yet. `log_from_byte`: what its log held before.

    Its pid is not always known: then its record is what tells.
    """

    @property
    def log_from_byte(self) -> int: ...

    def ended(self) -> Ended | None:
        """None while it runs, or is about to. Blocks for a moment."""

    def wrote(self, record: ProcessRecord) -> bool:
        """Whether this record is of the process that was started, and of no earlier one."""

    def end(self) -> None:
        """End it, wherever its start stands, and leave nothing of it. Raises ServiceStays."""


class ServiceManager(Protocol):
    @property
    def name(self) -> Manager: ...

    def start(self, name: ProcessName, command: Sequence[str], environment: Mapping[str, str]) -> Launched:
        """Start a process that does not run, with its output in the log of that name. Raises StartFailed, HomeUnusable.

        `command` begins with an absolute path. `environment` is the whole one of the caller.
        """

    def last_end(self, name: ProcessName) -> Ended | None:
        """How a process ended that nobody told to; None where that is not known."""

    def remove(self, name: ProcessName) -> None:
        """Leave nothing of a process that has ended; one that has not is ended. Harmless when nothing is left.

        Raises ServiceStays.
        """
