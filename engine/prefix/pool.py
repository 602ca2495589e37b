"""The extents and snapshots that are stored, within one budget of bytes: it makes room, pins, and lets go.

It looks nothing up and knows no prompt: the index says what to add and what was used.
"""

from dataclasses import dataclass

from engine.prefix.eviction import EvictionQueue, extent_value, snapshot_value
from engine.prefix.ledger import Ledger
from engine.prefix.tree import BlockTree, Extent, Snapshot


@dataclass(frozen=True, slots=True)
class Dropped:
    """Ids whose tensors are to be freed before new ones are made."""

    extents: tuple[int, ...]
    snapshots: tuple[int, ...]


class Pool:
    """Owns the budget, which is never exceeded but for pins after a cut, and the order in which pieces go.

    Only what nothing hangs on goes: so an extent stays while one behind it or a snapshot on it does.
    """

    def __init__(self, tree: BlockTree, ledger: Ledger, *, budget_bytes: int, needs_snapshots: bool) -> None:
        self._tree = tree
        self._ledger = ledger
        self._needs_snapshots = needs_snapshots
        self.budget_bytes = budget_bytes
        self.extents: dict[int, Extent] = {}
        self.snapshots: dict[int, Snapshot] = {}
        self._extent_queue = EvictionQueue()
        self._snapshot_queue = EvictionQueue()
        self._dropped_extents: list[int] = []
        self._dropped_snapshots: list[int] = []
        self.last_id = 0
        self.uses = 0  # a clock of lookups and additions
        self.age = 0.0

    @property
    def used_bytes(self) -> int:
        return self._ledger.block_bytes + self._ledger.snapshot_bytes

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def go_on(self, *, last_id: int, uses: int, age: float) -> None:
        """From where another pool stood, whose extents and snapshots are here by now."""
        self.last_id, self.uses, self.age = last_id, uses, age
        for extent in self.extents.values():
            self._ledger.extent_added(len(extent.blocks), extent.nbytes)
            self._offer_extent(extent)
        for snapshot in self.snapshots.values():
            self._ledger.snapshot_added(snapshot.kind, snapshot.nbytes)
            self.offer_snapshot(snapshot)

    def tick(self) -> None:
        """What is used from here on is used later than what was used before."""
        self.uses += 1

    def make_room(self, nbytes: int, *, keep: Extent | None = None) -> bool:
        """Evict until `nbytes` more fit. `keep` and all extents before it stay."""
        if keep is not None:
            self.pin_extent(keep, 1)
        while self.used_bytes + nbytes > self.budget_bytes and self._evict():
            pass
        if keep is not None:
            self.pin_extent(keep, -1)
        return self.used_bytes + nbytes <= self.budget_bytes

    def add_extent(self, extent: Extent) -> None:
        """There is room, and the tree has it."""
        self.extents[extent.id] = extent
        self._ledger.extent_added(len(extent.blocks), extent.nbytes)
        self.use_extent(extent)
        if extent.parent is not None:
            self._offer_extent(extent.parent)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """There is room, and the tree has it."""
        self.snapshots[snapshot.id] = snapshot
        self._ledger.snapshot_added(snapshot.kind, snapshot.nbytes)
        self.use_snapshot(snapshot)
        self._offer_extent(snapshot.extent)
        self._offer_around(snapshot)

    def use_extent(self, extent: Extent) -> None:
        extent.age, extent.last_use = self.age, self.uses
        self._offer_extent(extent)

    def use_snapshot(self, snapshot: Snapshot) -> None:
        snapshot.age, snapshot.last_use = self.age, self.uses
        self.offer_snapshot(snapshot)

    def pin_extent(self, extent: Extent, change: int) -> None:
        """Keeps the extents before it as well, because they go only after it."""
        extent.pins += change
        assert extent.pins >= 0
        self._offer_extent(extent)

    def pin_snapshot(self, snapshot: Snapshot, change: int) -> None:
        snapshot.pins += change
        assert snapshot.pins >= 0
        self.offer_snapshot(snapshot)

    def retire(self, snapshot: Snapshot) -> None:
        """It has served its purpose: no eviction, and no room was needed."""
        self._ledger.snapshots_retired += 1
        self._remove_snapshot(snapshot)

    def clear(self) -> None:
        """Drop everything that is not pinned."""
        for snapshot in list(self.snapshots.values()):
            if not snapshot.pins:
                self._remove_snapshot(snapshot)
        for extent in sorted(self.extents.values(), key=lambda extent: -extent.first_block):
            if not (extent.pins or extent.num_children or extent.num_snapshots):
                self._remove_extent(extent)

    def take_dropped(self) -> Dropped:
        """What went since the last call."""
        dropped = Dropped(tuple(self._dropped_extents), tuple(self._dropped_snapshots))
        self._dropped_extents, self._dropped_snapshots = [], []
        return dropped

    def offer_snapshot(self, snapshot: Snapshot) -> None:
        """Its value has changed: let it go when its turn comes."""
        if snapshot.pins:
            self._snapshot_queue.discard(snapshot.id)
        else:
            self._snapshot_queue.put(snapshot.id, snapshot.age + snapshot_value(snapshot), snapshot.last_use)

    def _offer_extent(self, extent: Extent) -> None:
        """By recency where it is useless by itself: with needed snapshots, none is left on it or behind it."""
        if extent.num_children or extent.num_snapshots or extent.pins:
            self._extent_queue.discard(extent.id)
        else:
            priority = 0.0 if self._needs_snapshots else extent.age + extent_value(extent)
            self._extent_queue.put(extent.id, priority, extent.last_use)

    def _offer_around(self, snapshot: Snapshot) -> None:
        """Its neighbours on the paths through it are worth more or less now."""
        if snapshot.parent is not None and snapshot.parent is not self._tree.no_snapshot:
            self.offer_snapshot(snapshot.parent)
        for child in snapshot.children:
            self.offer_snapshot(child)

    def _evict(self) -> bool:
        """The least valuable piece goes; extents that no snapshot needs before any snapshot. False: nothing may go."""
        extent_id = self._extent_queue.take()
        if extent_id is not None:
            extent = self.extents[extent_id]
            if not self._needs_snapshots:
                self.age = max(self.age, extent.age + extent_value(extent))
            self._ledger.blocks_evicted += len(extent.blocks)
            self._remove_extent(extent)
            return True
        snapshot_id = self._snapshot_queue.take()
        if snapshot_id is None:
            return False
        snapshot = self.snapshots[snapshot_id]
        self.age = max(self.age, snapshot.age + snapshot_value(snapshot))
        self._ledger.snapshots_evicted += 1
        snapshot.block.had_snapshot = True
        self._remove_snapshot(snapshot)
        return True

    def _remove_extent(self, extent: Extent) -> None:
        self._extent_queue.discard(extent.id)
        del self.extents[extent.id]
        self._tree.remove_extent(extent)
        self._ledger.block_bytes -= extent.nbytes
        self._dropped_extents.append(extent.id)
        if extent.parent is not None:
            self._offer_extent(extent.parent)

    def _remove_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshot_queue.discard(snapshot.id)
        del self.snapshots[snapshot.id]
        self._tree.remove_snapshot(snapshot)
        self._ledger.snapshot_bytes -= snapshot.nbytes
        self._dropped_snapshots.append(snapshot.id)
        self._offer_around(snapshot)
        self._offer_extent(snapshot.extent)

    def check(self) -> None:
        """Links, bytes and queues hold. For tests."""
        self._tree.check()
        assert self._ledger.block_bytes == sum(extent.nbytes for extent in self.extents.values())
        assert self._ledger.snapshot_bytes == sum(snapshot.nbytes for snapshot in self.snapshots.values())
        num_pins = sum(extent.pins for extent in self.extents.values())
        num_pins += sum(snapshot.pins for snapshot in self.snapshots.values())
        assert self.used_bytes <= self.budget_bytes or num_pins
        num_blocks = 0
        for extent_id, extent in self.extents.items():
            num_blocks += len(extent.blocks)
            children = [child for child in self.extents.values() if child.parent is extent]
            assert extent.parent is None or self.extents[extent.parent.id] is extent.parent
            assert extent.num_children == len(children)
            assert extent.num_snapshots == sum(block.snapshot is not None for block in extent.blocks)
            is_free = not (children or extent.num_snapshots or extent.pins)
            assert is_free == (self._extent_queue.place(extent_id) is not None)
        assert num_blocks == self._tree.num_live
        for snapshot_id, snapshot in self.snapshots.items():
            assert snapshot.block.snapshot is snapshot and self.extents[snapshot.extent.id] is snapshot.extent
            place = (snapshot.age + snapshot_value(snapshot), snapshot.last_use)
            assert self._snapshot_queue.place(snapshot_id) == (None if snapshot.pins else place)
