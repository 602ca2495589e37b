"""`python -m tests.story.fault_table`: runs every cell of the fault matrix and writes the table of docs/reliability.md.

It writes nothing when a cell does not do what is expected; the rest of the document is written by hand.
"""

import sys
import tempfile
from datetime import date
from pathlib import Path

from tests.story.fault_cells import CELLS, Cell
from tests.story.fault_run import Seen, run
from tests.story.stack import ROOT

DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- The table: python -m tests.story.fault_table -->", "<!-- End of the table -->"
HEAD = ("fault", "a stream that ran", "a new request", "the console says", "`splash status`", "engine", "mended by")
MEASURED = ("noticed (s)", "mended (s)", "quit meanwhile (s)")
COMMANDS = {"by itself": "nothing: by itself", "continued": "SIGCONT"}


def expected_row(cell: Cell) -> tuple[str, ...]:
    """What stands in the document before the measured seconds."""
    expected = cell.expected
    is_command = not isinstance(cell.mend, str)
    mend = f"`splash {' '.join(cell.mend)}`" if is_command else COMMANDS[str(cell.mend)]
    if cell.fault == "slow":
        mend = "nothing to mend"
    return (
        f"{cell.process} {cell.fault}",
        expected.stream,
        expected.request,
        expected.page,
        expected.status,
        expected.engine,
        mend,
    )


def row(cell: Cell, seen: Seen) -> str:
    is_slow = cell.fault == "slow"
    quit_command = f" (`{' '.join(cell.quit)}`)"
    measured = (
        "–" if is_slow else f"{seen.noticed_s:.1f}",
        "–" if is_slow else f"{seen.mended_s:.1f}",
        f"{seen.quit_s:.1f}{quit_command}",
    )
    return f"| {' | '.join((*expected_row(cell), *measured))} |"


def written_rows(document: str) -> list[tuple[str, ...]]:
    """The rows of the table, without head and rule."""
    table = document.partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [tuple(word.strip() for word in line.strip("|").split("|")) for line in lines[1:]]


def main() -> int:
    rows = []
    for cell in CELLS:
        with tempfile.TemporaryDirectory() as folder:
            seen = run(cell, Path(folder).resolve())
        if seen.expected != cell.expected or seen.quit_code or seen.left:
            sys.stderr.write(f"{cell.name} is not as expected: {seen}\n")
            return 1
        rows.append(row(cell, seen))
        sys.stdout.write(f"{rows[-1]}\n")
    head = f"| {' | '.join((*HEAD, *MEASURED))} |"
    rule = "|---" * (len(HEAD) + len(MEASURED)) + "|"
    table = "\n".join([f"Measured on {date.today().isoformat()}, two slow cores, Linux.", "", head, rule, *rows])
    text = DOCUMENT.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
