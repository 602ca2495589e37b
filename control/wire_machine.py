"""The machine that Splash runs on: a part of control's door, which `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only.
"""

from typing import Literal

from engine.wire import Frozen

# Source: macOS, OSThermalNotification.h.
ThermalPressure = Literal["nominal", "moderate", "heavy", "trapping", "sleeping"]


class MachineMemory(Frozen, frozen=True, omit_defaults=False):
    """`available_bytes` is what programs could get without swapping; `used_bytes` the rest of `total_bytes`.

    Swap rates are means since the last sample; None before there were two. On macOS they count all paging, files too.
    """

    total_bytes: int
    available_bytes: int
    used_bytes: int
    swap_total_bytes: int
    swap_used_bytes: int
    swap_in_bytes_per_second: float | None = None
    swap_out_bytes_per_second: float | None = None


class OwnProcess(Frozen, frozen=True, omit_defaults=False):
    """A process of Splash. Disk bytes are since its start, and None where the system does not tell."""

    name: str
    pid: int
    resident_bytes: int
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    disk_read_bytes_per_second: float | None = None
    disk_written_bytes_per_second: float | None = None


class MemoryUser(Frozen, frozen=True, omit_defaults=False):
    """All processes of one program together. Resident memory that they share is counted once for each."""

    name: str
    num_processes: int
    resident_bytes: int
    is_ours: bool


class Temperature(Frozen, frozen=True, omit_defaults=False):
    sensor: str
    celsius: float


class Fan(Frozen, frozen=True, omit_defaults=False):
    name: str
    rounds_per_minute: int


class Machine(Frozen, frozen=True, omit_defaults=False):
    """GET /machine: sampled when it is asked for, at most every two seconds.

    `users` are the largest programs by resident memory; `num_processes` are all that could be seen. Temperatures, the
    hottest first, and fans are empty and `thermal_pressure` is None where the system does not tell.
    """

    sampled_at_s: float
    memory: MachineMemory
    processes: tuple[OwnProcess, ...]
    users: tuple[MemoryUser, ...]
    num_processes: int
    temperatures: tuple[Temperature, ...] = ()
    fans: tuple[Fan, ...] = ()
    thermal_pressure: ThermalPressure | None = None
