"""Control or the console at another address than settings and password say, by what the system says. Nobody is asked.

It changes nothing: `splash lan`, `splash password` and `splash up` restart who listens elsewhere.
"""

from dataclasses import dataclass
from typing import Literal

from control.config import Settings
from control.console_password import ConsolePassword
from control.home import Home
from control.identity import listening_address, runs_for, verify
from control.loopback import EVERY_ADDRESS


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A process of ours that listens at another address than it should."""

    name: Literal["control", "webui"]
    pid: int
    port: int
    listens_at: str
    wanted: str

    @property
    def is_open(self) -> bool:
        """Other machines reach it, and should not."""
        return self.listens_at in EVERY_ADDRESS.values()

    def __str__(self) -> str:
        return f"pid {self.pid} listened at {self.listens_at}, and the settings say {self.wanted}"


def misplaced(home: Home, settings: Settings) -> tuple[Misplaced, ...]:
    """By what the system says of the recorded processes.

    The console first: it waits for nobody's request, so it is closed to others at once.
    """
    hosts = {"webui": settings.console_host(has_password=ConsolePassword(home).is_set), "control": settings.api_host}
    found = (_misplaced(home, name, hosts[name]) for name in ("webui", "control"))
    return tuple(each for each in found if each is not None)


def _misplaced(home: Home, name: Literal["control", "webui"], wanted: str) -> Misplaced | None:
    record = home.read_record(name)
    if record is None:
        return None
    port = record.ports.get("api", record.port) if name == "control" else record.port
    address = listening_address(record, port)
    if address in (None, wanted) or not (runs_for(record, home.root) or verify(record).is_ours):
        return None
    assert address is not None
    return Misplaced(name, record.pid, port, address, wanted)
