"""A table on the terminal, of cells that are shown as they are: no markup, no control characters.

What goes to a file or a pipe has lines as long as they are. It knows no process and no key.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# A line before each cell, and a space on either side of it.
BORDER_WIDTH: Final = 3
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# Wider than anything that is printed: who reads a pipe line by line wants whole lines.
UNBROKEN_WIDTH: Final = 100_000

# A tuple is several lines.
Cell = str | tuple[str, ...]


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    from rich.table import Table

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    _console().print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """One a row, its label first; long ones go on below themselves, whole lines where the text has several."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(_text(label), _text(tuple(text.splitlines())))
    console = _console()
    with console.capture() as captured:
        console.print(grid)
    # Cells are filled up with spaces to the longest.
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def has_room(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the table would be shown without shortening or breaking a cell."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    return sum(widths) + BORDER_WIDTH * len(widths) + 1 <= _console().width


def printable(text: str) -> str:
    """On one line, without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else REPLACEMENT for character in text)


def _text(cell: Cell) -> "Text":
    from rich.text import Text

    return Text("\n".join(map(printable, (cell,) if isinstance(cell, str) else cell)))


def _console() -> "Console":
    from rich.console import Console

    is_unbroken = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=UNBROKEN_WIDTH if is_unbroken else None)
