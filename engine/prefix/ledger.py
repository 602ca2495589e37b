"""What the prefix cache has done since the start, in the counters of GET /status.

It decides nothing: the index tells it what happened.
"""

from collections import deque
from typing import Final

from engine.wire import CacheStatus, MissExplanation, SnapshotKind

NUM_MISSES: Final = 100


class Ledger:
    """Bytes are of now, counts are cumulative."""

    def __init__(self) -> None:
        self.block_bytes = 0
        self.snapshot_bytes = 0
        self.blocks_evicted = 0
        self.snapshots_evicted = 0
        self.snapshots_retired = 0
        self.clears = 0
        self._lookups = 0
        self._hits = 0
        self._cold_misses = 0
        self._lookup_tokens = 0
        self._reused_tokens = 0
        self._matched_tokens = 0
        self._blocks_published = 0
        self._snapshots_published = 0
        self._junctions = 0
        self._misses: deque[MissExplanation] = deque(maxlen=NUM_MISSES)

    def looked_up(self, num_tokens: int, restored: int, matched: int, explanation: MissExplanation | None) -> None:
        """A prompt of `num_tokens` was looked up. A hit restored anything."""
        self._lookups += 1
        self._hits += restored > 0
        self._lookup_tokens += num_tokens
        self._reused_tokens += restored
        self._matched_tokens += matched
        if explanation is not None:
            self._cold_misses += explanation.cause == "cold"
            self._misses.append(explanation)

    def extent_added(self, num_blocks: int, nbytes: int) -> None:
        self.block_bytes += nbytes
        self._blocks_published += num_blocks

    def snapshot_added(self, kind: SnapshotKind, nbytes: int) -> None:
        self.snapshot_bytes += nbytes
        self._snapshots_published += 1
        self._junctions += kind == "junction"

    def status(self, *, budget_bytes: int, blocks: int, extents: int, snapshots: int) -> CacheStatus:
        """Without what only the worker knows: boundaries that were missed, milliseconds, and whether it is off."""
        return CacheStatus(
            is_on=True,
            budget_bytes=budget_bytes,
            used_bytes=self.block_bytes + self.snapshot_bytes,
            block_bytes=self.block_bytes,
            snapshot_bytes=self.snapshot_bytes,
            blocks=blocks,
            extents=extents,
            snapshots=snapshots,
            lookups=self._lookups,
            hits=self._hits,
            cold_misses=self._cold_misses,
            lookup_tokens=self._lookup_tokens,
            reused_tokens=self._reused_tokens,
            matched_tokens=self._matched_tokens,
            hit_rate=self._reused_tokens / self._lookup_tokens if self._lookup_tokens else 0.0,
            blocks_published=self._blocks_published,
            snapshots_published=self._snapshots_published,
            blocks_evicted=self.blocks_evicted,
            snapshots_evicted=self.snapshots_evicted,
            snapshots_retired=self.snapshots_retired,
            junctions=self._junctions,
            clears=self.clears,
            misses=tuple(self._misses),
        )
