"""A table on the terminal, of cells that are shown as they are: no markup, no control characters.

It knows no process and no key.
"""

from collections.abc import Iterable, Sequence
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(table)


def printable(text: str) -> str:
    """On one line, without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else REPLACEMENT for character in text)
