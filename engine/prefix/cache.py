"""The prefix cache of the loaded model: what the index decides, done with tensors, for one request at a time.

It decides neither what is kept (`index.py`) nor where snapshots go (`boundaries.py`), and knows no order of requests.
"""

import logging
import time
from collections.abc import Callable

import mlx.core as mx
import msgspec

from engine.blocks import BLOCK_TOKENS, floor_to_block
from engine.layout import Caches
from engine.prefix.boundaries import armed_boundaries
from engine.prefix.index import PrefixIndex
from engine.prefix.store import PrefixStore, Snapshot
from engine.request import Request
from engine.wire import CacheCleared, CacheStatus, SnapshotKind

logger = logging.getLogger(__name__)

# A row that ends is there twice while it is copied, and the streams go on. What is larger is moved layer by layer, and
# they wait.
LARGEST_COPY_BYTES = 256 * 2**20


class PrefixCache:
    """Made once a model; all of it on the worker's thread. Off, it finds nothing and takes nothing.

    Invariant: the index's budget is kept before tensors are made, so what the store holds never exceeds it.
    """

    def __init__(self, index: PrefixIndex, store: PrefixStore | None, *, off_reason: str = "") -> None:
        """`store` None: the cache is off, for `off_reason`."""
        self._index = index
        self._store = store
        self._off_reason = off_reason
        self._restore_ms = 0.0
        self._publish_ms = 0.0
        self._missed_boundaries = 0
        self.version = 0  # grows whenever what can be restored may have changed

    @property
    def needs_snapshots(self) -> bool:
        return self._store is not None and self._store.needs_snapshots

    @property
    def used_bytes(self) -> int:
        return self._index.used_bytes

    def restorable(self, request: Request) -> int:
        """Tokens of the request's input that could be restored now. The last token is never among them."""
        if self._store is None:
            return 0
        return self._index.peek(request.blocks, limit_len=request.input_len - 1)

    def set_budget(self, budget_bytes: int) -> None:
        if budget_bytes != self._index.budget_bytes:
            self._index.set_budget(budget_bytes)
            self._drop()

    def restore(self, request: Request, caches: Caches, *, budget_bytes: int) -> int:
        """Fill fresh caches as far as can be; arms the request's snapshot boundaries. Returns the tokens restored.

        `budget_bytes` is what the cache may hold beside the request's row. Where the row and the blocks that it is made
        of don't both fit, the blocks move into the row, layer by layer.
        """
        if self._store is None:
            return 0
        began = time.perf_counter()
        match = self._index.match(
            request.blocks,
            limit_len=request.input_len - 1,
            request_id=request.id,
            is_resumed=request.was_suspended,
        )
        self._index.pin(match)
        self.set_budget(budget_bytes)
        self._index.unpin(match)
        held = self._store.hold(match.pieces, match.snapshot_id)
        if self._index.used_bytes > budget_bytes:
            self._index.set_budget(budget_bytes)
            self._drop()
        if match.restore_len:
            self._store.restore(held, length=match.restore_len, caches=caches, room_len=request.room_len)
        request.boundaries = (
            armed_boundaries(
                request.marks,
                prompt_len=request.input_len,
                restored_len=match.restore_len,
                junction_len=match.junction_len,
            )
            if self.needs_snapshots
            else {}
        )
        self._restore_ms += (time.perf_counter() - began) * 1000
        return match.restore_len

    def capture(self, fixed_state: Caches, covered_tokens: int) -> Snapshot:
        """A copy of a decoding row's fixed state, not evaluated yet."""
        assert self._store is not None
        return self._store.capture(fixed_state, covered_tokens)

    def publish_slice(self, request: Request, caches: Caches, *, start: int, end: int) -> None:
        """A slice of the prompt has been prefilled: its full blocks, and a snapshot where one is armed."""
        self._missed_boundaries += sum(1 for boundary in request.boundaries if start < boundary < end)
        self._publish(request, caches, end, request.boundaries.get(end))

    def publish_rest(self, request: Request, caches: Caches, *, length: int, checkpoint: Snapshot | None) -> None:
        """The request ends or yields. `checkpoint` is the last state that was captured while it decoded."""
        if checkpoint is not None:
            self._publish(request, caches, length, None, is_last=True)
            self._put_snapshot(request, checkpoint.covered_tokens, "decoded", lambda: checkpoint)
        else:
            self._publish(request, caches, length, "suspended", is_last=True)

    def forget(self, request: Request) -> None:
        self._index.release(request.id)

    def clear(self) -> CacheCleared:
        before = self._index.status()
        self._index.clear()
        self._drop()
        after = self._index.status()
        return CacheCleared(
            freed_bytes=before.used_bytes - after.used_bytes,
            blocks=before.blocks - after.blocks,
            snapshots=before.snapshots - after.snapshots,
        )

    def status(self) -> CacheStatus:
        return msgspec.structs.replace(
            self._index.status(),
            is_on=self._store is not None,
            reason=self._off_reason,
            restore_ms=self._restore_ms,
            publish_ms=self._publish_ms,
            missed_boundaries=self._missed_boundaries,
        )

    def _publish(
        self, request: Request, caches: Caches, length: int, kind: SnapshotKind | None, *, is_last: bool = False
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

    def _put_blocks(self, store: PrefixStore, request: Request, caches: Caches, length: int, *, is_last: bool) -> bool:
        """Whether all blocks are there in the end. A gap would make what lies behind it useless."""
        runs = self._index.missing(request.blocks, upto_len=floor_to_block(length))
        added: dict[int, tuple[int, int]] = {}
        num_bytes = 0
        for run in runs:
            start = run.first_block * BLOCK_TOKENS
            end = start + run.num_blocks * BLOCK_TOKENS
            extent_bytes = store.extent_bytes(caches, end - start)
            extent_id = self._index.add_extent(request.blocks, run, nbytes=extent_bytes)
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

    def _put_snapshot(self, request: Request, length: int, kind: SnapshotKind, capture: Callable[[], Snapshot]) -> None:
        store = self._store
        if store is None or (self._index.has_snapshot(request.blocks, length) and kind == "suspended"):
            return
        snapshot = capture()
        snapshot_id = self._index.add_snapshot(
            request.blocks, length, nbytes=snapshot.nbytes, kind=kind, owner=request.id
        )
        self._drop()
        if snapshot_id is not None:
            # Until it is evaluated, a window of one sequence holds on to all that its last slice computed.
            mx.async_eval(snapshot.arrays())  # type: ignore[no-untyped-call]  # so in MLX's stubs
            store.put_snapshot(snapshot_id, snapshot)
            self.version += 1

    def _drop(self) -> None:
        dropped = self._index.take_dropped()
        if self._store is not None and (dropped.extents or dropped.snapshots):
            self._store.drop(dropped.extents, dropped.snapshots)
            self.version += 1


def cache_off(reason: str) -> PrefixCache:
    """A prefix cache for a model whose state can't be kept: it says why in `/status`."""
    logger.warning("prefix cache is off reason=%s", reason)
    return PrefixCache(PrefixIndex(budget_bytes=0, needs_snapshots=False), None, off_reason=reason)


def cache_of(example: Caches) -> PrefixCache:
    """Raises CacheUnsupported."""
    store = PrefixStore(example)
    return PrefixCache(PrefixIndex(budget_bytes=0, needs_snapshots=store.needs_snapshots), store)
