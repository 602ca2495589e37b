"""The fault matrix as data: which process, what befalls it, and what is expected of the others, of the page, of a mend.

It runs nothing: `fault_run` does; `test_faults` compares, and `fault_table` writes the table of docs/reliability.md.
"""

from dataclasses import dataclass
from typing import Literal

from control.home import ProcessName

Fault = Literal["killed", "stopped", "hung", "slow"]
# How a mend begins: nobody does anything, SIGCONT, or this command of `splash`.
Mend = tuple[str, ...] | Literal["by itself", "continued"]

ANSWERED = "answered at once"
LATER = "answered after the mend"
REFUSED = "connection refused"
GOES_ON = "goes on"
STANDS = "stands still, then goes on"
BREAKS = "breaks off"
NO_ANSWER = "no answer"
NO_CONNECTION = "no connection"
ENGINE_DIED = "ends with engine_died"


@dataclass(frozen=True, slots=True)
class Expected:
    """`stream`: one that ran; `request`: one that came during the fault; `page`: the state that the console shows;
    `status`: the state of that process in `splash status`; `engine`: the same process afterwards, or a new one."""

    stream: str
    request: str
    page: str
    status: str
    engine: Literal["same", "new"] = "same"


@dataclass(frozen=True, slots=True)
class Cell:
    """`noticed_within_s` and `mended_within_s` bound what is measured, on a machine of two slow cores that does other
    things, too. `quit`: the words that end Splash while the fault lasts."""

    process: ProcessName
    fault: Fault
    expected: Expected
    noticed_within_s: float
    mend: Mend
    mended_within_s: float
    quit: tuple[str, ...] = ("quit",)

    @property
    def name(self) -> str:
        return f"{self.process} {self.fault}"


# Of the console nobody but the person who looks at it takes note: noticed is when `splash status` says so.
CELLS: tuple[Cell, ...] = (
    Cell("engine", "killed", Expected(ENGINE_DIED, LATER, "crashed or loading", "starting", "new"), 3, "by itself", 20),
    Cell("engine", "stopped", Expected(STANDS, LATER, "silent", "ready"), 15, "continued", 10, ("quit", "--force")),
    Cell(
        "engine",
        "hung",
        Expected(ENGINE_DIED, LATER, "silent", "ready", "new"),
        15,
        "by itself",
        60,
        ("quit", "--force"),
    ),
    Cell("engine", "slow", Expected(GOES_ON, ANSWERED, "ready", "ready"), 0, "by itself", 0),
    Cell("control", "killed", Expected(BREAKS, REFUSED, "gateway crashed or was killed", "stale"), 5, ("up",), 20),
    Cell(
        "control",
        "stopped",
        Expected(STANDS, LATER, "gateway not answering", "not answering"),
        8,
        "continued",
        10,
        ("quit", "--force"),
    ),
    Cell(
        "control",
        "hung",
        Expected(BREAKS, BREAKS, "gateway not answering", "not answering"),
        8,
        ("restart", "control", "--force"),
        20,
        ("quit", "--force"),
    ),
    Cell("control", "slow", Expected(GOES_ON, ANSWERED, "ready", "running"), 0, "by itself", 0),
    Cell("webui", "killed", Expected(GOES_ON, ANSWERED, NO_CONNECTION, "stale"), 5, ("up",), 20),
    Cell(
        "webui",
        "stopped",
        Expected(GOES_ON, ANSWERED, NO_ANSWER, "not answering"),
        8,
        "continued",
        10,
        ("quit", "--force"),
    ),
    Cell(
        "webui",
        "hung",
        Expected(GOES_ON, ANSWERED, NO_ANSWER, "not answering"),
        8,
        ("restart", "webui"),
        40,
        ("quit", "--force"),
    ),
    Cell("webui", "slow", Expected(GOES_ON, ANSWERED, "ready", "running"), 0, "by itself", 0),
)
