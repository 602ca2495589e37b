"""A log read from its end: pages of parsed lines, newest first, over the file and the one that it was turned over to.

It never reads a whole file, follows none and writes none. A page takes at most PAGE_BYTES apart, or with a filter
SEARCH_BYTES; where the next one begins is said by a place that stays true when the log is turned over. It blocks: call
it on a thread.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Final, cast, get_args

from control.wire import LogEntry, LogLevel, LogName, LogPage

PAGE_BYTES: Final = 512 * 1024
# A filter that fits little reads on for so long: 0.01 to 0.4 s, measured with a log of 200 MB.
SEARCH_BYTES: Final = 16 * PAGE_BYTES
# How far back the beginning of an entry is looked for; what is longer is taken apart anywhere.
BLOCK_BYTES: Final = PAGE_BYTES // 2
# Most pages are full long before: there are 200 lines in one of these.
STEP_BYTES: Final = 64 * 1024
# Of the first line, and of those that belong to it. What is longer loses its middle: the end of a traceback counts.
MESSAGE_LIMIT_CHARS: Final = 4_000
MORE_LIMIT_CHARS: Final = 16_000
# Escaped and with their fields, entries take a multiple of this at most.
PAGE_LIMIT_CHARS: Final = 256 * 1024

LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
# Format: `%(asctime)s %(levelname)s %(name)s %(message)s`; the engine puts a colon after the name.
_HEAD: Final = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (DEBUG|INFO|WARNING|ERROR|CRITICAL) ([\w.\-]{1,100}):? (.*)", re.DOTALL
)
_HEAD_BYTES: Final = re.compile(rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) ", re.MULTILINE)
# What terminals take for colours.
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_PLACE: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Filter:
    """`level`: that and above. `text`: in the line or what belongs to it, whatever the case; empty fits all."""

    level: LogLevel | None = None
    text: str = ""

    @property
    def levels(self) -> tuple[bytes, ...]:
        """Those that fit, as they stand in the file."""
        return tuple(level.encode() for level in LEVELS[LEVELS.index(self.level or LEVELS[0]) :])

    def may_fit(self, content: bytes) -> bool:
        """False: nothing in it fits, seen without taking it apart."""
        if self.level is not None and not any(level in content for level in self.levels):
            return False
        if self.text.isascii():
            return self.text.lower().encode() in content.lower()
        # Chinese has no cases; what has must be taken apart to be compared.
        return self.text.lower() != self.text.upper() or self.text.encode() in content

    def fits(self, lines: bytes) -> bool:
        """An entry as it stands in the file."""
        if self.level is not None:
            head = _HEAD_BYTES.match(lines)
            if head is None or head[1] not in self.levels:
                return False
        return not self.text or self.text.casefold() in lines.decode(errors="replace").casefold()


EVERYTHING: Final = Filter()


@dataclass(frozen=True, slots=True)
class Place:
    """A byte of a file, which goes on being that file when it gets another name."""

    file_id: int
    byte: int

    def __str__(self) -> str:
        return f"{self.file_id}-{self.byte}"

    @classmethod
    def parsed(cls, text: str) -> "Place | None":
        match = _PLACE.fullmatch(text)
        return None if match is None else cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Part of a file, from the beginning of an entry on, or as near to one as there is within a block."""

    begin: Place
    content: bytes


@dataclass(frozen=True, slots=True)
class _Shortened:
    text: str
    omitted_chars: int


@dataclass(frozen=True, slots=True)
class LogFile:
    path: Path
    id: int
    num_bytes: int


def log_files(file: Path) -> tuple[LogFile, ...]:
    """The log and what it was turned over to, as they are now, oldest first; those that are there."""
    found = []
    for path in (file.with_name(f"{file.name}.1"), file):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found.append(LogFile(path, status.st_ino, status.st_size))
    return tuple(found)


