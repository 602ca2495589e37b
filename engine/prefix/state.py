"""The whole state of a prefix index as a value: written into a trace, and an index made from it that goes on alike.

It holds no tensor. Nothing may be pinned: what is pinned is between two steps of one call.
"""

from collections.abc import Callable

from engine.blocks import BLOCK_TOKENS
from engine.prefix.index import PrefixIndex
from engine.prefix.tree import Block, BlockTree, Extent, Snapshot
from engine.trace.events import IndexState, KnownBlock, KnownExtent, KnownSnapshot


def state_of(index: PrefixIndex, *, key_of: Callable[[bytes], bytes], owner_of: Callable[[str], str]) -> IndexState:
    """`key_of` and `owner_of` give the names under which blocks and requests are written."""
    tree, pool = index.tree, index.pool
    blocks = _parents_first(tree)
    places = {id(block): place for place, block in enumerate(blocks)}
    return IndexState(
        budget_bytes=pool.budget_bytes,
        blocks=tuple(
            KnownBlock(places.get(id(block.parent), -1), key_of(block.key), block.had_snapshot) for block in blocks
        ),
        extents=tuple(
            KnownExtent(
                extent.id,
                extent.first_block,
                tuple(places[id(block)] for block in extent.blocks),
                extent.nbytes,
                extent.uses,
                extent.age,
                extent.last_use,
            )
            for extent in sorted(pool.extents.values(), key=lambda extent: extent.first_block)
        ),
        snapshots=tuple(
            KnownSnapshot(
                snapshot.id,
                places[id(snapshot.block)],
                snapshot.length,
                snapshot.nbytes,
                snapshot.kind,
                owner_of(snapshot.owner),
                snapshot.uses,
                snapshot.is_left_behind,
                snapshot.age,
                snapshot.last_use,
            )
            for snapshot in pool.snapshots.values()
        ),
        ghosts=tuple(places[id(block)] for block in tree.ghosts),
        rolling=tuple((owner_of(owner), snapshot.id) for owner, snapshot in index.rolling.items()),
        running=tuple(sorted(owner_of(owner) for owner in index.running)),
        snapshot_bytes=index.snapshot_bytes,
        last_id=pool.last_id,
        uses=pool.uses,
        age=pool.age,
    )


def index_from(state: IndexState, *, needs_snapshots: bool) -> PrefixIndex:
    """An index that decides from here on as the one did whose state it was. A block's tokens are its key."""
    index = PrefixIndex(budget_bytes=state.budget_bytes, needs_snapshots=needs_snapshots, clock=lambda: 0.0)
    tree, pool = index.tree, index.pool
    blocks: list[Block] = []
    for known in state.blocks:
        block = tree.know(known.key, known.key, blocks[known.parent] if known.parent >= 0 else None)
        block.had_snapshot = known.had_snapshot
        blocks.append(block)
    extents: dict[int, Extent] = {}
    for each in state.extents:
        chain = [blocks[place] for place in each.blocks]
        extent = tree.fill(chain, each.first_block, extent_id=each.id, nbytes=each.nbytes)
        extent.uses, extent.age, extent.last_use = each.uses, each.age, each.last_use
        extents[extent.id] = pool.extents[extent.id] = extent
    tree.remember_ghosts(blocks[place] for place in state.ghosts)
    for one in state.snapshots:
        block = blocks[one.block]
        assert block.extent is not None and one.length % BLOCK_TOKENS == 0
        snapshot = Snapshot(one.id, block, block.extent, one.length, one.nbytes, one.kind, one.owner)
        snapshot.uses, snapshot.is_left_behind = one.uses, one.is_left_behind
        snapshot.age, snapshot.last_use = one.age, one.last_use
        tree.add_snapshot(snapshot)
        pool.snapshots[snapshot.id] = snapshot
    pool.go_on(last_id=state.last_id, uses=state.uses, age=state.age)
    index.rolling.update({owner: pool.snapshots[number] for owner, number in state.rolling if number in pool.snapshots})
    index.running.update(state.running)
    index.snapshot_bytes = state.snapshot_bytes
    return index


def _parents_first(tree: BlockTree) -> list[Block]:
    found: list[Block] = []
    waiting = list(tree.roots)
    while waiting:
        block = waiting.pop()
        found.append(block)
        waiting.extend(block.children)
    return found
