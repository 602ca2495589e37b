"""What several commands say and read in the same words: how many requests do something, and one of a few choices.

It knows no command.
"""

from collections.abc import Sequence
from typing import TypeVar

from control.cli.tables import printable
from control.command_errors import UsageWrong

Choice = TypeVar("Choice", bound=str)


def requests_that(count: int, verb: str) -> str:
    """`1 request waits`, `2 requests wait`."""
    return f"{requests(count)} {verb}{'s' if count == 1 else ''}"


def requests(count: int) -> str:
    return counted(count, "request")


def counted(count: int, thing: str) -> str:
    """`1 block`, `2 blocks`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def one_of(text: str, choices: Sequence[Choice], what: str) -> Choice:
    """Raises UsageWrong, in our words: typer's own for a `Literal` are those of a library."""
    for choice in choices:
        if choice == text:
            return choice
    raise UsageWrong(f"{printable(text)!r} is not {what}: {', '.join(choices[:-1])} or {choices[-1]}.")
