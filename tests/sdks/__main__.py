"""`make sdks`: old and new releases of both SDKs against the gateway, each in a small environment of its own.

    python -m tests.sdks

The table is printed, and kept in `benchmarks/results`. It is not collected by pytest: it downloads. The newest of each
runs in `make test` (`tests/unit/control_gateway/test_sdks.py`).
"""

import asyncio
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.sdks.scene import scene

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENTS: Final = ROOT / ".sdks"
RESULTS: Final = ROOT / "benchmarks" / "results"
# The oldest that clients are seen with, and one between; the newest is the one of our own environment.
OLDER: Final = {"openai": ("1.99.9", "2.8.0"), "anthropic": ("0.64.0", "0.75.0")}


@dataclass
class Column:
    """One release; `outcomes` by check and mode."""

    sdk: str
    version: str
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)
    http: str = ""
    log: str = ""


def newest(sdk: str) -> str:
    found = re.search(rf"^{sdk}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found, f"constraints.txt pins {sdk}"
    return found[1]


def python_with(column: Column) -> str:
    """The interpreter of an environment that has that release; it is made when it is not there."""
    folder = ENVIRONMENTS / f"{column.sdk}-{column.version}"
    python, made = str(folder / "bin" / "python"), folder / ".made"
    if not made.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"{column.sdk}=={column.version}"], check=True)
        made.touch()
    return python


def http_library(python: str) -> str:
    asked = (
        "from importlib.metadata import packages_distributions as p; print('httpx2' if 'httpx2' in p() else 'httpx')"
    )
    return subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()


async def fill(column: Column, url: str, key: str) -> None:
    python = await asyncio.to_thread(python_with, column)
    column.http = await asyncio.to_thread(http_library, python)
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        "tests.sdks.small_environment",
        column.sdk,
        url,
        key,
        cwd=ROOT,
        # A proxy would be asked for this machine, too.
        env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, log = await process.communicate()
    for line in told.splitlines():
        check, mode, outcome = json.loads(line)
        column.outcomes[check, mode] = outcome
    column.log = log.decode()


def table(columns: list[Column]) -> list[str]:
    """Of one SDK: a line a check."""
    cells = [f"{column.version} {mode}" for column in columns for mode in ("sync", "async")]
    lines = [f"{columns[0].sdk:<38}" + "".join(f"{cell:<14}" for cell in cells).rstrip()]
    for check in dict.fromkeys(check for column in columns for check, _ in column.outcomes):
        outcomes = [column.outcomes.get((check, mode), "FAIL") for column in columns for mode in ("sync", "async")]
        lines.append(f"  {check.replace('_', ' '):<36}" + "".join(f"{outcome:<14}" for outcome in outcomes).rstrip())
    return [*lines, "  over " + ", ".join(f"{column.http} ({column.version})" for column in columns), ""]


async def matrix() -> list[Column]:
    columns = [Column(sdk, version) for sdk in OLDER for version in (*OLDER[sdk], newest(sdk))]
    with tempfile.TemporaryDirectory(prefix="splash-sdks-") as folder:
        async with scene(Path(folder)) as stage:
            for column in columns:
                print(f"{column.sdk} {column.version}", file=sys.stderr, flush=True)
                await fill(column, stage.url.removesuffix("/v1"), stage.key)
    return columns


def main() -> int:
    columns = asyncio.run(matrix())
    now = datetime.now(UTC)
    lines = [f"{now:%Y-%m-%d %H:%M} UTC, {platform.system()} {platform.machine()}, Python {platform.python_version()}"]
    lines += [
        "The scripted engine behind the gateway, heartbeats before and within every stream. absent: no such helper."
    ]
    lines += [""]
    for sdk in OLDER:
        lines += table([column for column in columns if column.sdk == sdk])
    failed = [column for column in columns if not column.outcomes or "FAIL" in column.outcomes.values()]
    lines += [f"failed: {', '.join(f'{each.sdk} {each.version}' for each in failed)}" if failed else "all passed"]
    text = "\n".join(lines) + "\n"
    print(text)
    (RESULTS / f"{now:%Y-%m-%d}-sdks.txt").write_text(text)
    for column in failed:
        print(f"--- {column.sdk} {column.version}\n{column.log}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
