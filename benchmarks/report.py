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
REPORTED_PACKAGES = ("mlx", "mlx-lm", "starlette", "uvicorn", "sqlalchemy")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was found. `better` says on which side of `target` it should be; `target` None: nothing was promised."""

    name: str
    value: float
    unit: str
    target: float | None
    better: Literal["lower", "higher"]
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        if self.target is None:
            return True
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


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
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
    }
    return json.dumps(said, ensure_ascii=False)


def run(measure: Callable[[bool], Measurement], description: str) -> None:
    """Parse `[--quick] [--json]`, measure, print (--json: the JSON line alone); exit 1 when the target was missed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    arguments = parser.parse_args()

    measurement = measure(arguments.quick)

    if not arguments.json:
        goal = "" if measurement.target is None else f" (target {measurement.target:g})"
        print(f"{measurement.name}: {measurement.value:.3f} {measurement.unit}{goal}")
        for key, value in measurement.detail.items():
            print(f"  {key}: {value}")
    print(line(measurement))
    sys.exit(0 if measurement.ok else 1)
