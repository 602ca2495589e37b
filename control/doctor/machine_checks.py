"""Checks of the machine and of what is installed on it: memory, macOS's own obstacles, versions.

Pure: facts in, findings out. The figures of a Mac were never seen on one.
"""

import shlex
from collections.abc import Iterator
from typing import Final

from control.doctor.facts import Facts, MachineFacts, RecordFacts, VersionFacts
from control.doctor.finding import Finding

GIB: Final = 2**30
# Below that much of the machine's memory, a pool shrinks and a load is refused that would fit otherwise.
LOW_MEMORY_SHARE: Final = 0.05
# macOS pages a little out even when there is no need.
SWAP_SHARE: Final = 0.02
NEWEST_PYTHON: Final = (3, 14)


def machine_findings(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    yield from _architecture(machine)
    yield from _quarantine(machine)
    yield from _wired_limit(machine)
    yield from _memory(machine)
    yield from _login(machine)


def version_findings(facts: Facts) -> Iterator[Finding]:
    yield from _packages(facts.versions)
    for record in facts.records:
        if record.is_ours:
            yield from _older(facts.versions, record)


def _architecture(machine: MachineFacts) -> Iterator[Finding]:
    if machine.is_translated:
        yield Finding(
            "wrong_architecture",
            "wrong",
            "This Python is made for Intel, and runs translated by Rosetta.",
            "MLX has no GPU there: a model would not load, or be slow beyond use.",
            "Remove `.venv` and make it anew with a Python for Apple silicon (`arch` must say arm64): `make env`.",
        )


def _quarantine(machine: MachineFacts) -> Iterator[Finding]:
    for path in machine.quarantined:
        yield Finding(
            "quarantine",
            "wrong",
            f"macOS has {path} in quarantine, as something from the internet.",
            "Gatekeeper refuses to start it from the Finder.",
            f"`xattr -dr com.apple.quarantine {shlex.quote(str(path))}`",
        )


def _wired_limit(machine: MachineFacts) -> Iterator[Finding]:
    if machine.wired_limit_mib:
        yield Finding(
            "wired_limit",
            "warning",
            f"The kernel's limit for GPU memory, iogpu.wired_limit_mb, is set to {machine.wired_limit_mib:,} MiB.",
            "Old recipes raise it; on a macOS of today it can lower what the GPU offers. Splash never sets it.",
            "`sudo sysctl iogpu.wired_limit_mb=0` gives the choice back to macOS, and so does a restart of the Mac.",
        )


def _memory(machine: MachineFacts) -> Iterator[Finding]:
    largest = next((user for user in machine.users if not user.is_ours), None)
    hint = None if largest is None else f"End what you don't need; {largest.name} holds the most."
    if machine.available_bytes < machine.total_bytes * LOW_MEMORY_SHARE:
        yield Finding(
            "low_memory",
            "warning",
            f"{machine.available_bytes / GIB:,.1f} GiB of {machine.total_bytes / GIB:,.1f} GiB memory are available.",
            "The prefix cache shrinks, and a larger model would be refused.",
            hint,
        )
    if machine.swap_used_bytes > machine.total_bytes * SWAP_SHARE:
        yield Finding(
            "swap",
            "warning",
            f"{machine.swap_used_bytes / GIB:,.1f} GiB are paged out to the disk.",
            "Memory was short. A model of which parts are paged out answers many times slower.",
            hint,
        )


def _login(machine: MachineFacts) -> Iterator[Finding]:
    for login in machine.login:
        if not login.program_is_there:
            what = "can't be read" if login.program is None else f"starts {login.program}, which is not there"
            yield Finding(
                "broken_login",
                "wrong",
                f"{login.file} {what}.",
                "Splash will not start when you log in; it was moved or removed.",
                "`splash login on` writes it anew, `splash login off` removes it.",
            )


def _packages(versions: VersionFacts) -> Iterator[Finding]:
    for package in versions.packages:
        if package.installed == package.wanted:
            continue
        is_wrong = package.is_required or package.installed is None
        has = "is not installed" if package.installed is None else f"is installed as {package.installed}"
        yield Finding(
            "wrong_version",
            "wrong" if is_wrong else "warning",
            f"{package.name} {has}; Splash was made and tested with {package.wanted}.",
            "The engine reaches into the inside of it, so that another version may break a model silently."
            if package.is_required
            else "Nobody has tried the two together.",
            "`make env` installs what is meant.",
        )
    if versions.splash is None:
        yield Finding(
            "not_installed",
            "wrong",
            "Splash is not installed in this Python.",
            "Nothing can tell its version, and its processes may not start.",
            "`make env`",
        )
    if versions.python > NEWEST_PYTHON:
        yield Finding(
            "untried_python",
            "warning",
            f"This is Python {'.'.join(map(str, versions.python))}.",
            f"Splash was tried with 3.11 to {'.'.join(map(str, NEWEST_PYTHON))}.",
            "`make env` with one of those, if something does not work.",
        )


def _older(versions: VersionFacts, about: RecordFacts) -> Iterator[Finding]:
    known = versions.engine_wire if about.name == "engine" else versions.control_wire
    command = f"`splash restart {about.name}`"
    if about.wire_version is not None and about.wire_version != known:
        yield Finding(
            "other_wire",
            "wrong",
            f"{about.name} speaks version {about.wire_version} of its language, and what is installed speaks {known}.",
            "Processes of Splash may not understand each other.",
            command,
        )
        return
    version = None if about.record is None else about.record.version
    if version and versions.splash is not None and version != versions.splash:
        yield Finding(
            "other_version",
            "warning",
            f"{about.name} runs as version {version}, and {versions.splash} is installed.",
            "It goes on with what it was started as; they understand each other.",
            f"{command}, when convenient{': it loads the model again' if about.name == 'engine' else ''}.",
        )
