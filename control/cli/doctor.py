"""`splash doctor`: what is wrong, why that matters, and the command that mends it; as text, or as one JSON object.

It finds and judges nothing itself: that is `control.doctor`.
"""

from typing import Any, Final

import msgspec

from control.cli.sizes import size_text
from control.cli.tables import print_facts
from control.doctor.examination import examine, is_well
from control.doctor.facts import EngineMemory, Facts, MachineFacts
from control.doctor.finding import Finding

UNKNOWN_LIMIT: Final = "unknown while no engine runs"
DEVICES: Final = {"metal": "Metal", "cuda": "the GPU"}


def report(facts: Facts) -> dict[str, Any]:
    """As `splash doctor --json` prints it. `ok`: nothing is wrong; warnings do not count."""
    findings = examine(facts)
    machine = facts.machine
    return {
        "ok": is_well(findings),
        "home": str(facts.home.root),
        "findings": [msgspec.to_builtins(finding) for finding in findings],
        "machine": {
            "total_bytes": machine.total_bytes,
            "available_bytes": machine.available_bytes,
            "swap_used_bytes": machine.swap_used_bytes,
            "engine_limit_bytes": None if machine.engine is None else machine.engine.limit_bytes,
            "engine_device": None if machine.engine is None else machine.engine.device,
            "working_set_bytes": None if machine.engine is None else machine.engine.working_set_bytes,
            "iogpu_wired_limit_mb": machine.wired_limit_mib,
            "users": [msgspec.to_builtins(user) for user in machine.users],
            "home_free_bytes": facts.home.free_bytes,
            "models_folder": str(facts.home.models_folder),
            "models_free_bytes": facts.home.models_free_bytes,
            "starts_at_login": bool(machine.login),
        },
        "versions": {
            "splash": facts.versions.splash,
            "python": ".".join(map(str, facts.versions.python)),
            "packages": {package.name: package.installed for package in facts.versions.packages},
        },
    }


def show(facts: Facts) -> None:
    """At 80 columns; what is wrong first, then the machine's figures."""
    findings = examine(facts)
    for finding in findings:
        print_facts([(finding.level, _text(finding))])
    if findings:
        print_facts([("", "")])
    print_facts([*_figures(facts), ("verdict", _verdict(findings))])


def _text(finding: Finding) -> str:
    lines = [finding.what, finding.why]
    if finding.mend is not None:
        lines.append(f"Mend: {finding.mend}")
    return "\n".join(lines)


def _verdict(findings: tuple[Finding, ...]) -> str:
    num_wrong = sum(finding.level == "wrong" for finding in findings)
    num_warnings = len(findings) - num_wrong
    warned = f"{num_warnings} {'warning' if num_warnings == 1 else 'warnings'}" if num_warnings else ""
    if num_wrong:
        beside = f", and {warned}" if warned else ""
        return f"{num_wrong} {'thing is' if num_wrong == 1 else 'things are'} wrong{beside}. Nothing was changed."
    return f"Nothing is wrong; {warned}." if warned else "Nothing is wrong."


def _figures(facts: Facts) -> list[tuple[str, str]]:
    home, machine = facts.home, facts.machine
    figures = [
        ("home", f"{home.root}{'' if home.is_there else ' (not made yet: nothing was started)'}"),
        ("memory", _memory(machine)),
        ("largest", _users(machine)),
        ("for the engine", _engine_memory(machine.engine)),
        ("GPU limit", None if machine.wired_limit_mib is None else _wired(machine.wired_limit_mib)),
        ("disk", _disk(facts)),
        ("at login", "starts" if machine.login else None),
        ("versions", _versions(facts)),
    ]
    return [(label, text) for label, text in figures if text]


def _memory(machine: MachineFacts) -> str:
    said = f"{size_text(machine.available_bytes)} of {size_text(machine.total_bytes)} available"
    return f"{said}, {size_text(machine.swap_used_bytes)} paged out" if machine.swap_used_bytes else said


def _engine_memory(engine: EngineMemory | None) -> str:
    if engine is None or engine.limit_bytes is None:
        return UNKNOWN_LIMIT
    said = size_text(engine.limit_bytes)
    if engine.working_set_bytes is None:
        return said
    return f"{said}; {DEVICES[engine.device or '']} recommends {size_text(engine.working_set_bytes)} at most"


def _users(machine: MachineFacts) -> str:
    return ", ".join(
        f"{user.name} {size_text(user.resident_bytes)}{f' ({user.num_processes}×)' if user.num_processes > 1 else ''}"
        for user in machine.users
    )


def _wired(limit_mib: int) -> str:
    return "macOS chooses (iogpu.wired_limit_mb 0)" if limit_mib == 0 else f"iogpu.wired_limit_mb {limit_mib:,}"


def _disk(facts: Facts) -> str:
    home = facts.home
    free = "unknown" if home.free_bytes is None else f"{size_text(home.free_bytes)} free for the home"
    if home.models_free_bytes is None:
        return free
    return f"{free}, {size_text(home.models_free_bytes)} for models ({home.models_folder})"


def _versions(facts: Facts) -> str:
    versions = facts.versions
    named = [("Splash", versions.splash), ("Python", ".".join(map(str, versions.python)))]
    named += [(package.name, package.installed) for package in versions.packages if package.is_required]
    return ", ".join(f"{name} {found or 'missing'}" for name, found in named)
