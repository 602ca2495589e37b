"""How much macOS slows the machine down for heat: `notify_get_state` through ctypes, which needs no root.

Never run on a Mac. Source: OSThermalNotification.h; stanislas.blog/2025/12; angristan/MacThrottle.
"""

import ctypes
from typing import Final

from control.wire import ThermalPressure

_NAME: Final = b"com.apple.system.thermalpressurelevel"
LEVELS: Final[tuple[ThermalPressure, ...]] = ("nominal", "moderate", "heavy", "trapping", "sleeping")


def mac_thermal_pressure() -> ThermalPressure | None:
    """None when the system does not tell, or tells a level that is not known."""
    token, state = ctypes.c_int(), ctypes.c_uint64()
    try:
        system = ctypes.CDLL(None)
        if system.notify_register_check(_NAME, ctypes.byref(token)) != 0:
            return None
        failed = system.notify_get_state(token, ctypes.byref(state))
        system.notify_cancel(token)
    except (OSError, AttributeError):
        return None
    return LEVELS[state.value] if not failed and state.value < len(LEVELS) else None
