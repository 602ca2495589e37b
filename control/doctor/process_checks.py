"""Checks of the processes and their records: what lives without a record, and which record is not true.

Pure: facts in, findings out. Nobody is signalled; a command that ends something is for the person to run.
"""

import shlex
from collections.abc import Iterator
from typing import Final

from control.doctor.facts import Facts, RecordFacts
from control.doctor.finding import Finding

# As long as `splash up` waits for a process that it has started.
START_LIMIT_S: Final = 20.0
MEMORY_STAYS: Final = "It holds memory and ports, and no command of Splash reaches it."
NEVER_SIGNALLED: Final = (
    "Splash never signals such a process; until the record is gone it stands in the way of a start."
)
ARTICLES: Final = {"engine": "An engine", "control": "A control", "webui": "A console"}


def process_findings(facts: Facts) -> Iterator[Finding]:
    for record in facts.records:
        yield from _record(facts, record)
    yield from _unrecorded(facts)
    yield from _silent_lock(facts)
    yield from _left_download(facts)
    yield from _halves(facts)
    yield from _orphans_of_gone_homes(facts)


def control_is_there(facts: Facts) -> bool:
    """Recorded or not: something serves, or would in a moment."""
    record = facts.record_of("control")
    is_recorded = record is not None and record.is_ours
    is_unrecorded = any(other.is_unrecorded and other.role == "control" for other in facts.others)
    return is_recorded or is_unrecorded or facts.lock is not None


def _record(facts: Facts, about: RecordFacts) -> Iterator[Finding]:
    file, record = shlex.quote(str(about.file)), about.record
    if record is None:
        if about.is_file:
            yield Finding(
                "damaged_record",
                "wrong",
                f"The record of {about.name}, {about.file}, can't be understood.",
                f"Without it nobody knows whether {about.name} runs, and as which process.",
                f"`rm {file}`, then `splash up`, which writes a new one.",
            )
    elif about.verdict == "gone" and about.pid_is_taken:
        yield Finding(
            "reused_pid",
            "wrong",
            f"The record of {about.name} names pid {record.pid}, which is another process by now.",
            "The process that wrote it was killed, or the machine restarted. Splash never signals the other one.",
            "`splash up` writes a new record; `splash quit` only removes it.",
        )
    elif about.verdict == "gone":
        yield Finding(
            "stale_record",
            "wrong",
            f"The record of {about.name} names pid {record.pid}, which has ended.",
            "It was killed, or the machine restarted: it had no time to remove its record.",
            "`splash up` starts it again; `splash quit` only removes the record.",
        )
    elif about.verdict == "ours":
        return
    elif not about.runs_for_home:
        yield Finding(
            "foreign_record",
            "wrong",
            f"The record of {about.name} names a process that is none of Splash: {about.reason}.",
            NEVER_SIGNALLED,
            f"`rm {file}`",
        )
    elif about.age_s >= START_LIMIT_S:
        yield _hanging(facts, about)


def _hanging(facts: Facts, about: RecordFacts) -> Finding:
    is_watched = about.name == "engine" and control_is_there(facts)
    return Finding(
        "not_answering",
        "warning" if is_watched else "wrong",
        f"{about.name} does not answer as it should: {about.reason}.",
        "Control ends an engine that stays so, and starts another." if is_watched else "It serves nobody like this.",
        "`splash logs engine` may say more." if is_watched else "`splash quit --force`, then `splash up`.",
    )


def _unrecorded(facts: Facts) -> Iterator[Finding]:
    for other in facts.others:
        pid = other.process.pid
        ports = facts.listening.get(pid, ())
        is_starting = not ports and facts.now_s - other.process.created_at_s < START_LIMIT_S
        if not other.is_unrecorded or is_starting:
            continue
        record = facts.record_of(other.role)
        named = None if record is None or record.record is None else record.record.pid
        instead = f"the record names pid {named}" if named is not None else "there is no record of it"
        yield Finding(
            "orphan",
            "wrong",
            f"{ARTICLES[other.role]} of this home runs as pid {pid}{_on(ports)}, and {instead}.",
            MEMORY_STAYS,
            f"`kill {pid}`",
        )


def _silent_lock(facts: Facts) -> Iterator[Finding]:
    """A control that the command lines did not show: started in another way, or by another user."""
    if facts.lock is None:
        return
    pid, record = facts.lock.pid, facts.record_of("control")
    is_recorded = record is not None and record.is_alive and record.record is not None and record.record.pid == pid
    is_seen = any(other.process.pid == pid for other in facts.others)
    if is_recorded or is_seen or facts.lock.age_s < START_LIMIT_S:
        return
    who = "Another process" if pid is None else f"pid {pid}"
    yield Finding(
        "orphan",
        "wrong",
        f"{who} holds the lock of this home's control, and the record does not name it.",
        MEMORY_STAYS,
        None if pid is None else f"`kill {pid}`",
    )


def _left_download(facts: Facts) -> Iterator[Finding]:
    for other in facts.others:
        if other.title == "engine fetch" and not control_is_there(facts):
            yield Finding(
                "left_download",
                "warning",
                f"pid {other.process.pid} downloads a model for this home, and no control waits for it.",
                "It ends by itself when it is done; what it has brought is kept, and a next download goes on there.",
                f"`kill {other.process.pid}`, if it was not you who started it.",
            )


def _halves(facts: Facts) -> Iterator[Finding]:
    """Some of the three run, and what they need does not."""
    running = {each.name for each in facts.records if each.is_ours}
    running |= {other.role for other in facts.others if other.is_unrecorded}
    if control_is_there(facts):
        if "webui" not in running:
            yield Finding(
                "no_console",
                "wrong",
                "Splash serves, and its console does not run.",
                "Requests go on; nobody sees them.",
                "`splash up` starts it, and touches nothing that runs.",
            )
        return
    if "webui" in running:
        yield Finding(
            "console_without_control",
            "wrong",
            "The console runs, and control does not.",
            "Nothing is served, and the console can show nothing.",
            "`splash up` brings control back; `splash quit` ends the console.",
        )
    if "engine" in running:
        yield Finding(
            "engine_without_control",
            "wrong",
            "The engine runs, and control does not: it was killed, or it crashed.",
            "The engine holds the model's memory, and no request reaches it.",
            "`splash up` brings control back, which takes the engine over with its weights; `splash quit` ends it.",
        )


def _orphans_of_gone_homes(facts: Facts) -> Iterator[Finding]:
    for part in facts.parts:
        if part.home in facts.gone_homes:
            yield Finding(
                "orphan_of_a_gone_home",
                "warning",
                f"{ARTICLES[part.role]} runs as pid {part.process.pid}"
                f"{_on(facts.listening.get(part.process.pid, ()))} for {part.home}, which is no more.",
                "It is not of this home, and nothing of Splash will end it.",
                f"`kill {part.process.pid}`, if nobody needs it.",
            )


def _on(ports: tuple[int, ...]) -> str:
    return "" if not ports else f" on port {', '.join(map(str, ports))}"