def read_page(
    name: LogName, file: Path, *, limit: int, before: Place | None = None, only: Filter = EVERYTHING
) -> LogPage:
    """The newest `limit` entries before that place. A log that is not there is empty. Raises OSError."""
    files = log_files(file)
    budget_bytes = PAGE_BYTES if only == EVERYTHING else SEARCH_BYTES
    entries: list[LogEntry] = []
    older: Place | None = None
    num_bytes = num_chars = 0
    for piece in _pieces_backwards(files, before):
        num_bytes += len(piece.content)
        older = piece.begin
        for begin, lines in _entries_backwards(piece) if only.may_fit(piece.content) else ():
            if not only.fits(lines):
                continue
            entries.append(_entry(begin, lines))
            num_chars += len(entries[-1].message) + len(entries[-1].more)
            if len(entries) == limit or num_chars >= PAGE_LIMIT_CHARS:
                older = begin
                break
        if len(entries) == limit or num_chars >= PAGE_LIMIT_CHARS or num_bytes > budget_bytes - BLOCK_BYTES:
            break
    has_older = older is not None and _has_before(files, older)
    return LogPage(
        name=name,
        entries=tuple(entries),
        older=str(older) if has_older else None,
        is_cut_short=has_older and len(entries) < limit,
        size_bytes=sum(each.num_bytes for each in files),
    )


def _has_before(files: Sequence[LogFile], place: Place) -> bool:
    """Files are oldest first."""
    if place.byte > 0:
        return True
    return place.file_id != files[0].id and any(each.num_bytes for each in files[:-1])


def _pieces_backwards(files: Sequence[LogFile], before: Place | None) -> Iterator[_Piece]:
    for file in reversed(files):
        end = file.num_bytes
        if before is not None:
            if before.file_id != file.id:
                continue
            end, before = min(end, before.byte), None
        try:
            stream = file.path.open("rb")
        except FileNotFoundError:
            continue
        with stream:
            while end > 0:
                piece = _piece(stream, file.id, end)
                yield piece
                end = piece.begin.byte


def _piece(stream: IO[bytes], file_id: int, end: int) -> _Piece:
    """The bytes before `end`: STEP_BYTES, and as many more, up to BLOCK_BYTES, as it takes to begin with an entry."""
    size = STEP_BYTES
    while True:
        size = min(size, BLOCK_BYTES, end)
        stream.seek(end - size)
        content = stream.read(size)
        head = None if size == end else _HEAD_BYTES.search(content, content.find(b"\n") + 1 or len(content))
        if size == end:
            skipped = 0
        elif head is not None:
            skipped = head.start()
        elif size < BLOCK_BYTES:
            size *= 2
            continue
        else:
            # Lines without a time; or a single one, which is taken apart wherever that may be.
            skipped = (content.find(b"\n") + 1) % len(content)
        return _Piece(Place(file_id, end - size + skipped), content[skipped:])


def _entries_backwards(piece: _Piece) -> Iterator[tuple[Place, bytes]]:
    begins = [match.start() for match in _HEAD_BYTES.finditer(piece.content)]
    if not begins or begins[0] > 0:
        begins.insert(0, 0)
    end = len(piece.content)
    for begin in reversed(begins):
        lines = piece.content[begin:end].rstrip()
        if lines:
            yield Place(piece.begin.file_id, piece.begin.byte + begin), lines
        end = begin


def _entry(begin: Place, lines: bytes) -> LogEntry:
    first, _, others = lines.decode(errors="replace").partition("\n")
    head = _HEAD.fullmatch(first)
    message = _shortened(first if head is None else head[4], MESSAGE_LIMIT_CHARS)
    more = _shortened(others, MORE_LIMIT_CHARS)
    return LogEntry(
        id=str(begin),
        at_s=None if head is None else _at_s(head[1]),
        level=None if head is None else cast(LogLevel, head[2]),
        logger=None if head is None else head[3],
        message=_visible(message.text),
        more=_visible(more.text),
        omitted_chars=message.omitted_chars + more.omitted_chars,
    )


def _shortened(text: str, limit: int) -> _Shortened:
    if len(text) <= limit:
        return _Shortened(text, 0)
    half = limit // 2
    return _Shortened(f"{text[:half]}…{text[-half:]}", len(text) - 2 * half)


def _visible(text: str) -> str:
    """Without colours; other characters that can't be seen are shown as Python writes them."""
    if text.isprintable():
        return text
    plain = _COLOUR.sub("", text)
    return "".join(each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in plain)


def _at_s(text: str) -> float | None:
    """Unix time of what the log wrote in this machine's zone; None for a date that never was."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
