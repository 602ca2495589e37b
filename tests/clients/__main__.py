"""`make clients`: the real Claude Code, Codex and opencode from npm against the gateway with the scripted engine.

    python -m tests.clients [--hold-s 330] [--only claude codex opencode]

It is not collected by pytest: it downloads about 1 GB the first time, and waits for minutes.
"""

import argparse
import platform
import shlex
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.clients.checks import Outcome, Run, connect, hold, overflow, task
from tests.clients.command_lines import CLAUDE, COMMAND_LINES, CommandLine, install
from tests.story.stack import Stack

ENGINE = Path(__file__).with_name("engine.py")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients")
    parser.add_argument("--hold-s", type=float, default=330, help="How long the model is away.")
    parser.add_argument("--only", nargs="+", choices=sorted(COMMAND_LINES), default=sorted(COMMAND_LINES))
    asked = parser.parse_args()
    clients = [COMMAND_LINES[name] for name in asked.only]
    install()
    with tempfile.TemporaryDirectory(prefix="splash-clients-") as folder:
        outcomes = checked(Path(folder), clients, asked.hold_s)
    num_failed = sum(bool(outcome.faults) for outcome in outcomes)
    show("all passed" if not num_failed else f"{num_failed} of {len(outcomes)} failed")
    return 1 if num_failed else 0


def checked(folder: Path, clients: list[CommandLine], hold_s: float) -> list[Outcome]:
    journal = folder / "journal.jsonl"
    words = [sys.executable, str(ENGINE), "--journal", str(journal)]
    stack = Stack(folder / "splash", engine_command=shlex.join(words))
    run = Run(stack, journal, folder / "homes")
    show(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.system()} {platform.machine()}, scripted engine")
    for client in clients:
        show(f"{client.package}: {client.version(folder)}")
    outcomes: list[Outcome] = []

    def note(*some: Outcome) -> None:
        outcomes.extend(some)
        for outcome in some:
            show(*outcome.lines())

    try:
        stack.up("demo")
        seats = {client.name: run.seat(client, client.name) for client in clients}
        for seat in seats.values():
            note(connect(run, seat))
            note(task(run, seat))
        # The gateway alone must keep a client alive; the client's settings are there in case.
        unset = [run.seat(client, f"{client.name}, own limits") for client in clients]
        for seat in unset:
            note(connect(run, seat, keeps_own_limits=True))
        note(*hold(run, [*seats.values(), *unset], hold_s))
        if CLAUDE.name in seats:
            note(overflow(run, seats[CLAUDE.name]))
    finally:
        stack.clean_up()
    return outcomes


def show(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
