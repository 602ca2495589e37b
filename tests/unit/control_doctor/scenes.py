"""Facts of a Splash that is well, to be spoilt by a test; and processes as a table of them has them."""

from dataclasses import replace
from pathlib import Path

from control.doctor.examination import examine
from control.doctor.facts import Facts, HomeFacts, MachineFacts, PathFacts, RecordFacts, VersionFacts
from control.doctor.process_table import UserProcess
from engine.wire import ProcessRecord

GIB = 2**30
HOME = Path("/homes/mine")
PIDS = {"control": 100, "webui": 101, "engine": 102}
PORTS = {"control": 18084, "webui": 18082, "engine": 18081}
NOW = 1_000_000.0


def record(name, **changes):
    fields = {
        "name": name,
        "pid": PIDS[name],
        "created_at_s": NOW - 3600,
        "nonce": f"nonce of {name}",
        "port": PORTS[name],
        "manager": "detached",
        "started_at_s": NOW - 3600,
        "version": "0.1.0",
    }
    return ProcessRecord(**(fields | changes))


def record_facts(name, **changes):
    fields = {
        "is_file": True,
        "record": record(name),
        "verdict": "ours",
        "reason": f"pid {PIDS[name]} on port {PORTS[name]}",
        "age_s": 3600.0,
        "pid_is_taken": True,
        "runs_for_home": True,
        "wire_version": 1,
    }
    return RecordFacts(name, HOME / "run" / f"{name}.json", **(fields | changes))


def nobody(name):
    return RecordFacts(name, HOME / "run" / f"{name}.json")


def well(**changes):
    """Everything runs, nothing is wrong. `records` by name change one record."""
    records = {name: record_facts(name) for name in PIDS} | changes.pop("records", {})
    paths = (
        PathFacts(HOME, 0o700, 0, is_folder=True),
        PathFacts(HOME / "secrets", 0o700, 0, is_folder=True, is_secret=True),
        PathFacts(HOME / "secrets" / "admin", 0o600, 0, is_folder=False, is_secret=True),
        PathFacts(HOME / "logs" / "control.log", 0o600, 0, is_folder=False),
    )
    facts = Facts(
        home=HomeFacts(
            HOME, paths=paths, free_bytes=50 * GIB, models_folder=Path("/models"), models_free_bytes=200 * GIB
        ),
        records=tuple(records.values()),
        machine=MachineFacts(total_bytes=128 * GIB, available_bytes=60 * GIB),
        versions=VersionFacts(splash="0.1.0", python=(3, 12)),
        now_s=NOW,
    )
    return replace(facts, **changes)


def checks(facts):
    """The name of each finding and its level."""
    return [(finding.check, finding.level) for finding in examine(facts)]


def process(pid, *words, parent=1, age_s=3600.0, **more):
    return UserProcess(
        pid=pid, parent_pid=parent, name=words[0] if words else "x", words=words, created_at_s=NOW - age_s, **more
    )


def engine_of(home, pid, *words, **more):
    return process(pid, "python", "-m", "engine", *words, "--home", str(home), **more)
