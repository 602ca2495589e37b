"""The prefix index: which blocks and snapshots are stored, what a prompt can be restored from, and what goes for room.

It holds no tensor: it speaks in ids and bytes, and the store keeps what they stand for. Worker thread only.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.blocks import BLOCK_TOKENS, TokenBlocks, floor_to_block
from engine.prefix.boundaries import more_durable
from engine.prefix.ledger import Ledger
from engine.prefix.pool import Dropped, Pool
from engine.prefix.tree import EXTENT_BLOCKS, BlockTree, Snapshot, Walk
from engine.wire import CacheStatus, MissCause, MissExplanation, SnapshotKind

logger = logging.getLogger(__name__)

ROLLING: Final[SnapshotKind] = "rolling"


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks [first, first + num_blocks) of a stored extent."""

    extent_id: int
    first: int
    num_blocks: int


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks [first_block, first_block + num_blocks) of a sequence: 1 to 8, not crossing a multiple of 8."""

    first_block: int
    num_blocks: int


@dataclass(frozen=True, slots=True)
class Match:
    """What a prompt can be restored from, lengths in tokens. Good until the next call that adds or evicts, or pinned.

    `pieces` cover exactly [0, restore_len); `snapshot_id` is there when the model needs one and restore_len > 0.
    `matched_len`: as far as stored blocks go within the limit. `junction_len`: take a snapshot there in the replay.
    `explanation`: when more could have been wished for.
    """

    restore_len: int
    matched_len: int
    pieces: tuple[Piece, ...]
    snapshot_id: int | None
    junction_len: int | None
    explanation: MissExplanation | None


class PrefixIndex:
    """What is stored, by the tokens that it stands for. Bytes of extents and snapshots share one budget (`Pool`).

    Its fields are for `state` alone, which reads them and makes an index from what it read.
    """

    def __init__(self, *, budget_bytes: int, needs_snapshots: bool, clock: Callable[[], float] = time.time) -> None:
        """`needs_snapshots`: the model has fixed layers. `clock`: Unix seconds."""
        self._needs_snapshots = needs_snapshots
        self._clock = clock
        self.tree = BlockTree()
        self._ledger = Ledger()
        self.pool = Pool(self.tree, self._ledger, budget_bytes=budget_bytes, needs_snapshots=needs_snapshots)
        self.rolling: dict[str, Snapshot] = {}  # the newest of each owner
        self.running: set[str] = set()  # owners that were not released yet
        self.snapshot_bytes = 0  # of the last one: what a path must leave room for
        self.num_collisions = 0

    @property
    def budget_bytes(self) -> int:
        return self.pool.budget_bytes

    @property
    def used_bytes(self) -> int:
        return self.pool.used_bytes

    # --- Lookup ----------------------------------------------------------------------------------------------------

    def peek(self, blocks: TokenBlocks, *, limit_len: int) -> int:
        """What `match` would restore now, in tokens, in O(log n): it counts nothing, and trusts equal keys."""
        num_live = self.tree.num_live_blocks(blocks.keys, limit_len // BLOCK_TOKENS)
        if not self._needs_snapshots:
            return num_live * BLOCK_TOKENS
        while num_live and self.tree.snapshot(blocks.keys[num_live - 1]) is None:
            num_live -= 1
        return num_live * BLOCK_TOKENS

    def match(self, blocks: TokenBlocks, *, limit_len: int, request_id: str, is_resumed: bool = False) -> Match:
        """The one lookup of a request that begins to prefill; it may restore `limit_len` tokens at most.

        `is_resumed`: it was suspended and finds its own work again, which is no lookup to count or to explain.
        """
        limit_len = floor_to_block(min(limit_len, blocks.length))
        walk = self._walk(blocks, blocks.num_blocks)
        matched_len = min(walk.num_live * BLOCK_TOKENS, limit_len)
        agreed_len = min(len(walk.path) * BLOCK_TOKENS, limit_len)
        num_restored, snapshot = matched_len // BLOCK_TOKENS, None
        if self._needs_snapshots:
            while num_restored and (snapshot := walk.path[num_restored - 1].snapshot) is None:
                num_restored -= 1
        restore_len = num_restored * BLOCK_TOKENS
        pieces = self._use(walk, num_restored)
        if snapshot is not None:
            self._use_snapshot(snapshot, walk)
        explanation = None
        if restore_len < limit_len and not is_resumed and not walk.is_continued(restore_len):
            explanation = MissExplanation(
                id=request_id,
                sampled_at_s=self._clock(),
                cause=self._cause(walk, restore_len=restore_len, agreed_len=agreed_len),
                prompt_tokens=blocks.length,
                restored_tokens=restore_len,
                matched_tokens=matched_len,
                first_difference=self.tree.first_difference(blocks, walk.path),
                distance_tokens=agreed_len - restore_len,
            )
        if not is_resumed:
            self._ledger.looked_up(blocks.length, restore_len, matched_len, explanation)
        return Match(
            restore_len=restore_len,
            matched_len=matched_len,
            pieces=pieces,
            snapshot_id=None if snapshot is None else snapshot.id,
            junction_len=agreed_len if self._needs_snapshots and agreed_len > restore_len else None,
            explanation=explanation,
        )

    def _walk(self, blocks: TokenBlocks, num_blocks: int) -> Walk:
        walk = self.tree.walk(blocks, num_blocks)
        if walk.has_collision:
            self.num_collisions += 1
            if self.num_collisions == 1:
                logger.warning("prefix key collision block=%d; treated as no match, logged once", len(walk.path))
        return walk

    def _use(self, walk: Walk, num_blocks: int) -> tuple[Piece, ...]:
        """Count a use of the extents under the first blocks of a path; return the pieces of them."""
        self.pool.tick()
        pieces: list[Piece] = []
        index = 0
        while index < num_blocks:
            extent = walk.path[index].extent
            assert extent is not None
            count = 1
            while index + count < num_blocks and walk.path[index + count].extent is extent:
                count += 1
            pieces.append(Piece(extent.id, 0, count))  # a path comes into an extent at its first block only
            extent.uses += 1
            self.pool.use_extent(extent)
            index += count
        return tuple(pieces)

    def _use_snapshot(self, snapshot: Snapshot, walk: Walk) -> None:
        """Count its use. What its own, ended request published behind it and this one does not share is left behind."""
        snapshot.uses += 1
        snapshot.is_left_behind = False
        self.pool.use_snapshot(snapshot)
        if snapshot.kind == "shared_end" or snapshot.owner in self.running:
            return
        on_path = {block.snapshot for block in walk.path[snapshot.length // BLOCK_TOKENS :]}
        behind = [child for child in snapshot.children if child not in on_path]
        while behind:
            candidate = behind.pop()
            if candidate.owner == snapshot.owner and not candidate.uses:
                candidate.is_left_behind = True
                behind.extend(candidate.children)
                self.pool.offer_snapshot(candidate)

    def _cause(self, walk: Walk, *, restore_len: int, agreed_len: int) -> MissCause:
        if not agreed_len:
            return "cold"
        missed = walk.path[restore_len // BLOCK_TOKENS : agreed_len // BLOCK_TOKENS]
        if not missed:
            return "differs"
        if self._needs_snapshots:
            return "evicted" if any(block.had_snapshot for block in missed) else "never_taken"
        return "evicted"

    # --- Adding ----------------------------------------------------------------------------------------------------

    def missing(self, blocks: TokenBlocks, *, upto_len: int) -> tuple[Run, ...]:
        """Runs of full blocks below `upto_len` that are not stored, in order. None behind a key collision."""
        end = min(upto_len // BLOCK_TOKENS, blocks.num_blocks)
        walk = self._walk(blocks, end)
        if walk.has_collision:
            return ()
        runs: list[Run] = []
        first = walk.num_live
        while first < end:
            next_extent = min((first // EXTENT_BLOCKS + 1) * EXTENT_BLOCKS, end)
            runs.append(Run(first, next_extent - first))
            first = next_extent
        return tuple(runs)

    def add_extent(self, blocks: TokenBlocks, run: Run, *, nbytes: int) -> int | None:
        """Evict for room, then add a run that `missing` named. None when there is no room, or no block before it.

        A path that leaves no room for a snapshot on it is not stored any further: it could not be restored.
        """
        before = self.tree.block(blocks, run.first_block - 1) if run.first_block else None
        if (run.first_block and before is None) or self.tree.block(blocks, run.first_block) is not None:
            return None
        parent = before.extent if before is not None else None
        path_bytes = nbytes + (parent.path_bytes if parent is not None else 0)
        if path_bytes + self.snapshot_bytes > self.budget_bytes or not self.pool.make_room(nbytes, keep=parent):
            return None
        extent_id = self.pool.next_id()
        self.pool.add_extent(
            self.tree.add_extent(blocks, run.first_block, run.num_blocks, extent_id=extent_id, nbytes=nbytes)
        )
        return extent_id

    def has_snapshot(self, blocks: TokenBlocks, length: int) -> bool:
        """Whether one is stored at exactly `length` tokens."""
        assert length % BLOCK_TOKENS == 0 and 0 < length <= blocks.num_blocks * BLOCK_TOKENS
        return self.tree.snapshot(blocks.keys[length // BLOCK_TOKENS - 1]) is not None

    def add_snapshot(
        self, blocks: TokenBlocks, length: int, *, nbytes: int, kind: SnapshotKind, owner: str
    ) -> int | None:
        """Evict for room, then add. None when there is no room, one is there already (it takes the more durable kind
        of both), a block before it is not stored, or the model needs none.

        A rolling one retires the owner's previous rolling one, unless that has been used, is pinned or is more by now.
        """
        assert length % BLOCK_TOKENS == 0 and 0 < length <= blocks.num_blocks * BLOCK_TOKENS
        walk = self._walk(blocks, length // BLOCK_TOKENS)
        if not self._needs_snapshots or walk.num_live * BLOCK_TOKENS < length:
            return None
        block = walk.path[-1]
        extent = block.extent
        assert extent is not None
        if block.snapshot is not None:
            block.snapshot.kind = more_durable(block.snapshot.kind, kind)
            self.pool.offer_snapshot(block.snapshot)
            return None
        self.snapshot_bytes = nbytes
        if extent.path_bytes + nbytes > self.budget_bytes:
            return None
        if kind == ROLLING:
            self._retire_rolling(owner)
        if not self.pool.make_room(nbytes, keep=extent):
            return None
        snapshot = Snapshot(self.pool.next_id(), block, extent, length, nbytes, kind, owner)
        self.running.add(owner)
        if kind == ROLLING:
            self.rolling[owner] = snapshot
        self.pool.tick()
        self.tree.add_snapshot(snapshot)
        self.pool.add_snapshot(snapshot)
        return snapshot.id

    def release(self, owner: str) -> None:
        """The request is over. What it published stays."""
        self.rolling.pop(owner, None)
        self.running.discard(owner)

    def pin(self, match: Match) -> None:
        """Keep what a match names until it is unpinned as often as it was pinned."""
        self._pin(match, 1)

    def unpin(self, match: Match) -> None:
        self._pin(match, -1)

    def set_budget(self, nbytes: int) -> None:
        """Evicts down to it as far as pins allow."""
        self.pool.budget_bytes = nbytes
        self.pool.make_room(0)

    def take_dropped(self) -> Dropped:
        """What went since the last call."""
        return self.pool.take_dropped()

    def clear(self) -> None:
        """Drop and forget everything that is not pinned; a prompt that comes again is cold, not evicted."""
        self._ledger.clears += 1
        self.pool.clear()
        self.tree.forget_ghosts()

    def status(self) -> CacheStatus:
        return self._ledger.status(
            budget_bytes=self.budget_bytes,
            blocks=self.tree.num_live,
            extents=len(self.pool.extents),
            snapshots=len(self.pool.snapshots),
        )

    def check(self) -> None:
        """AssertionError when an invariant does not hold. For tests; it takes quadratic time."""
        self.pool.check()

    def _pin(self, match: Match, change: int) -> None:
        if match.pieces:
            self.pool.pin_extent(self.pool.extents[match.pieces[-1].extent_id], change)
        if match.snapshot_id is not None:
            self.pool.pin_snapshot(self.pool.snapshots[match.snapshot_id], change)

    def _retire_rolling(self, owner: str) -> None:
        previous = self.rolling.pop(owner, None)
        if previous is None or self.pool.snapshots.get(previous.id) is not previous:
            return
        if previous.kind == ROLLING and not previous.uses and not previous.pins:
            self.pool.retire(previous)
