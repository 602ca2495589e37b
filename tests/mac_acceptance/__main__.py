"""`make mac-acceptance [MODEL=…]`: what only a Mac can show of Splash, as far as a program can look.

    python -m tests.mac_acceptance [MODEL] [--file RESULT.md]

It uses a temporary home and free ports, and ends what it started. The rest is done by hand: docs/mac-acceptance.md.
"""

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from control.services.launchctl import find_launchctl
from tests.mac_acceptance.checks import CHECKS, Check
from tests.mac_acceptance.stage import NotTried, Stage
from tests.story.stack import Stack

Verdict = Literal["passed", "FAILED", "not tried"]


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    verdict: Verdict
    words: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mac_acceptance")
    parser.add_argument("model", nargs="?", help="A folder or a Hugging Face id; without it, the demo.")
    parser.add_argument("--file", type=Path, help="Write the table there, too.")
    asked = parser.parse_args()
    launchctl = find_launchctl()
    if sys.platform != "darwin" or launchctl is None:
        sys.stderr.write(f"This is {platform.system()}; a Mac is needed.\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="splash-acceptance-") as folder:
        stage = Stage(Stack(Path(folder) / "Splash & 试用"), launchctl, asked.model)
        lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.platform()}, {stage.model}", "", *HEAD]
        print("\n".join(lines))
        results = []
        for result in carried_out(stage, CHECKS):
            results.append(result)
            lines.append(row(result))
            print(lines[-1], flush=True)
    if asked.file is not None:
        asked.file.write_text("\n".join([*lines, ""]))
    return int(any(result.verdict == "FAILED" for result in results))


def carried_out(stage: Stage, checks: Sequence[Check]) -> Iterator[Result]:
    """One after the other, whatever fails; nothing of it runs when the last is taken."""
    try:
        for check in checks:
            began = time.monotonic()
            verdict, words = _tried(check, stage)
            yield Result(check.__name__.replace("_", " "), verdict, words, time.monotonic() - began)
    finally:
        stage.quit()
        stage.stack.clean_up()


def _tried(check: Check, stage: Stage) -> tuple[Verdict, str]:
    try:
        return "passed", check(stage)
    except NotTried as reason:
        return "not tried", str(reason)
    # A check that breaks is a check that failed: the next one is another question.
    except Exception as error:
        return "FAILED", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


HEAD = ("| check | verdict | seen | s |", "|---|---|---|---|")


def row(result: Result) -> str:
    words = result.words.replace("|", "/")
    return f"| {result.name} | {result.verdict} | {words} | {result.seconds:.1f} |"


if __name__ == "__main__":
    sys.exit(main())
