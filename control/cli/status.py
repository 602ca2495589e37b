"""`splash status`: every process of this home, whether it is really ours, and the memory that it holds.

It changes nothing; a stale record is shown as stale, and a process that no record names is shown as unrecorded.
"""

import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from control.cli.admin_client import AdminClient
from control.cli.processes import Found, find
from control.cli.replacing import settings_now
from control.cli.sizes import size_text
from control.cli.tables import print_facts, print_table
from control.cli.words import requests, requests_that
from control.command_errors import CommandFailed, UsageWrong
from control.doctor.process_table import Other, UserProcess, others, user_processes
from control.home import PROCESS_NAMES, Home
from control.identity import Identity, listening_address, resident_bytes, runs_for
from control.lan import lan_urls
from control.loopback import EVERY_ADDRESS
from control.misplaced import misplaced
from control.services.choice import manager_of
from control.wire import CacheStatus, EngineView, Overview
from engine.wire import ProcessRecord

MIB: Final = 1024**2
STATE_BY_VERDICT: Final = {
    "ours": "running",
    "gone": "stale",
    "closed": "not listening",
    "silent": "not answering",
    "stranger": "not ours",
}
NOT_RUNNING_STATES: Final = ("stopped", "stale")
MINUTE_S: Final = 60
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S

Report = dict[str, dict[str, Any]]


def status(home: Home, processes: Callable[[], Iterable[UserProcess]] = user_processes) -> Report:
    """One entry per process, in the form that `splash status --json` prints.

    The `others` of an entry are its helpers, and those of its kind that no record names.
    """
    found = {name: find(home, name) for name in PROCESS_NAMES}
    overview = _overview(home, found["control"])
    report: Report = {name: _process(home, found[name]) for name in ("control", "webui", "engine")}
    holder = None if found["control"].is_alive else home.holder_of("control")
    if holder is not None:
        reason = f"{holder} has left no record of itself"
        report["control"] = {"pid": holder.pid, "port": None, "state": "not answering", "reason": reason}
    control, engine = found["control"].record, report["engine"]
    if found["control"].is_ours and control is not None:
        api_port = control.ports.get("api", control.port)
        report["control"] |= {"port": api_port, "admin_port": control.port, "lan": _lan(control, api_port)}
    if found["webui"].is_ours and found["webui"].record is not None:
        report["webui"]["lan"] = _lan(found["webui"].record, found["webui"].record.port)
    for each in misplaced(home, settings_now(home)):
        report[each.name]["misplaced"] = f"listens at {each.listens_at}, and the settings say {each.wanted}"
    starter = home.holder_of("up")
    report["control"]["starter_pid"] = None if starter is None else starter.pid
    engine |= {"model": None, "settings": None, "cache": None}
    if overview is not None:
        report["control"] |= {"api": overview.api_base, "quitting": overview.quitting, "leaving": overview.leaving}
        _add_engine(engine, overview)
    recorded = {
        name: each.record.pid for name, each in found.items() if each.record is not None and _is_ours(each, home)
    }
    if holder is not None and holder.pid is not None:
        recorded["control"] = holder.pid
    _add_others(report, others(processes(), home.root, recorded))
    return report


def table(report: Report) -> None:
    """Narrow columns only; what takes words stands below, so that 80 columns are enough."""
    print_table(("process", "state", "pid", "port", "memory", "age"), _rows(report))
    print_facts(facts(report))


def facts(report: Report) -> list[tuple[str, str]]:
    """What a person wants to know beside the table, each with its label."""
    engine = report["engine"]
    found = [(name, entry["reason"]) for name, entry in report.items() if entry.get("reason")]
    if not is_running(report):
        found.append(("hint", _start_text(report)))
    if any(other["is_unrecorded"] for entry in report.values() for other in entry.get("others", ())):
        found.append(("unrecorded", "no record names it; `splash doctor` says how to end it"))
    found += [
        ("leaving", _leaving_text(report)),
        ("address", _address_text(report)),
        ("quitting", _ending_text(report) if report["control"].get("quitting") else None),
        ("draining", _ending_text(report) if _is_draining(report) else None),
        ("requests", _waiting_text(report)),
        ("API", report["control"].get("api")),
        ("LAN", _lan_text(report)),
        ("model", engine.get("model") or _unloaded_text(engine)),
        ("settings", _settings_text(engine.get("settings"))),
        ("cache", (engine.get("cache") or {}).get("text")),
        (
            "self-tests",
            ", ".join(engine.get("failed_tests", ())) and f"not passed: {', '.join(engine['failed_tests'])}",
        ),
        ("error", engine.get("error")),
        ("verified", ", ".join(name for name, entry in report.items() if entry.get("identity") == "ours")),
        ("managers", _by_name(report, "manager")),
        ("version", _by_name(report, "version")),
    ]
    return [(label, text) for label, text in found if text]


