"""What is installed in this Python, and what Splash wants there: from the packages' own metadata, and nothing loaded.

It knows no running process.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from control.doctor.facts import Package, VersionFacts
from control.wire import WIRE_VERSION as CONTROL_WIRE_VERSION
from engine.wire import WIRE_VERSION as ENGINE_WIRE_VERSION

DISTRIBUTION: Final = "splash-server"
CONSTRAINTS: Final = Path(__file__).resolve().parents[2] / "constraints.txt"
"""Beside the packages in a working copy; an installed wheel has none."""
# The halves of MLX with the device's code in them, which must be of MLX's own version.
MLX_HALVES: Final = ("mlx-metal", "mlx-cpu")
_REQUIREMENT: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?\s*(?P<limits>[^;]*)(;(?P<marker>.*))?")
_PLATFORM: Final = re.compile(r"sys_platform == [\"'](?P<platform>\w+)[\"']")


def version_facts(*, constraints: Path = CONSTRAINTS) -> VersionFacts:
    return VersionFacts(
        splash=_installed(DISTRIBUTION),
        python=(sys.version_info.major, sys.version_info.minor),
        packages=tuple(_packages(_pinned(constraints))),
        control_wire=CONTROL_WIRE_VERSION,
        engine_wire=ENGINE_WIRE_VERSION,
    )


def required_here(requirement: str, *, platform: str = sys.platform) -> tuple[str, str] | None:
    """The name and the limits (`==1.2`, `>=3`) of a line of metadata; None when it is not for this system.

    Format: PEP 508, as far as this project uses it.
    """
    match = _REQUIREMENT.match(requirement)
    if match is None:
        return None
    marker = match["marker"] or ""
    named = _PLATFORM.search(marker)
    if "extra ==" in marker or (named is not None and named["platform"] != platform):
        return None
    return _normal(match["name"]), match["limits"].strip(" ()")


def _packages(pinned: Mapping[str, str]) -> Iterator[Package]:
    """Those of one version only, then those that were tested as one of a range."""
    for name, limits in _required():
        wanted = limits.removeprefix("==") if limits.startswith("==") else pinned.get(name)
        # A package for older Pythons only is required of nobody here, and not missing.
        if wanted is None or (_installed(name) is None and not limits.startswith("==")):
            continue
        yield Package(name, wanted, _installed(name), is_required=limits.startswith("=="))
        if name == "mlx":
            halves = ((half, _installed(half)) for half in MLX_HALVES)
            yield from (Package(half, wanted, found, is_required=True) for half, found in halves if found is not None)


def _required() -> Iterator[tuple[str, str]]:
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return
    yield from (found for line in lines if (found := required_here(line)) is not None)


def _pinned(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split("==", 1) for line in lines if "==" in line)
    return {_normal(name): wanted.strip() for name, wanted in pairs}


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip().lower()
