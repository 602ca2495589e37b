"""A trace as a replay needs it: its events in order, the blocks of each request, sizes, and the speed of prefill.

It reads bytes, and replays nothing.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.blocks import BLOCK_TOKENS
from engine.trace.events import (
    AnyEvent,
    Began,
    Closed,
    Entered,
    ExtentSize,
    Opened,
    Rested,
    Sliced,
    SnapshotSize,
    TraceUnreadable,
    events_of,
    keys_of,
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of stored state. Of lengths that no snapshot had, between its neighbours, or the nearest one's."""

    bytes_per_token: int
    snapshots: tuple[tuple[int, int], ...]

    def extent_bytes(self, num_tokens: int) -> int:
        return self.bytes_per_token * num_tokens

    def snapshot_bytes(self, length: int) -> int:
        if not self.snapshots:
            return 0
        place = bisect_left(self.snapshots, (length,))
        if place < len(self.snapshots) and (place == 0 or self.snapshots[place][0] == length):
            return self.snapshots[place][1]
        if place == len(self.snapshots):
            return self.snapshots[-1][1]
        (shorter, less), (longer, more) = self.snapshots[place - 1], self.snapshots[place]
        return less + (more - less) * (length - shorter) // (longer - shorter)


@dataclass(frozen=True, slots=True)
class Speed:
    """Prefill as it was measured: a token at position p takes fixed_ms + p * growing_ms."""

    fixed_ms: float
    growing_ms: float

    def seconds(self, start: int, end: int) -> float:
        """Of tokens [start, end)."""
        return (self.fixed_ms * (end - start) + self.growing_ms * (end**2 - start**2) / 2) / 1000


class Trace:
    """Raises TraceUnreadable when it is no trace, or one that this version can't replay."""

    def __init__(self, content: bytes) -> None:
        events = list(events_of(content))
        if not events or not isinstance(events[0], Opened):
            raise TraceUnreadable("its first event is missing")
        self.opened: Opened = events[0]
        if self.opened.block_tokens != BLOCK_TOKENS:
            raise TraceUnreadable(f"it has blocks of {self.opened.block_tokens} tokens, this version {BLOCK_TOKENS}")
        self.events: Sequence[AnyEvent] = events[1:]
        self.sizes = _sizes(self.opened, self.events)
        self.speed = _speed([event for event in self.events if isinstance(event, Sliced)])
        self.is_whole = isinstance(events[-1], Closed)
        self._parents: dict[bytes, bytes] = {}
        self._know_all()

    @classmethod
    def read(cls, file: Path) -> "Trace":
        """Raises TraceUnreadable, OSError."""
        return cls(file.read_bytes())

    @property
    def seconds(self) -> float:
        last = self.events[-1] if self.events else None
        return getattr(last, "at_ms", 0.0) / 1000

    @property
    def num_blocks(self) -> int:
        """Different blocks of all sequences."""
        return len(self._parents)

    def chain(self, known: bytes, new_keys: bytes) -> list[bytes]:
        """All blocks of a sequence, from its first."""
        before: list[bytes] = []
        while known:
            before.append(known)
            known = self._parents[known]
        return [*reversed(before), *keys_of(new_keys)]

    def _know_all(self) -> None:
        blocks = self.opened.state.blocks
        for block in blocks:
            self._parents[block.key] = blocks[block.parent].key if block.parent >= 0 else b""
        ends: dict[int, bytes] = {}
        for event in self.events:
            if isinstance(event, Began | Entered):
                before = event.known
            elif isinstance(event, Rested):
                before = ends.get(event.request, b"")
            else:
                continue
            if before and before not in self._parents:
                raise TraceUnreadable("a block is named that no event has brought")
            for key in keys_of(event.new_keys):
                self._parents.setdefault(key, before)
                before = key
            ends[event.request] = before


def _sizes(opened: Opened, events: Sequence[AnyEvent]) -> Sizes:
    known = opened.state
    per_token = [event.bytes_per_token for event in events if isinstance(event, ExtentSize)]
    per_token += [each.nbytes // (len(each.blocks) * BLOCK_TOKENS) for each in known.extents[:1]]
    snapshots = {each.length: each.nbytes for each in known.snapshots}
    snapshots |= {event.length: event.nbytes for event in events if isinstance(event, SnapshotSize)}
    return Sizes(per_token[0] if per_token else 0, tuple(sorted(snapshots.items())))


def _speed(slices: Sequence[Sliced]) -> Speed:
    """Least squares over the slices, time against the position of their middle, each slice by its tokens."""
    weight = sum(each.end - each.start for each in slices)
    if not weight:
        return Speed(0.0, 0.0)
    points = [
        ((each.start + each.end) / 2, each.took_ms / (each.end - each.start), each.end - each.start) for each in slices
    ]
    middle = sum(position * tokens for position, _, tokens in points) / weight
    mean = sum(cost * tokens for _, cost, tokens in points) / weight
    spread = sum(tokens * (position - middle) ** 2 for position, _, tokens in points)
    together = sum(tokens * (position - middle) * (cost - mean) for position, cost, tokens in points)
    growing = max(0.0, together / spread) if spread else 0.0
    fixed = mean - growing * middle
    return Speed(fixed, growing) if fixed > 0 else Speed(mean, 0.0)
