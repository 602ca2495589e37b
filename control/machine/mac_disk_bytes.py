"""Disk bytes of a process on macOS: `proc_pid_rusage` of libproc through ctypes, since psutil has none there.

Never run on a Mac: the layout is that of <sys/resource.h>, struct rusage_info_v4. It is called on macOS only.
"""

import ctypes
from typing import Final

RUSAGE_INFO_V4: Final = 4

_COUNTERS: Final = (
    "ri_user_time",
    "ri_system_time",
    "ri_pkg_idle_wkups",
    "ri_interrupt_wkups",
    "ri_pageins",
    "ri_wired_size",
    "ri_resident_size",
    "ri_phys_footprint",
    "ri_proc_start_abstime",
    "ri_proc_exit_abstime",
    "ri_child_user_time",
    "ri_child_system_time",
    "ri_child_pkg_idle_wkups",
    "ri_child_interrupt_wkups",
    "ri_child_pageins",
    "ri_child_elapsed_abstime",
    "ri_diskio_bytesread",
    "ri_diskio_byteswritten",
    "ri_cpu_time_qos_default",
    "ri_cpu_time_qos_maintenance",
    "ri_cpu_time_qos_background",
    "ri_cpu_time_qos_utility",
    "ri_cpu_time_qos_legacy",
    "ri_cpu_time_qos_user_initiated",
    "ri_cpu_time_qos_user_interactive",
    "ri_billed_system_time",
    "ri_serviced_system_time",
    "ri_logical_writes",
    "ri_lifetime_max_phys_footprint",
    "ri_instructions",
    "ri_cycles",
    "ri_billed_energy",
    "ri_serviced_energy",
    "ri_interval_max_phys_footprint",
    "ri_runnable_time",
)


class RusageInfoV4(ctypes.Structure):
    _fields_ = [("ri_uuid", ctypes.c_uint8 * 16), *((name, ctypes.c_uint64) for name in _COUNTERS)]


def mac_disk_bytes(pid: int) -> tuple[int, int] | None:
    """Bytes read and written; None when the system does not tell."""
    usage = RusageInfoV4()
    try:
        # None: what this program itself is linked with, which on macOS includes libproc.
        failed = ctypes.CDLL(None).proc_pid_rusage(pid, RUSAGE_INFO_V4, ctypes.byref(usage))
    except (OSError, AttributeError):
        return None
    return None if failed else (usage.ri_diskio_bytesread, usage.ri_diskio_byteswritten)
