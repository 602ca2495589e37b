"""A trace lived through once more by the very prefix cache that lived it: with its own budget, or with another.

It holds no tensor, runs no model and reads no file. What it can't know: with another budget the scheduler might have
ordered requests otherwise, and a client might have asked sooner.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.blocks import BLOCK_TOKENS, TokenBlocks
from engine.prefix.boundaries import Policy
from engine.prefix.cache import PrefixCache
from engine.prefix.index import Piece
from engine.prefix.state import index_from
from engine.replay.trace import Trace
from engine.request import NO_MARKS, PromptMarks
from engine.trace.events import Began, Budgeted, Cleared, Entered, Left, Rested, Sliced, keys_of
from engine.wire import RequestClass, SnapshotKind


class NamedBlocks(TokenBlocks):
    """Blocks of which only the names are known: a block's tokens are its name."""

    __slots__ = ("_length",)

    def __init__(self, keys: Iterable[bytes], length: int) -> None:
        super().__init__()
        self.keys.extend(keys)
        self._length = length

    @property
    def length(self) -> int:
        return self._length

    def grow(self, keys: Iterable[bytes], length: int) -> None:
        self.keys.extend(keys)
        self._length = max(self._length, length)

    def content(self, block: int) -> bytes:
        return self.keys[block]

    def tail(self, block: int) -> tuple[int, ...]:
        return ()


@dataclass(slots=True)
class Again:
    """A request of the trace that is lived through again. `prefilled_len`: as far as it is in this replay."""

    id: str
    blocks: TokenBlocks
    input_len: int
    marks: PromptMarks = NO_MARKS
    was_suspended: bool = False
    boundaries: dict[int, SnapshotKind] = field(default_factory=dict)
    request_class: RequestClass = "interactive"
    arrived_at: float = 0.0
    room_len: int = 0
    num_generated: int = 0
    prefilled_len: int = 0


@dataclass(frozen=True, slots=True)
class SizedSnapshot:
    covered_tokens: int
    nbytes: int


