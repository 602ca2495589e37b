"""Whether control itself has its admin port: looked up before a connection is made, and seen again right after.

It talks to nobody, and keeps no connection. As in `control.listener`, across the wall.

The port is free from the moment control stops listening, and any user of this machine may take it then. If control's
listening socket was there before we connected and is there after, we have connected to it: nobody else could listen.
"""

from dataclasses import dataclass
from pathlib import Path

import psutil

from control.wire import ProcessRecord
from webui.home import Home, is_alive

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket of control. `named` is what Linux calls it, None elsewhere."""

    record: ProcessRecord
    port: int
    file: Path
    named: str | None

    def is_open(self) -> bool:
        """The very same one. On Linux this takes some microseconds."""
        if self.named is None:
            return is_alive(self.record) and _look(self.record, self.port) is not None
        try:
            return str(self.file.readlink()) == self.named
        except OSError:
            return False


class ControlListener:
    """Of the control that `home` records. Listing its sockets takes milliseconds, so it is done once for each start."""

    def __init__(self, home: Home, *, admin_port: int) -> None:
        self._home = home
        self._port = admin_port
        self._found: Listener | None = None

    def find(self) -> Listener | None:
        """None: no control lives, by its record, that listens there. Blocks for some milliseconds the first time."""
        record, found = self._home.living("control"), self._found
        if record is None:
            return None
        if found is None or found.record != record or not found.is_open():
            found = self._found = _look(record, self._port)
        return found


def _look(record: ProcessRecord, port: int) -> Listener | None:
    """None: it does not listen there, or has ended; what another user's process does is not shown to us."""
    try:
        connections = psutil.Process(record.pid).net_connections(kind="tcp4")
        found = next(c for c in connections if c.status == psutil.CONN_LISTEN and c.laddr == (LOOPBACK, port))
        file = Path("/proc", str(record.pid), "fd", str(found.fd))
        return Listener(record, port, file, str(file.readlink()) if psutil.LINUX else None)
    except (psutil.Error, OSError, StopIteration):
        return None
