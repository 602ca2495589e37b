"""The prefix cache of the loaded model: what the index decides, done with tensors, for one request at a time.

It decides neither what is kept (`index.py`) nor where snapshots go (`boundaries.py`), and knows no order of requests.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from engine.blocks import BLOCK_TOKENS, floor_to_block
from engine.prefix.boundaries import Policy, armed_boundaries
from engine.prefix.index import Piece, PrefixIndex
from engine.prefix.state import state_of
from engine.trace.recorder import NO_RECORDER, CachedRequest, Recorder
from engine.trace.tracing import Tracing
from engine.wire import CacheCleared, CacheStatus, SnapshotKind, TraceStatus

logger = logging.getLogger(__name__)

# A row that ends is there twice while it is copied, and the streams go on. What is larger is moved layer by layer, and
# they wait.
LARGEST_COPY_BYTES = 256 * 2**20


Caches = Any
"""The caches of one sequence, which only the store looks into."""


class Snapshot(Protocol):
    """The fixed layers of one sequence after `covered_tokens` tokens."""

    @property
    def covered_tokens(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class Store(Protocol):
    """Where tensors are kept by id: `engine.prefix.store`, and in a replay one that only knows sizes."""

    needs_snapshots: bool

    def extent_bytes(self, caches: Caches, num_tokens: int) -> int: ...

    def put_extent(self, extent_id: int, caches: Caches, start: int, end: int) -> None: ...

    def move_extents(self, runs: Mapping[int, tuple[int, int]], caches: Caches) -> None: ...

    def capture(self, caches: Caches, covered_tokens: int) -> Any: ...

    def put_snapshot(self, snapshot_id: int, snapshot: Any) -> None: ...

    def hold(self, pieces: Sequence[Piece], snapshot_id: int | None) -> Any: ...

    def restore(self, held: Any, *, length: int, caches: Caches, room_len: int) -> None: ...

    def drop(self, extents: Iterable[int], snapshots: Iterable[int]) -> None: ...


class PrefixCache:
    """Made once a model; all of it on the worker's thread. Off, it finds nothing and takes nothing.

    Invariant: the index's budget is kept before tensors are made, so what the store holds never exceeds it.
    `recorder` is told what happens; a replay does the same calls again.
    """

    def __init__(
        self,
        index: PrefixIndex,
        store: Store | None,
        *,
        off_reason: str = "",
        policy: Policy = "live",
    ) -> None:
        """`store` None: the cache is off, for `off_reason`. `policy`: where snapshots go."""
        self.index = index
        self.recorder: Recorder = NO_RECORDER
        self._store = store
        self._off_reason = off_reason
        self._policy: Policy = policy
        self._restore_ms = 0.0
        self._publish_ms = 0.0
        self._missed_boundaries = 0
        self.version = 0  # grows whenever what can be restored may have changed

    @property
    def needs_snapshots(self) -> bool:
        return self._store is not None and self._store.needs_snapshots

    def trace(self, tracing: Tracing, *, model: str, pool_bytes: int) -> TraceStatus:
        """Begin a trace of what is done here from now on. `pool_bytes`: what rows and this cache share."""
        return tracing.start(
            model=model,
            needs_snapshots=self.needs_snapshots,
            pool_bytes=pool_bytes,
            state_of=lambda key_of, owner_of: state_of(self.index, key_of=key_of, owner_of=owner_of),
            attach=self._attach,
        )

    def _attach(self, recorder: Recorder) -> None:
        self.recorder = recorder

    @property
    def used_bytes(self) -> int:
        return self.index.used_bytes

    def restorable(self, request: CachedRequest) -> int:
        """Tokens of the request's input that could be restored now. The last token is never among them."""
        if self._store is None:
            return 0
        return self.index.peek(request.blocks, limit_len=request.input_len - 1)

    def set_budget(self, budget_bytes: int) -> None:
        if budget_bytes != self.index.budget_bytes:
            self.recorder.budgeted(budget_bytes)
            self._set_budget(budget_bytes)

    def restore(self, request: CachedRequest, caches: Caches, *, budget_bytes: int) -> int:
        """Fill fresh caches as far as can be; arms the request's snapshot boundaries. Returns the tokens restored.

        `budget_bytes` is what the cache may hold beside the request's row. Where the row and the blocks that it is made
        of don't both fit, the blocks move into the row, layer by layer.
        """
        if self._store is None:
            return 0
        began = time.perf_counter()
        match = self.index.match(
            request.blocks,
            limit_len=request.input_len - 1,
            request_id=request.id,
            is_resumed=request.was_suspended,
        )
        self.recorder.began(request, match.restore_len, budget_bytes=budget_bytes)
        self.index.pin(match)
        self._set_budget(budget_bytes)
        self.index.unpin(match)
        held = self._store.hold(match.pieces, match.snapshot_id)
        if self.index.used_bytes > budget_bytes:
            self._set_budget(budget_bytes)
        if match.restore_len:
            self._store.restore(held, length=match.restore_len, caches=caches, room_len=request.room_len)
        request.boundaries = (
            armed_boundaries(
                request.marks,
                prompt_len=request.input_len,
                restored_len=match.restore_len,
                junction_len=match.junction_len,
                policy=self._policy,
            )
            if self.needs_snapshots
            else {}
        )
        self._restore_ms += (time.perf_counter() - began) * 1000
        return match.restore_len

    def capture(self, fixed_state: Caches, covered_tokens: int) -> Any:
        """A copy of a decoding row's fixed state, not evaluated yet."""
        assert self._store is not None
        return self._store.capture(fixed_state, covered_tokens)

    def publish_slice(self, request: CachedRequest, caches: Caches, *, start: int, end: int, took_ms: float) -> None:
        """A slice of the prompt was prefilled in `took_ms`: its full blocks, and a snapshot where one is armed."""
        self.recorder.sliced(request, start=start, end=end, took_ms=took_ms)
        self._missed_boundaries += sum(1 for boundary in request.boundaries if start < boundary < end)
        self._publish(request, caches, end, request.boundaries.get(end))

    def publish_rest(self, request: CachedRequest, caches: Caches, *, length: int, checkpoint: Snapshot | None) -> None:
        """The request ends or yields. `checkpoint` is the last state that was captured while it decoded."""
        self.recorder.rested(
            request, length=length, checkpoint_len=None if checkpoint is None else checkpoint.covered_tokens
        )
        if checkpoint is not None:
            self._publish(request, caches, length, None, is_last=True)
            self._put_snapshot(request, checkpoint.covered_tokens, "decoded", lambda: checkpoint)
        else:
            self._publish(request, caches, length, "suspended", is_last=True)

    def forget(self, request: CachedRequest) -> None:
        self.recorder.left(request)
        self.index.release(request.id)

    def clear(self) -> CacheCleared:
        self.recorder.cleared()
        before = self.index.status()
        self.index.clear()
        self._drop()
        after = self.index.status()
        return CacheCleared(
            freed_bytes=before.used_bytes - after.used_bytes,
            blocks=before.blocks - after.blocks,
            snapshots=before.snapshots - after.snapshots,
        )

    def status(self) -> CacheStatus:
        return msgspec.structs.replace(
            self.index.status(),
            is_on=self._store is not None,
            reason=self._off_reason,
            restore_ms=self._restore_ms,
            publish_ms=self._publish_ms,
            missed_boundaries=self._missed_boundaries,
        )

    def _publish(
        self, request: CachedRequest, caches: Caches, length: int, kind: SnapshotKind | None, *, is_last: bool = False
    ) -> None:
        """All full blocks of the first `length` tokens that are not there yet; with a snapshot if `length` is one.

        `is_last`: the caches are given up, and their growing layers may be moved out of them.
        """
        if self._store is None:
            return
        began = time.perf_counter()
        is_whole = self._put_blocks(self._store, request, caches, length, is_last=is_last)
        is_exact = length % BLOCK_TOKENS == 0 and length > 0
        if kind is not None and is_whole and is_exact and self.needs_snapshots:
            store = self._store
            self._put_snapshot(request, length, kind, lambda: store.capture(caches, length))
        self._publish_ms += (time.perf_counter() - began) * 1000

    def _put_blocks(self, store: Store, request: CachedRequest, caches: Caches, length: int, *, is_last: bool) -> bool:
        """Whether all blocks are there in the end. A gap would make what lies behind it useless."""
        runs = self.index.missing(request.blocks, upto_len=floor_to_block(length))
        added: dict[int, tuple[int, int]] = {}
        num_bytes = 0
        for run in runs:
            start = run.first_block * BLOCK_TOKENS
            end = start + run.num_blocks * BLOCK_TOKENS
            extent_bytes = store.extent_bytes(caches, end - start)
            self.recorder.extent_size(num_tokens=end - start, nbytes=extent_bytes)
            extent_id = self.index.add_extent(request.blocks, run, nbytes=extent_bytes)
            self._drop()
            if extent_id is None:
                break
            added[extent_id] = (start, end)
            num_bytes += extent_bytes
        if is_last and num_bytes > LARGEST_COPY_BYTES:
            store.move_extents(added, caches)
        else:
            for extent_id, (start, end) in added.items():
                store.put_extent(extent_id, caches, start, end)
        self.version += bool(added)
        return len(added) == len(runs)

    def _put_snapshot(
        self, request: CachedRequest, length: int, kind: SnapshotKind, capture: Callable[[], Snapshot]
    ) -> None:
        store = self._store
        if store is None or (self.index.has_snapshot(request.blocks, length) and kind == "suspended"):
            return
        snapshot = capture()
        self.recorder.snapshot_size(length=length, nbytes=snapshot.nbytes)
        snapshot_id = self.index.add_snapshot(
            request.blocks, length, nbytes=snapshot.nbytes, kind=kind, owner=request.id
        )
        self._drop()
        if snapshot_id is not None:
            store.put_snapshot(snapshot_id, snapshot)
            self.version += 1

    def _set_budget(self, budget_bytes: int) -> None:
        self.index.set_budget(budget_bytes)
        self._drop()

    def _drop(self) -> None:
        dropped = self.index.take_dropped()
        if self._store is not None and (dropped.extents or dropped.snapshots):
            self._store.drop(dropped.extents, dropped.snapshots)
            self.version += 1


def cache_off(reason: str) -> PrefixCache:
    """A prefix cache for a model whose state can't be kept: it says why in `/status`."""
    logger.warning("prefix cache is off reason=%s", reason)
    return PrefixCache(PrefixIndex(budget_bytes=0, needs_snapshots=False), None, off_reason=reason)
