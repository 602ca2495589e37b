"""What a real client must manage: a task with a tool, a long hold, and (Claude Code) an overflow found after a hold.

Each check answers with what happened, in lines; it stops at nothing, so that one client's failure hides no other's.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.clients.command_lines import CommandLine
from tests.clients.words import AFTER_COMPACTION, GREETING, GREETING_ASKED, OUTPUT, OVERFLOW_ASKED, REPORT, TASK
from tests.story.stack import Stack, wait_until

FINISH_S: Final = 180.0
# Long enough for a held stream to begin: then no status is left to refuse it with.
STREAM_BEGINS_S: Final = 5.0
SHOWN: Final = 300
LIMIT: Final = re.compile("timeout", re.IGNORECASE)
TRAILING_COMMA: Final = re.compile(r",(\s*})")


@dataclass(slots=True)
class Outcome:
    """`faults` empty: passed."""

    client: str
    check: str
    faults: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    def expect(self, claim: bool, otherwise: str) -> None:
        if not claim:
            self.faults.append(otherwise)

    def lines(self) -> list[str]:
        verdict = "ok  " if not self.faults else "FAIL"
        return [
            f"{verdict}  {self.client:<20} {self.check:<9} {'; '.join(self.facts)}",
            *(f"      {fault}" for fault in self.faults),
        ]


@dataclass(frozen=True, slots=True)
class Seat:
    """A client with a home of its own; its key is called `name`, so that its rows are known."""

    client: CommandLine
    name: str
    home: Path

    def start(self, asked: str, *, goes_on: bool = False) -> "subprocess.Popen[str]":
        return self.client.start(asked, self.home, goes_on=goes_on)


@dataclass(frozen=True, slots=True)
class Run:
    """One Splash with its journal, and a home for each seat."""

    stack: Stack
    journal: Path
    homes: Path

    def seat(self, client: CommandLine, name: str) -> Seat:
        home = self.homes / name
        home.mkdir(parents=True)
        return Seat(client, name, home)

    def generated(self) -> list[str]:
        """The kinds of what the engine was asked to generate, in order."""
        if not self.journal.exists():
            return []
        return [json.loads(line)["kind"] for line in self.journal.read_text().splitlines()]

    def rows(self) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(f"file:{self.stack.home.root / 'splash.db'}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            return database.execute("select * from requests order by number").fetchall()

    def rows_of(self, seat: Seat) -> list[sqlite3.Row]:
        return [row for row in self.rows() if row["key"] == seat.name]


def connect(run: Run, seat: Seat, *, keeps_own_limits: bool = False) -> Outcome:
    """Its config, by the command that a person would type; then, if asked, without the long-wait settings."""
    outcome = Outcome(seat.name, "connect")
    order = ("connect", seat.client.name, "--write", "--json", "--key", seat.name)
    done = run.stack.splash(*order, HOME=str(seat.home))
    outcome.expect(done.returncode == 0, f"splash connect failed: {done.stderr.strip()[-SHOWN:]}")
    if done.returncode == 0:
        answer = json.loads(done.stdout)
        file = Path(answer["file"])
        outcome.facts += [f"wrote {file.relative_to(seat.home)}", f"context {answer['context']}"]
        if keeps_own_limits:
            text = file.read_text()
            file.write_text(without_limits(text))
            num_taken = len(text.splitlines()) - len(file.read_text().splitlines())
            outcome.expect(num_taken > 0, "there was no long-wait setting to take out")
            outcome.facts.append(f"{num_taken} long-wait setting(s) taken out again")
    return outcome


def without_limits(text: str) -> str:
    """A client's config as `splash connect` wrote it, where each setting has a line, but for the long-wait settings."""
    kept = [line for line in text.splitlines() if not LIMIT.search(line)]
    return TRAILING_COMMA.sub(r"\1", "\n".join(kept))


