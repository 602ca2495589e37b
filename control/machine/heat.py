"""Temperatures, fans and thermal pressure, where the system tells them without special rights.

Linux tells the first two through psutil; macOS tells how much it slows down for heat. Neither is judged here.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psutil

from control.machine.mac_thermal_pressure import mac_thermal_pressure
from control.wire import Fan, Temperature, ThermalPressure

MOST_SENSORS: Final = 4


@dataclass(frozen=True, slots=True)
class Heat:
    temperatures: tuple[Temperature, ...]
    fans: tuple[Fan, ...]
    pressure: ThermalPressure | None


def heat(*, platform: str = sys.platform, on_mac: Callable[[], ThermalPressure | None] = mac_thermal_pressure) -> Heat:
    """Blocks while the sensors are read."""
    return Heat(_temperatures(), _fans(), on_mac() if platform == "darwin" else None)


def _temperatures() -> tuple[Temperature, ...]:
    """The hottest first."""
    read = getattr(psutil, "sensors_temperatures", None)  # missing where the system has no such thing
    found = [
        Temperature(sensor=f"{chip} {sensor.label}".strip(), celsius=sensor.current)
        for chip, sensors in (read() if read is not None else {}).items()
        for sensor in sensors
        if sensor.current is not None
    ]
    return tuple(sorted(found, key=lambda sensor: -sensor.celsius)[:MOST_SENSORS])


def _fans() -> tuple[Fan, ...]:
    read = getattr(psutil, "sensors_fans", None)  # as above
    return tuple(
        Fan(name=f"{chip} {fan.label}".strip(), rounds_per_minute=int(fan.current))
        for chip, fans in (read() if read is not None else {}).items()
        for fan in fans
    )[:MOST_SENSORS]
