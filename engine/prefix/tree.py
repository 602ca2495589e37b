"""The tree of blocks that the prefix cache knows: stored ones in extents, and ghosts that were evicted not long ago.

It decides nothing and counts no bytes: the index adds and removes, this keeps blocks, extents and snapshots linked.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.blocks import BLOCK_TOKENS, TOKEN_BYTES, TokenBlocks
from engine.wire import SnapshotKind

EXTENT_BLOCKS: Final = 8  # 256 tokens: saving 32k tokens took 23 ms so, 249 ms block by block (shared notes, MLX)
MAX_GHOSTS: Final = 65_536  # blocks of which only the tokens are remembered: about 20 MB
MOST_COMPARED: Final = 256  # blocks that begin alike, when the first differing token is looked for


class Block:
    """32 tokens behind all that come before them. `extent` None: a ghost, its tensors were evicted."""

    __slots__ = ("children", "content", "extent", "had_snapshot", "key", "parent", "snapshot")

    def __init__(self, key: bytes, content: bytes, parent: "Block | None") -> None:
        self.key = key
        self.content = content
        self.parent = parent
        self.children: list[Block] = []
        self.extent: Extent | None = None
        self.snapshot: Snapshot | None = None
        self.had_snapshot = False  # one was evicted here


class Extent:
    """The growing layers of 1 to 8 consecutive blocks. `path_bytes`: its own and those of all extents before it."""

    __slots__ = (
        "age",
        "blocks",
        "first_block",
        "id",
        "last_use",
        "nbytes",
        "num_children",
        "num_snapshots",
        "parent",
        "path_bytes",
        "pins",
        "uses",
    )

    def __init__(self, extent_id: int, first_block: int, blocks: list[Block], parent: "Extent | None", nbytes: int):
        self.id = extent_id
        self.first_block = first_block
        self.blocks = blocks
        self.parent = parent
        self.nbytes = nbytes
        self.path_bytes: int = nbytes + (parent.path_bytes if parent is not None else 0)
        self.num_children = 0
        self.num_snapshots = 0  # that hang on its own blocks
        self.pins = 0
        self.uses = 1
        self.age = 0.0
        self.last_use = 0


class Snapshot:
    """The fixed layers after exactly `length` tokens. `parent`: the next shallower one on its path, or the root's."""

    __slots__ = (
        "age",
        "block",
        "children",
        "extent",
        "id",
        "is_left_behind",
        "kind",
        "last_use",
        "length",
        "nbytes",
        "owner",
        "parent",
        "pins",
        "uses",
    )

    def __init__(
        self,
        snapshot_id: int,
        block: Block,
        extent: Extent,
        length: int,
        nbytes: int,
        kind: SnapshotKind,
        owner: str,
    ) -> None:
        self.id = snapshot_id
        self.block = block
        self.extent = extent
        self.length = length
        self.nbytes = nbytes
        self.kind = kind
        self.owner = owner
        self.parent: Snapshot | None = None
        self.children: set[Snapshot] = set()
        self.uses = 0  # how often a request was restored from it
        self.is_left_behind = False
        self.pins = 0
        self.age = 0.0
        self.last_use = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a sequence goes along known blocks: the first `num_live` are stored, the others are ghosts.

    `has_collision`: the next block has a known key, but other tokens.
    """

    path: list[Block]
    num_live: int
    has_collision: bool

    def is_continued(self, length: int) -> bool:
        """Whether all that was known of the sequence ends at `length`: an earlier one ended there, and this goes on."""
        return bool(self.path) and len(self.path) * BLOCK_TOKENS == length and not self.path[-1].children


class BlockTree:
    """Owns blocks and their links. Live blocks are closed under "comes before", and so are known ones."""

    def __init__(self, *, max_ghosts: int = MAX_GHOSTS) -> None:
        self._max_ghosts = max_ghosts
        self._root = Block(b"", b"", None)
        self._known: dict[bytes, Block] = {}
        self._ghosts: OrderedDict[bytes, None] = OrderedDict()  # oldest first: children before their parents
        nothing = Extent(0, 0, [], None, 0)
        self.no_snapshot = Snapshot(0, self._root, nothing, 0, 0, "shared_end", "")  # above all: nothing computed yet

    @property
    def num_live(self) -> int:
        return len(self._known) - len(self._ghosts)

    @property
    def known(self) -> list[Block]:
        return list(self._known.values())

    @property
    def roots(self) -> list[Block]:
        """The known blocks with which sequences begin."""
        return list(self._root.children)

    @property
    def ghosts(self) -> list[Block]:
        """Oldest first."""
        return [self._known[key] for key in self._ghosts]

    def block(self, blocks: TokenBlocks, index: int) -> Block | None:
        """The live block at `index` of a sequence, its own tokens compared."""
        block = self._known.get(blocks.keys[index])
        if block is None or block.extent is None or block.content != blocks.content(index):
            return None
        return block

    def num_live_blocks(self, keys: list[bytes], limit: int) -> int:
        """As far as live blocks go along the first `limit` keys, by bisection. The keys are trusted."""
        low, high = 0, min(limit, len(keys))
        while low < high:
            middle = (low + high) // 2
            block = self._known.get(keys[middle])
            if block is not None and block.extent is not None:
                low = middle + 1
            else:
                high = middle
        return low

    def snapshot(self, key: bytes) -> Snapshot | None:
        block = self._known.get(key)
        return None if block is None else block.snapshot

    def walk(self, blocks: TokenBlocks, num_blocks: int) -> Walk:
        """Follow the first `num_blocks` of a sequence, comparing the tokens of each."""
        path: list[Block] = []
        find, content, keys = self._known.get, blocks.content, blocks.keys
        has_collision = False
        for index in range(num_blocks):
            block = find(keys[index])
            if block is None:
                break
            if block.content != content(index):
                has_collision = True
                break
            path.append(block)
        return Walk(path, bisect_left(path, True, key=lambda block: block.extent is None), has_collision)

    def first_difference(self, blocks: TokenBlocks, path: list[Block]) -> int | None:
        """Position of the first token of a sequence that no known one has there; None: nothing begins alike.

        Known are full blocks, the newest of those that begin alike. Where an earlier sequence ended, or had less than
        a block more, it is that block's start.
        """
        index = len(path)
        own = array("I", blocks.tail(index))
        alike = 0
        for child in (path[-1] if path else self._root).children[-MOST_COMPARED:]:
            theirs = memoryview(child.content).cast("I")
            same = 0
            while same < len(own) and own[same] == theirs[same]:
                same += 1
            alike = max(alike, same)
        return index * BLOCK_TOKENS + alike or None

    def add_extent(
        self, blocks: TokenBlocks, first_block: int, num_blocks: int, *, extent_id: int, nbytes: int
    ) -> Extent:
        """The blocks must not be live, and the one before them must."""
        parent = self._known[blocks.keys[first_block - 1]] if first_block else self._root
        chain: list[Block] = []
        for index in range(first_block, first_block + num_blocks):
            key = blocks.keys[index]
            parent = self._known.get(key) or self.know(key, blocks.content(index), parent)
            self._ghosts.pop(key, None)
            chain.append(parent)
        return self.fill(chain, first_block, extent_id=extent_id, nbytes=nbytes)

    def know(self, key: bytes, content: bytes, parent: Block | None) -> Block:
        """A block that was not known, and is not stored yet. `parent` None: a sequence begins with it."""
        parent = parent or self._root
        block = self._known[key] = Block(key, content, parent)
        parent.children.append(block)
        return block

    def fill(self, chain: list[Block], first_block: int, *, extent_id: int, nbytes: int) -> Extent:
        """Blocks that follow one another are stored from now on, the first as the `first_block`th of its sequence."""
        assert chain[0].parent is not None
        before = chain[0].parent.extent
        extent = Extent(extent_id, first_block, chain, before, nbytes)
        for block in chain:
            block.extent = extent
        if before is not None:
            before.num_children += 1
        return extent

    def remember_ghosts(self, blocks: Iterable[Block]) -> None:
        """Known blocks that are not stored, oldest first."""
        for block in blocks:
            self._ghosts[block.key] = None

    def remove_extent(self, extent: Extent) -> None:
        """Its blocks become ghosts."""
        for block in reversed(extent.blocks):
            block.extent = None
            self._ghosts[block.key] = None
        if extent.parent is not None:
            extent.parent.num_children -= 1
        self._forget(self._max_ghosts)

    def forget_ghosts(self) -> None:
        self._forget(0)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Hang it between the next shallower one and the deeper ones on the paths through its block."""
        block = snapshot.block
        parent = self._snapshot_above(block)
        snapshot.parent = parent
        if any(child.extent is not None for child in block.children):
            index = snapshot.length // BLOCK_TOKENS - 1
            snapshot.children = {child for child in parent.children if _passes_through(child, block, index)}
            parent.children -= snapshot.children
            for child in snapshot.children:
                child.parent = snapshot
        parent.children.add(snapshot)
        block.snapshot = snapshot
        snapshot.extent.num_snapshots += 1

    def remove_snapshot(self, snapshot: Snapshot) -> None:
        parent = snapshot.parent
        assert parent is not None
        parent.children.remove(snapshot)
        parent.children |= snapshot.children
        for child in snapshot.children:
            child.parent = parent
        snapshot.block.snapshot = None
        snapshot.extent.num_snapshots -= 1

    def _snapshot_above(self, block: Block) -> Snapshot:
        above = block.parent
        while above is not None:
            if above.snapshot is not None:
                return above.snapshot
            above = above.parent
        return self.no_snapshot

    def _forget(self, keep: int) -> None:
        while len(self._ghosts) > keep:
            key, _ = self._ghosts.popitem(last=False)  # a plain dict looks for its first key among all deleted ones
            block = self._known.pop(key)
            assert block.parent is not None
            block.parent.children.remove(block)

    def check(self) -> None:
        """Links hold. For tests."""
        for key, block in self._known.items():
            assert key == block.key and block.parent is not None and len(block.content) == BLOCK_TOKENS * TOKEN_BYTES
            assert block in block.parent.children
            assert block.parent is self._root or self._known[block.parent.key] is block.parent
            assert (block.extent is None) == (key in self._ghosts)
            assert block.extent is not None or block.snapshot is None
            if block.extent is not None:
                assert block in block.extent.blocks
                assert block.parent is self._root or block.parent.extent is not None
            if block.snapshot is not None:
                assert block.snapshot.block is block and block.snapshot.extent is block.extent
                assert block.snapshot.parent is self._snapshot_above(block)
                assert block.snapshot in block.snapshot.parent.children
        assert len(self._ghosts) <= self._max_ghosts


def _passes_through(snapshot: Snapshot, block: Block, index: int) -> bool:
    """Whether the path of a snapshot, which is not before `block` on it, holds `block`: the one at `index`."""
    extent: Extent | None = snapshot.extent
    while extent is not None and extent.first_block > index:
        extent = extent.parent
    return extent is block.extent
