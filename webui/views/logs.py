"""The page *Logs*: newest lines first, with filter, pages of older ones, and whether new ones are followed.

It reads no file: control does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from control.wire import LOG_NAMES, LogEntry, LogLevel, LogName, LogPage
from webui import numbers
from webui.text import Text
from webui.views.shell import Shell, Tone

_NAME_TEXT: Final[dict[LogName, str]] = {"control": "logs.control", "engine": "logs.engine", "webui": "logs.webui"}
_LEVEL_TEXT: Final[dict[LogLevel, str]] = {
    "DEBUG": "logs.debug",
    "INFO": "logs.info",
    "WARNING": "logs.warning",
    "ERROR": "logs.error",
    "CRITICAL": "logs.critical",
}
_LEVEL_TONE: Final[dict[LogLevel, Tone]] = {"WARNING": "wait", "ERROR": "bad", "CRITICAL": "bad"}
_LEVEL_SIGN: Final[dict[Tone, str]] = {"wait": "!", "bad": "✕", "idle": ""}
# What a person looks for; a level stands for itself and everything above it.
CHOSEN_LEVELS: Final[dict[LogLevel, str]] = {"WARNING": "logs.from_warning", "ERROR": "logs.from_error"}

FOLLOW_EVERY_S: Final = 2
# A filter that fits little makes control read 8 MiB each time.
SEARCH_EVERY_S: Final = 10
# Source: control.admin.logs.
TEXT_LIMIT: Final = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What of which log. `before` None: the newest lines. `is_followed`: new ones are shown as they come."""

    name: LogName = "control"
    level: LogLevel | None = None
    text: str = ""
    before: str | None = None
    is_followed: bool = True

    @property
    def is_filtered(self) -> bool:
        return self.level is not None or bool(self.text)

    def path(self, *, live: bool = False, before: str | None = None, is_followed: bool = True) -> str:
        """The address of these lines, or of others like them."""
        query = {"level": self.level, "text": self.text, "before": before, "follow": None if is_followed else "off"}
        encoded = urlencode({name: value for name, value in query.items() if value})
        return f"/logs/{self.name}{'/live' if live else ''}{'?' if encoded else ''}{encoded}"


@dataclass(frozen=True, slots=True)
class Tab:
    label: str
    path: str
    is_present: bool


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Line:
    """`day` is set on the first line of each day, as the list goes; `moment` is date and time."""

    id: str
    day: str
    at: str
    moment: str
    level: str
    sign: str
    tone: Tone
    logger: str
    message: str
    more: str
    omitted: str


@dataclass(frozen=True, slots=True)
class LogsPage:
    """`problem` replaces the lines while control is silent; `end` says why the list ends where it does."""

    shell: Shell
    name: LogName
    tabs: tuple[Tab, ...]
    levels: tuple[Choice, ...]
    text: str
    text_limit: int
    lines: tuple[Line, ...]
    is_newest: bool
    is_followed: bool
    live_path: str
    live_every_s: int
    follow_path: str
    newest_path: str
    older_path: str | None
    older_label: str
    end: str
    empty: str
    size: str
    problem: str | None


def logs_page(shell: Shell, asked: Asked, page: LogPage | None, *, problem: str | None = None) -> LogsPage:
    """`page` None: it is not known, as `problem` says."""
    text = shell.text
    entries = page.entries if page is not None else ()
    older = page.older if page is not None else None
    is_cut_short = page is not None and page.is_cut_short
    searches_on = is_cut_short and asked.is_filtered
    return LogsPage(
        shell=shell,
        name=asked.name,
        tabs=tuple(_tab(name, asked, text) for name in LOG_NAMES),
        levels=_levels(asked, text),
        text=asked.text,
        text_limit=TEXT_LIMIT,
        lines=tuple(_lines(entries, text)),
        is_newest=asked.before is None,
        is_followed=asked.is_followed and asked.before is None,
        live_path=asked.path(live=True),
        live_every_s=SEARCH_EVERY_S if asked.is_filtered else FOLLOW_EVERY_S,
        follow_path=asked.path(is_followed=not asked.is_followed),
        newest_path=asked.path(),
        older_path=asked.path(before=older) if older is not None else None,
        older_label=text("logs.search_on") if searches_on else text("logs.older"),
        end=text("logs.searched") if searches_on else "" if older is not None else text("logs.begins"),
        empty=_empty(asked, page, text),
        size=numbers.size(page.size_bytes if page is not None else None),
        problem=problem,
    )


def _tab(name: LogName, asked: Asked, text: Text) -> Tab:
    path = Asked(name=name, level=asked.level, text=asked.text).path()
    return Tab(label=text(_NAME_TEXT[name]), path=path, is_present=name == asked.name)


def _levels(asked: Asked, text: Text) -> tuple[Choice, ...]:
    chosen = ((level, text(label)) for level, label in CHOSEN_LEVELS.items())
    return (
        Choice("", text("logs.from_all"), asked.level is None),
        *(Choice(level, label, asked.level == level) for level, label in chosen),
    )


def _lines(entries: Iterable[LogEntry], text: Text) -> Iterable[Line]:
    day_before = ""
    for entry in entries:
        day = text.local(entry.at_s).strftime("%Y-%m-%d") if entry.at_s is not None else day_before
        yield _line(entry, day if day != day_before else "", text)
        day_before = day


def _line(entry: LogEntry, day: str, text: Text) -> Line:
    tone = _LEVEL_TONE.get(entry.level, "idle") if entry.level is not None else "idle"
    at_s = entry.at_s
    return Line(
        id=entry.id,
        day=day,
        at=numbers.time_of_day(text, at_s) if at_s is not None else numbers.UNKNOWN,
        moment=text.local(at_s).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if at_s is not None else text("logs.no_time"),
        level=text(_LEVEL_TEXT[entry.level]) if entry.level is not None else "",
        sign=_LEVEL_SIGN[tone],
        tone=tone,
        logger=entry.logger or "",
        message=entry.message,
        more=entry.more,
        omitted=text.count("logs.omitted", entry.omitted_chars) if entry.omitted_chars else "",
    )


def _empty(asked: Asked, page: LogPage | None, text: Text) -> str:
    if page is None or page.entries:
        return ""
    if page.is_cut_short:
        return text("logs.none_yet")
    if asked.before is not None:
        return text("logs.not_kept")
    return text("logs.none_fits") if asked.is_filtered and page.size_bytes else text("logs.nothing")