def task(run: Run, seat: Seat) -> Outcome:
    """Two turns: the model calls the client's shell, then tells what it printed."""
    outcome = Outcome(seat.name, "task")
    num_rows, num_generated = len(run.rows_of(seat)), len(run.generated())
    began_at = time.monotonic()

    said = finished(seat.start(TASK), FINISH_S)

    kinds = run.generated()[num_generated:]
    rows = run.rows_of(seat)[num_rows:]
    outcome.expect(REPORT in said and OUTPUT in said.split(REPORT)[-1], f"it printed: {said[-SHOWN:]!r}")
    outcome.expect([kind for kind in kinds if kind != "beside"] == ["call", "report"], f"the engine was asked: {kinds}")
    outcome.expect(len(rows) == len(kinds), f"{len(rows)} rows for {len(kinds)} requests")
    expect_completed(outcome, rows)
    outcome.expect("tool_calls" in [row["finish_reason"] for row in rows], "no row ended with a tool call")
    outcome.facts.append(f"{time.monotonic() - began_at:.1f} s")
    return outcome


def hold(run: Run, seats: list[Seat], hold_s: float) -> list[Outcome]:
    """Unloaded gracefully; every client asks, waits for `hold_s`, and is answered once after the model is back."""
    before = {seat.name: len(run.rows_of(seat)) for seat in seats}
    num_generated = len(run.generated())
    ran("unload", run.stack.splash("unload"))
    children = {seat.name: seat.start(GREETING_ASKED) for seat in seats}
    time.sleep(hold_s)
    gave_up = {name for name, child in children.items() if child.poll() is not None}
    ran("load", run.stack.splash("load", "demo"))
    back_at = time.monotonic()
    outcomes = []
    for seat in seats:
        outcome = Outcome(seat.name, "hold")
        said = finished(children[seat.name], FINISH_S)
        outcome.facts.append(f"held {hold_s:.0f} s, done {time.monotonic() - back_at:.1f} s after the model was back")
        outcome.expect(seat.name not in gave_up, f"it gave up before {hold_s:.0f} s")
        outcome.expect(GREETING in said, f"it printed: {said[-SHOWN:]!r}")
        expect_completed(outcome, run.rows_of(seat)[before[seat.name] :])
        outcomes.append(outcome)
    # A title that is asked for beside is held, too: more rows than clients are right, more greetings are not.
    greetings = run.generated()[num_generated:].count("greeting")
    for outcome in outcomes:
        outcome.expect(greetings == len(seats), f"{greetings} answers were generated for {len(seats)} clients")
    return outcomes


def overflow(run: Run, seat: Seat) -> Outcome:
    """The prompt is found too long only after a hold, when the stream has begun: the client must sum up and go on."""
    outcome = Outcome(seat.name, "overflow")
    finished(seat.start(GREETING_ASKED), FINISH_S)
    num_rows, num_generated = len(run.rows_of(seat)), len(run.generated())
    ran("unload", run.stack.splash("unload"))
    child = seat.start(OVERFLOW_ASKED, goes_on=True)
    wait_until(lambda: run.stack.overview().waiting, "its request to be held")
    time.sleep(STREAM_BEGINS_S)
    ran("load", run.stack.splash("load", "demo"))

    said = finished(child, FINISH_S)

    rows = run.rows_of(seat)[num_rows:]
    kinds = run.generated()[num_generated:]
    outcome.expect(AFTER_COMPACTION in said, f"it printed: {said[-SHOWN:]!r}")
    outcome.expect("compaction" in kinds, f"the engine was asked: {kinds}")
    outcome.facts.append(f"rows: {', '.join(outcomes_of(rows))}")
    return outcome


def expect_completed(outcome: Outcome, rows: list[sqlite3.Row]) -> None:
    outcome.expect(bool(rows) and all(row["outcome"] == "completed" for row in rows), f"outcomes: {outcomes_of(rows)}")
    outcome.facts.append(f"{len(rows)} row(s) completed, {', '.join(sorted({row['dialect'] for row in rows}))}")


def outcomes_of(rows: list[sqlite3.Row]) -> list[str]:
    return [f"{row['outcome']} {row['error_code'] or ''}".strip() for row in rows]


def finished(child: "subprocess.Popen[str]", limit_s: float) -> str:
    """What it printed; what it had printed when it had to be ended, with a word about that."""
    try:
        return child.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        return f"{child.communicate()[0]}\n(ended after {limit_s:.0f} s)"


def ran(what: str, done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, f"splash {what}: {done.stderr}"
