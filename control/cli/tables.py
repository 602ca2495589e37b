"""A table on the terminal, of cells that are shown as they are: no markup, no control characters.

It knows no process and no key.
"""

from collections.abc import Iterable, Sequence
from typing import Final

# A line before each cell, and a space on either side of it.
BORDER_WIDTH: Final = 3
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """One a row, its label first; long ones go on below themselves, whole lines where the text has several."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(Text(printable(label)), Text("\n".join(printable(line) for line in text.splitlines())))
    Console().print(grid)


def has_room(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the table would be shown without shortening or breaking a cell."""
    from rich.console import Console

    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    return sum(widths) + BORDER_WIDTH * len(widths) + 1 <= Console().width


def printable(text: str) -> str:
    """On one line, without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else REPLACEMENT for character in text)
