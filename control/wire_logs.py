"""Lines of the logs of our processes, as the admin API answers them: a part of the door that `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only. Clients import `control.wire`.
"""

from typing import Final, Literal, get_args

from engine.wire import Frozen

LogName = Literal["control", "engine", "webui"]
LOG_NAMES: Final[tuple[LogName, ...]] = get_args(LogName)
# As Python's logging names them; a level stands for itself and everything above it.
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class LogEntry(Frozen, frozen=True, omit_defaults=False):
    """One line, with what belongs to it: `more` are the lines that followed without a time, as a traceback does.

    `id` is its place, the same in every answer. `at_s`, `level` and `logger` are None for lines that a program wrote
    without them. `omitted_chars` were left out of the middle, where there is a "…".
    """

    id: str
    at_s: float | None
    level: LogLevel | None
    logger: str | None
    message: str
    more: str = ""
    omitted_chars: int = 0


class LogPage(Frozen, frozen=True, omit_defaults=False):
    """GET /logs/{name}?before=ID&level=L&text=T&limit=N: newest first.

    `older` is the `before` of the next page; None: there is nothing older. `is_cut_short`: reading ended before there
    were N lines; older ones may match, too. `size_bytes` is of all that is kept of this log.
    """

    name: LogName
    entries: tuple[LogEntry, ...]
    older: str | None
    is_cut_short: bool
    size_bytes: int
