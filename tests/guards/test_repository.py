"""Guards: what the house style promises about the repository as a whole. Not about behaviour."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_SUFFIXES = {".py", ".html", ".css", ".js", ".command", ".jinja"}
VAGUE = re.compile(r"(^|/)(utils?|helpers?|common|misc|managers?)(\.py|/)")
SENDS_US_AWAY = re.compile(r"https?://[^ \"']*/simple\b")


def tracked_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def source_files() -> list[str]:
    return [
        name
        for name in tracked_files()
        if Path(name).suffix in SOURCE_SUFFIXES and "/vendor/" not in name and "/versions/" not in name
    ]


def imported_modules(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
    return modules


def test_no_source_file_is_longer_than_400_lines():
    too_long = {name: n for name in source_files() if (n := len((ROOT / name).read_text().splitlines())) > 400}

    assert too_long == {}


def test_no_file_or_folder_has_a_name_that_says_nothing():
    vague = [name for name in tracked_files() if VAGUE.search(name)]

    assert vague == []


def test_package_initialisers_are_empty():
    full = [name for name in tracked_files() if name.endswith("__init__.py") and (ROOT / name).read_text().strip()]

    assert full == []


@pytest.mark.parametrize(
    ("wire", "also_allowed"),
    [
        ("engine/wire.py", {"engine.wire_status", "engine.wire_prompt"}),
        ("engine/wire_prompt.py", {"engine.wire_status"}),
        ("engine/wire_status.py", set()),
        ("control/wire.py", {"engine.wire", *(f"control.{path.stem}" for path in ROOT.glob("control/wire_*.py"))}),
        *((path.relative_to(ROOT).as_posix(), {"engine.wire"}) for path in sorted(ROOT.glob("control/wire_*.py"))),
    ],
)
def test_a_door_carries_the_standard_library_and_msgspec_only(wire: str, also_allowed: set[str]):
    allowed = set(sys.stdlib_module_names) | {"msgspec"}

    outsiders = {m for m in imported_modules(ROOT / wire) if m.split(".")[0] not in allowed and m not in also_allowed}

    assert outsiders == set()


def test_nothing_tracked_names_a_registry_or_this_machine():
    here = str(ROOT.parent) + "/"
    guilty = []
    for name in tracked_files():
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        if SENDS_US_AWAY.search(text) or (len(here) > 2 and here in text):
            guilty.append(name)

    assert guilty == []


def test_every_dependency_is_pinned_to_one_version():
    pinned = {
        line.split("==")[0].strip().lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(w for group in project["optional-dependencies"].values() for w in group)]
    named = {re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-") for requirement in wanted}

    assert named - pinned == set()
