"""How much one process has read from and written to disks since it began, where the system tells.

Linux tells through psutil, macOS through its own library. It keeps nothing, and asks about processes of this user only.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from control.machine.mac_disk_bytes import mac_disk_bytes


@dataclass(frozen=True, slots=True)
class DiskBytes:
    read_bytes: int
    written_bytes: int


def disk_bytes(
    pid: int, *, platform: str = sys.platform, on_mac: Callable[[int], tuple[int, int] | None] = mac_disk_bytes
) -> DiskBytes | None:
    """None for a process that is gone or that this user may not look at."""
    if platform == "darwin":
        counted = on_mac(pid)
        return None if counted is None else DiskBytes(*counted)
    try:
        counters = psutil.Process(pid).io_counters()
    except (psutil.Error, OSError, AttributeError):  # psutil has no such method where the system has no such figure
        return None
    return DiskBytes(counters.read_bytes, counters.write_bytes)