def _rows(report: Report) -> Iterator[tuple[str, ...]]:
    for name, entry in report.items():
        yield _row(name, entry)
        for other in entry.get("others", ()):
            state = "unrecorded" if other["is_unrecorded"] else "helper"
            yield _row(f"└ {other['name']}", other | {"state": state, "port": None})


def _row(name: str, entry: dict[str, Any]) -> tuple[str, ...]:
    memory = entry.get("memory_bytes")
    return (
        name,
        entry["state"],
        str(entry["pid"] or ""),
        str(entry["port"] or ""),
        "" if memory is None else f"{memory / MIB:,.0f} MiB",
        "" if entry.get("uptime_s") is None else age_text(entry["uptime_s"]),
    )


def age_text(age_s: float) -> str:
    """Two units at most: `5 s`, `12 min`, `3 h 5 min`, `12 d 3 h`."""
    seconds = max(int(age_s), 0)
    if seconds < MINUTE_S:
        return f"{seconds} s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S} min"
    if seconds < DAY_S:
        return f"{seconds // HOUR_S} h {seconds % HOUR_S // MINUTE_S} min"
    return f"{seconds // DAY_S} d {seconds % DAY_S // HOUR_S} h"


def _by_name(report: Report, field: str) -> str:
    """`0.1.0` when it is the same for all that run, else `0.2.0 (control, webui), 0.1.0 (engine)`."""
    names: dict[str, list[str]] = {}
    for name, entry in report.items():
        if entry.get(field):
            names.setdefault(entry[field], []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return ", ".join(f"{value} ({', '.join(found)})" for value, found in names.items())


def _is_ours(found: Found, home: Home) -> bool:
    """A record alone could name anybody, whose children are none of ours."""
    return found.is_ours or (found.is_alive and found.record is not None and runs_for(found.record, home.root))


def _add_others(report: Report, found: Iterable[Other]) -> None:
    found = tuple(found)
    for name in PROCESS_NAMES:
        report[name]["others"] = [_other(each) for each in found if each.role == name]


def _other(other: Other) -> dict[str, Any]:
    return {
        "name": other.title,
        "pid": other.process.pid,
        "is_unrecorded": other.is_unrecorded,
        "memory_bytes": other.process.resident_bytes,
        "uptime_s": round(max(time.time() - other.process.created_at_s, 0.0), 1),
    }


def _settings_text(settings: dict[str, Any] | None) -> str | None:
    if settings is None:
        return None
    kv = "as the model computes it" if settings["kv_bits"] is None else f"in {settings['kv_bits']} bits"
    said = [f"context {settings['context']:,} tokens, kept {kv}"]
    if settings["max_gap_ms"] is not None:
        said.append(f"longest gap {settings['max_gap_ms']:g} ms, share of running streams {settings['decode_share']:g}")
    return "; ".join(said)


def is_running(report: Report) -> bool:
    """Without control nothing is served, whatever else is up."""
    return report["control"].get("state") not in NOT_RUNNING_STATES


def _start_text(report: Report) -> str:
    starter = report["control"].get("starter_pid")
    if starter is not None:
        return f"pid {starter} is starting it"
    is_rest_up = any(entry.get("state") not in NOT_RUNNING_STATES for entry in report.values())
    return "`splash up` brings control back; what else runs goes on" if is_rest_up else "`splash up` starts it"


def _is_draining(report: Report) -> bool:
    return report["engine"].get("state") == "draining" and not report["control"].get("quitting")


def _ending_text(report: Report) -> str:
    """No command needs to wait for it: control carries it out."""
    num_running = report["engine"].get("running", 0)
    said = f"{requests_that(num_running, 'run')} to the end first; " if num_running else ""
    return f"{said}it goes on by itself"


def _leaving_text(report: Report) -> str | None:
    if not report["control"].get("leaving"):
        return None
    num_running = report["engine"].get("running", 0)
    starter = report["control"].get("starter_pid")
    then = "`splash up` waits for that and starts the next" if starter is None else f"pid {starter} starts the next"
    return f"waits for {requests(num_running)} to finish; {then}"


def _address_text(report: Report) -> str | None:
    """Which of them listen elsewhere than the settings say."""
    found = [f"{name} {entry['misplaced']}" for name, entry in report.items() if entry.get("misplaced")]
    return f"{'; '.join(found)}; `splash up` puts that right" if found else None


def _lan(record: ProcessRecord, port: int) -> tuple[str, ...]:
    """What other machines call it by, when it listens for them, whatever the settings say by now."""
    return lan_urls(port) if listening_address(record, port) in EVERY_ADDRESS.values() else ()


def _lan_text(report: Report) -> str | None:
    """The console is open only beside the API; without control it can have been left so."""
    api, console = report["control"].get("lan"), report.get("webui", {}).get("lan")
    if not api:
        return f"the console only: {', '.join(console)}" if console else None
    said = f"on: {', '.join(f'{url}/v1' for url in api)}"
    return f"{said}; console {', '.join(console)}" if console else said


def _waiting_text(report: Report) -> str | None:
    engine = report["engine"]
    num_waiting = engine.get("waiting", 0)
    if not num_waiting:
        return None
    said = requests_that(num_waiting, "wait")
    is_unloaded = engine.get("state") == "unloaded" and not report["control"].get("quitting")
    if not is_unloaded:
        return said
    return f"{said}; `{_load_command(engine)}` lets {'it' if num_waiting == 1 else 'them'} go on"


def _unloaded_text(engine: dict[str, Any]) -> str | None:
    last = engine.get("last_model")
    if engine.get("state") != "unloaded" or last is None:
        return None
    return f"none; the last was {last}, `{_load_command(engine)}` brings it back"


def _load_command(engine: dict[str, Any]) -> str:
    return f"splash load {shlex.quote(engine.get('last_model') or 'MODEL')}"


def _process(home: Home, found: Found) -> dict[str, Any]:
    record, identity = found.record, found.identity
    if record is None or identity is None:
        return {"pid": None, "port": None, "state": "stopped"}
    state = STATE_BY_VERDICT[identity.verdict]
    if not identity.is_alive:
        return {"pid": None, "port": None, "state": state, "reason": _end_text(home, record, identity)}
    entry: dict[str, Any] = {
        "pid": record.pid,
        "port": record.port,
        "state": state,
        "identity": identity.verdict,
        "memory_bytes": resident_bytes(record),
        "uptime_s": round(time.time() - record.started_at_s, 1),
        "manager": record.manager,
        "version": record.version,
    }
    return entry if identity.is_ours else entry | {"reason": identity.reason}


def _end_text(home: Home, record: ProcessRecord, identity: Identity) -> str:
    """Nobody told it to end, for then it has no record; its manager may know how it did."""
    if record.name == "engine":
        return identity.reason
    try:
        end = manager_of(home, record).last_end(record.name)
    except UsageWrong:
        return identity.reason
    return identity.reason if end is None else f"{identity.reason}: {end.reason}, as launchd says"


def _overview(home: Home, control: Found) -> Overview | None:
    if not control.is_ours or control.record is None:
        return None
    try:
        return AdminClient(home, control.record).overview()
    except CommandFailed:
        return None


def _add_engine(entry: dict[str, Any], overview: Overview) -> None:
    """What control knows of the engine's life goes before what its record says."""
    view = overview.engine
    entry |= {
        "state": view.state,
        "model": view.model.id if view.model is not None else view.model_name,
        "last_model": view.last_model,
        "error": view.error,
        "restarts": view.restarts,
        "running": sum(slot is not None for slot in overview.slots),
        "waiting": len(overview.waiting),
    }
    if view.state == "loading":
        # Control vouches for it: an engine that is just starting has no port yet.
        entry.pop("reason", None)
    entry["settings"] = _settings(view)
    entry["cache"] = None if view.cache is None else _cache(view.cache)
    entry["failed_tests"] = [test.name for test in view.self_tests if not test.passed]
    if view.memory_actual is not None:
        entry["device_bytes"] = view.memory_actual.active_bytes


def _settings(view: EngineView) -> dict[str, Any] | None:
    """What the loaded model runs with; None without one."""
    if view.model is None:
        return None
    return {
        "context": view.model.maximum_context_tokens,
        "kv_bits": None if view.layout is None else view.layout.kv_bits,
        "max_gap_ms": None if view.promises is None else view.promises.max_gap_ms,
        "decode_share": None if view.promises is None else view.promises.decode_share,
    }


def _cache(cache: CacheStatus) -> dict[str, Any]:
    """`hit_rate` is of tokens; None before the first prompt. `text` is the same for a person; None: nothing to say yet.

    The budget of an engine that has just loaded is not known before its first step.
    """
    is_known = cache.is_on and cache.lookup_tokens > 0
    hit_rate = round(cache.hit_rate, 4) if is_known else None
    return {
        "is_on": cache.is_on,
        "off_reason": None if cache.is_on else cache.reason,
        "hit_rate": hit_rate,
        "used_bytes": cache.used_bytes,
        "budget_bytes": cache.budget_bytes,
        "text": _cache_text(cache, hit_rate),
    }


def _cache_text(cache: CacheStatus, hit_rate: float | None) -> str | None:
    if not cache.is_on:
        return f"off: {cache.reason}"
    said = "no prompt yet" if hit_rate is None else f"hit rate {hit_rate:.1%}"
    if not cache.budget_bytes:
        return None if hit_rate is None else said
    return f"{said}, {size_text(cache.used_bytes)} of {size_text(cache.budget_bytes)}"