class SizedStore:
    """Knows what tensors would take, keeps none, and counts how often each would have been restored."""

    def __init__(self, trace: Trace) -> None:
        self.needs_snapshots = trace.opened.needs_snapshots
        self._sizes = trace.sizes
        self.extent_uses: dict[int, int] = {}
        self.snapshot_uses: dict[int, int] = {}

    def extent_bytes(self, _caches: Any, num_tokens: int) -> int:
        return self._sizes.extent_bytes(num_tokens)

    def put_extent(self, extent_id: int, _caches: Any, start: int, end: int) -> None:
        self.extent_uses[extent_id] = 0

    def move_extents(self, runs: Mapping[int, tuple[int, int]], _caches: Any) -> None:
        self.extent_uses.update(dict.fromkeys(runs, 0))

    def capture(self, _caches: Any, covered_tokens: int) -> SizedSnapshot:
        return SizedSnapshot(covered_tokens, self._sizes.snapshot_bytes(covered_tokens))

    def put_snapshot(self, snapshot_id: int, _snapshot: SizedSnapshot) -> None:
        self.snapshot_uses[snapshot_id] = 0

    def hold(self, pieces: Sequence[Piece], snapshot_id: int | None) -> None:
        for piece in pieces:
            self.extent_uses[piece.extent_id] = self.extent_uses.get(piece.extent_id, 0) + 1
        if snapshot_id is not None:
            self.snapshot_uses[snapshot_id] = self.snapshot_uses.get(snapshot_id, 0) + 1

    def restore(self, _held: None, *, length: int, caches: Any, room_len: int) -> None: ...

    def drop(self, extents: Iterable[int], snapshots: Iterable[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Lookup:
    """One lookup of the trace: what was restored then, and now. Tokens."""

    request: int
    prompt_len: int
    is_resumed: bool
    live_len: int
    restored_len: int


@dataclass(frozen=True, slots=True)
class Reuse:
    """How many stored pieces were restored never, once, twice and more often."""

    never: int
    once: int
    twice: int
    more: int

    @classmethod
    def of(cls, uses: Iterable[int]) -> "Reuse":
        counts = [0, 0, 0, 0]
        for each in uses:
            counts[min(each, 3)] += 1
        return cls(*counts)


@dataclass(frozen=True, slots=True)
class Replayed:
    lookups: tuple[Lookup, ...]
    extents: Reuse
    snapshots: Reuse
    used_bytes: int
    largest_used_bytes: int


UNLIMITED_BYTES: Final = 1 << 60


def replay(trace: Trace, *, more_bytes: int = 0, policy: Policy = "live") -> Replayed:
    """Live through the trace with a cache that may always hold `more_bytes` more, or less; never less than nothing."""
    assert trace.opened.block_tokens == BLOCK_TOKENS, "checked when it was read"
    return _Replay(trace, more_bytes, policy).run()


class _Replay:
    def __init__(self, trace: Trace, more_bytes: int, policy: Policy) -> None:
        self._trace = trace
        self._more_bytes = more_bytes
        self._store = SizedStore(trace)
        index = index_from(trace.opened.state, needs_snapshots=trace.opened.needs_snapshots)
        self._cache = PrefixCache(index, self._store, policy=policy)
        self._requests: dict[int, Again] = {}
        self._lookups: list[Lookup] = []
        self._largest_used_bytes = 0
        self._cache.set_budget(self._budget(trace.opened.state.budget_bytes))

    def run(self) -> Replayed:
        for event in self._trace.events:
            match event:
                case Began():
                    self._begin(event)
                case Entered():
                    self._requests[event.request] = Again(
                        str(event.request),
                        NamedBlocks(self._trace.chain(event.known, event.new_keys), event.length),
                        event.length,
                        boundaries=dict(event.boundaries),
                        prefilled_len=event.prefilled_len,
                    )
                case Sliced():
                    self._prefill(self._requests[event.request], event.end)
                case Rested():
                    self._rest(self._requests[event.request], event)
                case Left():
                    left = self._requests.pop(event.request, None)
                    if left is not None:
                        self._cache.forget(left)
                case Budgeted():
                    self._cache.set_budget(self._budget(event.budget_bytes))
                case Cleared():
                    self._cache.clear()
            self._largest_used_bytes = max(self._largest_used_bytes, self._cache.used_bytes)
        store = self._store
        return Replayed(
            tuple(self._lookups),
            Reuse.of(store.extent_uses.values()),
            Reuse.of(store.snapshot_uses.values()),
            self._cache.used_bytes,
            self._largest_used_bytes,
        )

    def _begin(self, event: Began) -> None:
        request = Again(
            str(event.request),
            NamedBlocks(self._trace.chain(event.known, event.new_keys), event.length),
            event.length,
            marks=PromptMarks(event.shared_len, event.message_starts, event.generation_len),
            was_suspended=event.is_resumed,
        )
        restored_len = self._cache.restore(request, None, budget_bytes=self._budget(event.budget_bytes))
        request.prefilled_len = restored_len
        self._requests[event.request] = request
        self._lookups.append(Lookup(event.request, event.length, event.is_resumed, event.restored_len, restored_len))
        # What was restored then and is not now has to be computed now.
        self._prefill(request, event.restored_len)

    def _prefill(self, request: Again, end: int) -> None:
        """Up to `end`, with a stop at each boundary, as the scheduler does."""
        stops = [length for length in request.boundaries if request.prefilled_len < length < end]
        for stop in (*stops, end):
            if stop > request.prefilled_len:
                self._cache.publish_slice(request, None, start=request.prefilled_len, end=stop, took_ms=0.0)
                request.prefilled_len = stop

    def _rest(self, request: Again, event: Rested) -> None:
        assert isinstance(request.blocks, NamedBlocks)
        request.blocks.grow(keys_of(event.new_keys), event.length)
        checkpoint_len = event.checkpoint_len
        checkpoint = None if checkpoint_len is None else self._store.capture(None, checkpoint_len)
        length = max(event.length, request.prefilled_len)
        self._cache.publish_rest(request, None, length=length, checkpoint=checkpoint)

    def _budget(self, live_bytes: int) -> int:
        return max(0, live_bytes + self._more_bytes)
