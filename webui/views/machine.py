"""This machine on the page *Model*: memory, swap, disks, heat, and which programs hold its memory.

It judges nothing: what is much for one machine is little for another.
"""

from dataclasses import dataclass
from typing import Final

from control.wire import Machine, MachineMemory, MemoryUser, OwnProcess, ThermalPressure
from webui import numbers
from webui.text import Text
from webui.views.facts import Fact

_PRESSURE_TEXT: Final[dict[ThermalPressure, str]] = {
    "nominal": "machine.pressure_nominal",
    "moderate": "machine.pressure_moderate",
    "heavy": "machine.pressure_heavy",
    "trapping": "machine.pressure_trapping",
    "sleeping": "machine.pressure_sleeping",
}
_PROCESS_TEXT: Final[dict[str, str]] = {
    "control": "machine.control",
    "engine": "machine.engine",
    "webui": "machine.webui",
}


@dataclass(frozen=True, slots=True)
class Amount:
    """All since the process began, and what goes on now: empty when nothing does."""

    total: str
    rate: str


@dataclass(frozen=True, slots=True)
class ProcessLine:
    name: str
    pid: str
    resident: str
    read: Amount
    written: Amount


@dataclass(frozen=True, slots=True)
class UserLine:
    """`percent` of what the largest holds is what its bar shows."""

    name: str
    count: str
    resident: str
    percent: float
    is_ours: bool


@dataclass(frozen=True, slots=True)
class MachineView:
    """`used_percent` is what programs hold, for the bar. `seen` says how many processes could be looked at."""

    facts: tuple[Fact, ...]
    used_percent: float
    summary: str
    processes: tuple[ProcessLine, ...]
    users: tuple[UserLine, ...]
    seen: str


def machine_view(machine: Machine, text: Text) -> MachineView:
    memory = machine.memory
    used, total = numbers.size(memory.used_bytes), numbers.size(memory.total_bytes)
    return MachineView(
        facts=(*_of_the_memory(memory, text), *_of_the_heat(machine, text)),
        used_percent=_percent(memory.used_bytes, memory.total_bytes),
        summary=text("machine.summary", used=used, total=total),
        processes=tuple(_process(process, text) for process in machine.processes),
        users=tuple(_user(user, machine.users[0].resident_bytes) for user in machine.users),
        seen=text.count("machine.seen", machine.num_processes),
    )


def _of_the_memory(memory: MachineMemory, text: Text) -> tuple[Fact, ...]:
    swap = text("memory.of", part=numbers.size(memory.swap_used_bytes), whole=numbers.size(memory.swap_total_bytes))
    return (
        Fact(
            text("machine.used"),
            text("memory.of", part=numbers.size(memory.used_bytes), whole=numbers.size(memory.total_bytes)),
            text("machine.used_hint"),
        ),
        Fact(text("machine.available"), numbers.size(memory.available_bytes), text("machine.available_hint")),
        Fact(
            text("machine.swap"),
            swap if memory.swap_total_bytes else text("machine.no_swap"),
            text("machine.swap_hint"),
        ),
        Fact(text("machine.swap_in"), _rate(memory.swap_in_bytes_per_second), text("machine.swap_in_hint")),
        Fact(text("machine.swap_out"), _rate(memory.swap_out_bytes_per_second), text("machine.swap_out_hint")),
    )


def _of_the_heat(machine: Machine, text: Text) -> tuple[Fact, ...]:
    """Only what the system tells: on many machines, nothing."""
    found = []
    if machine.thermal_pressure is not None:
        value = text(_PRESSURE_TEXT[machine.thermal_pressure])
        found.append(Fact(text("machine.pressure"), value, text("machine.pressure_hint")))
    if machine.temperatures:
        hottest = machine.temperatures[0]
        all_of_them = ", ".join(f"{each.sensor} {each.celsius:.0f} °C" for each in machine.temperatures)
        found.append(
            Fact(text("machine.heat"), f"{hottest.celsius:.0f} °C", text("machine.heat_hint", sensors=all_of_them))
        )
    if machine.fans:
        fastest = max(fan.rounds_per_minute for fan in machine.fans)
        found.append(
            Fact(text("machine.fan"), text("machine.rpm", n=numbers.tokens(fastest)), text("machine.fan_hint"))
        )
    return tuple(found)


def _process(process: OwnProcess, text: Text) -> ProcessLine:
    return ProcessLine(
        name=text(_PROCESS_TEXT[process.name]) if process.name in _PROCESS_TEXT else process.name,
        pid=str(process.pid),
        resident=numbers.size(process.resident_bytes),
        read=_disk(process.disk_read_bytes, process.disk_read_bytes_per_second),
        written=_disk(process.disk_written_bytes, process.disk_written_bytes_per_second),
    )


def _disk(num_bytes: int | None, bytes_per_second: float | None) -> Amount:
    return Amount(numbers.size(num_bytes), numbers.byte_speed(bytes_per_second) if bytes_per_second else "")


def _user(user: MemoryUser, largest_bytes: int) -> UserLine:
    return UserLine(
        name=user.name,
        count=numbers.tokens(user.num_processes),
        resident=numbers.size(user.resident_bytes),
        percent=_percent(user.resident_bytes, largest_bytes),
        is_ours=user.is_ours,
    )


def _rate(bytes_per_second: float | None) -> str:
    return numbers.UNKNOWN if bytes_per_second is None else numbers.byte_speed(bytes_per_second)


def _percent(part_bytes: int, whole_bytes: int) -> float:
    return round(min(part_bytes / whole_bytes, 1.0) * 100, 2) if whole_bytes else 0.0
