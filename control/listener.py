"""Whether a process of ours still listens on its port: asked right after connecting, before anything secret is said.

It asks no process anything and knows no nonce: `identity` has verified whose record it is.

A port is free from the moment its process stops listening, and any user of this machine may take it then. Whoever found
the listener before it connected, and sees the same one after, has connected to it: nobody else could have listened.
"""

from dataclasses import dataclass
from pathlib import Path

import psutil

from control.identity import live_process
from control.loopback import LOOPBACK
from engine.wire import ProcessRecord


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket at the loopback address. `seen_as` is what Linux calls it, None elsewhere."""

    record: ProcessRecord
    port: int
    file: Path
    seen_as: str | None

    def is_open(self) -> bool:
        """On Linux some microseconds: the file of that process still is the same socket.

        Elsewhere its connections are listed anew, which the kernel does for one process alone.
        """
        if self.seen_as is None:
            return find_listener(self.record, self.port) is not None
        try:
            return str(self.file.readlink()) == self.seen_as
        except OSError:
            return False


def find_listener(record: ProcessRecord, port: int) -> Listener | None:
    """None: the record's process has ended, is another user's, or does not listen there. Some milliseconds on Linux."""
    process = live_process(record)
    if process is None:
        return None
    try:
        connections = process.net_connections(kind="tcp4")
    except psutil.Error:
        return None
    for each in connections:
        if each.status == psutil.CONN_LISTEN and each.laddr == (LOOPBACK, port):
            return _seen(record, port, Path("/proc", str(record.pid), "fd", str(each.fd)))
    return None


def _seen(record: ProcessRecord, port: int, file: Path) -> Listener | None:
    if not psutil.LINUX:
        return Listener(record, port, file, seen_as=None)
    try:
        return Listener(record, port, file, seen_as=str(file.readlink()))
    except OSError:
        return None
