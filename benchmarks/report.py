"""The one JSON line that every benchmark ends with, and the command line that every benchmark has.

It measures nothing. Format: name, value, target, ok, unit, machine, versions, commit (`docs/operations.md`).
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import psutil

ROOT = Path(__file__).resolve().parents[1]
REPORTED_PACKAGES = ("mlx", "mlx-lm", "llguidance", "starlette", "uvicorn", "sqlalchemy")


Better = Literal["lower", "higher"]


def is_reached(value: float, target: float | None, better: Better) -> bool:
    if target is None:
        return True
    return value <= target if better == "lower" else value >= target


@dataclass(frozen=True, slots=True)
class Goal:
    """One of several figures of a benchmark, in the unit that its name says."""

    name: str
    value: float
    target: float | None
    better: Better

    @property
    def ok(self) -> bool:
        return is_reached(self.value, self.target, self.better)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was found. `better` says on which side of `target` it should be; `target` None: nothing was promised.

    A benchmark with several figures names the decisive one here, and all of them in `goals`.
    """

    name: str
    value: float
    unit: str
    target: float | None
    better: Better
    detail: dict[str, Any] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()

    @property
    def ok(self) -> bool:
        return is_reached(self.value, self.target, self.better) and all(goal.ok for goal in self.goals)


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    found = {}
    for package in REPORTED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def commit() -> str:
    """The checkout's commit, with a + when files differ from it; "unknown" outside a checkout."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def line(measurement: Measurement) -> str:
    said = asdict(measurement) | {
        "value": round(measurement.value, 4),
        "ok": measurement.ok,
        "goals": [asdict(goal) | {"value": round(goal.value, 4), "ok": goal.ok} for goal in measurement.goals],
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
    }
    return json.dumps(said, ensure_ascii=False)


def show(measurement: Measurement, *, is_json: bool) -> None:
    """Print what was found (`is_json`: the JSON line alone); exit 1 when a target was missed."""
    if not is_json:
        goal = "" if measurement.target is None else f" (target {measurement.target:g})"
        print(f"{measurement.name}: {measurement.value:.3f} {measurement.unit}{goal}")
        for figure in measurement.goals:
            goal = "" if figure.target is None else f" (target {figure.target:g}, {'ok' if figure.ok else 'MISSED'})"
            print(f"  {figure.name}: {figure.value:.4g}{goal}")
        for key, value in measurement.detail.items():
            print(f"  {key}: {value}")
    print(line(measurement), flush=True)
    sys.exit(0 if measurement.ok else 1)


def command_line(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    return parser


def run(measure: Callable[[bool], Measurement], description: str) -> None:
    """Parse `[--quick] [--json]`, measure and show."""
    arguments = command_line(description).parse_args()
    show(measure(arguments.quick), is_json=arguments.json)
