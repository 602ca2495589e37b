"""Which stored piece goes next: a value by expected reuse, cost and bytes that ages, and a queue that finds the least.

It removes nothing, and does not know which pieces may go: the index offers those that may.

Greedy-dual-size-frequency (Cherkasova 1998): priority = age + expected uses x tokens to compute again / bytes, where
age is the priority of the last piece that went, at the time of this one's last use. What is never used again is so
overtaken by all that is newer, the sooner the cheaper it is.
"""

import heapq
from math import log2
from typing import Final

from engine.blocks import BLOCK_TOKENS
from engine.prefix.boundaries import DURABILITY
from engine.prefix.tree import Extent, Snapshot

EXPECTED_USES: Final = dict(zip(DURABILITY, (0.5, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 2.0), strict=True))
"""Of a snapshot that no newer request has gone past: it is where a conversation goes on, and most are reused once."""

EXPECTED_USES_PASSED: Final = 0.05  # 120 of 149 snapshots in production were reused once only
EXPECTED_USES_OF_SHARED_END: Final = 1.0  # each new conversation comes back to it
EXPECTED_USES_LEFT_BEHIND: Final = 0.02
FREQUENCY_WEIGHT: Final = 0.5
NUM_STALE_ENTRIES: Final = 64  # a heap of fewer is not worth rebuilding


def expected_uses(snapshot: Snapshot) -> float:
    """How often a request is likely to be restored from here again."""
    if snapshot.is_left_behind:
        return EXPECTED_USES_LEFT_BEHIND
    further_uses = max(snapshot.uses - 1, 0)
    if not any(child.owner != snapshot.owner for child in snapshot.children):
        return max(EXPECTED_USES[snapshot.kind], further_uses)
    least = EXPECTED_USES_OF_SHARED_END if snapshot.kind == "shared_end" else EXPECTED_USES_PASSED
    return max(least, further_uses)


def snapshot_value(snapshot: Snapshot) -> float:
    """Tokens that it is likely to save, by byte that goes with it: at the end of a path its own extents too."""
    parent = snapshot.parent
    assert parent is not None
    nbytes = snapshot.nbytes
    if not snapshot.children:
        nbytes += snapshot.extent.path_bytes - parent.extent.path_bytes
    return expected_uses(snapshot) * (snapshot.length - parent.length) / max(nbytes, 1)


def extent_value(extent: Extent) -> float:
    """As above, for an extent that can be restored from without a snapshot.

    Frequency counts by its logarithm: a long session that is over must not outlast many newer ones.
    """
    return (1 + FREQUENCY_WEIGHT * log2(extent.uses)) * len(extent.blocks) * BLOCK_TOKENS / max(extent.nbytes, 1)


class EvictionQueue:
    """Pieces by id, the least (priority, time of last use) first. All operations take amortised O(log n)."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, int]] = []

    def place(self, piece_id: int) -> tuple[float, int] | None:
        """(priority, time of last use); None: it is not offered."""
        return self._entries.get(piece_id)

    def put(self, piece_id: int, priority: float, last_use: int) -> None:
        """Offer a piece, or change its place."""
        if self._entries.get(piece_id) == (priority, last_use):
            return
        self._entries[piece_id] = (priority, last_use)
        heapq.heappush(self._heap, (priority, last_use, piece_id))
        if len(self._heap) > 2 * len(self._entries) + NUM_STALE_ENTRIES:
            self._heap = [(*entry, piece_id) for piece_id, entry in self._entries.items()]
            heapq.heapify(self._heap)

    def discard(self, piece_id: int) -> None:
        self._entries.pop(piece_id, None)

    def take(self) -> int | None:
        """Remove and return the first; None when there is none."""
        while self._heap:
            priority, last_use, piece_id = heapq.heappop(self._heap)
            if self._entries.get(piece_id) == (priority, last_use):
                del self._entries[piece_id]
                return piece_id
        return None
