"""Whatever is added, looked up, pinned, cut and cleared in any order: pieces give back the very tokens they stand for.

The store is faked by the tokens that each extent and snapshot was made from.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.blocks import BLOCK_TOKENS, TokenBlocks
from engine.prefix.boundaries import DURABILITY
from engine.prefix.index import Match, PrefixIndex
from tests.unit.engine_prefix.publishing import an_index

KV_BYTES = 3  # per token
OWNERS = ("a", "b", "c")

# Few different blocks, so that sequences share prefixes and fork at every depth, within blocks too.
BLOCKS = st.sampled_from([(1,) * BLOCK_TOKENS, (2,) * BLOCK_TOKENS, (1,) * 20 + (3,) * 12])
SEQUENCES = st.builds(
    lambda lead, blocks, tail: (1,) * (lead * BLOCK_TOKENS) + sum(blocks, ()) + (1,) * tail,
    st.integers(0, 14),
    st.lists(BLOCKS, max_size=12),
    st.integers(0, BLOCK_TOKENS - 1),
)


@dataclass
class FakeStore:
    """Tokens instead of tensors."""

    extents: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)  # tokens up to its end, its start
    snapshots: dict[int, tuple[int, ...]] = field(default_factory=dict)
    nbytes: dict[int, int] = field(default_factory=dict)

    def drop(self, index: PrefixIndex) -> None:
        dropped = index.take_dropped()
        for piece_id in dropped.extents:
            del self.extents[piece_id], self.nbytes[piece_id]
        for piece_id in dropped.snapshots:
            del self.snapshots[piece_id], self.nbytes[piece_id]

    def restore(self, match: Match) -> tuple[int, ...]:
        restored: tuple[int, ...] = ()
        for piece in match.pieces:
            tokens, start = self.extents[piece.extent_id]
            first = start + piece.first * BLOCK_TOKENS
            assert first == len(restored) and tokens[:first] == restored
            restored = tokens[: first + piece.num_blocks * BLOCK_TOKENS]
        assert match.snapshot_id is None or self.snapshots[match.snapshot_id] == restored
        return restored


class IndexMachine(RuleBasedStateMachine):
    needs_snapshots: bool

    @initialize(budget=st.integers(0, 6_000))
    def start(self, budget):
        self.index = an_index(budget_bytes=budget, needs_snapshots=self.needs_snapshots)
        self.budget = budget
        self.store = FakeStore()
        self.pinned: list[Match] = []

    @rule(tokens=SEQUENCES, upto=st.integers(0, 30))
    def add_extents(self, tokens, upto):
        blocks = TokenBlocks(tokens)
        for run in self.index.missing(blocks, upto_len=min(upto * BLOCK_TOKENS, len(tokens))):
            assert 1 <= run.num_blocks <= 8
            assert run.first_block // 8 == (run.first_block + run.num_blocks - 1) // 8
            start, end = run.first_block * BLOCK_TOKENS, (run.first_block + run.num_blocks) * BLOCK_TOKENS
            extent_id = self.index.add_extent(blocks, run, nbytes=(end - start) * KV_BYTES)
            self.store.drop(self.index)
            if extent_id is None:
                break
            self.store.extents[extent_id] = (tokens[:end], start)
            self.store.nbytes[extent_id] = (end - start) * KV_BYTES

    @rule(
        tokens=SEQUENCES,
        depth=st.integers(1, 26),
        nbytes=st.integers(0, 900),
        kind=st.sampled_from([*DURABILITY, "rolling"]),
        owner=st.sampled_from(OWNERS),
        publishes=st.booleans(),
    )
    def add_snapshot(self, tokens, depth, nbytes, kind, owner, publishes):
        blocks = TokenBlocks(tokens)
        length = min(depth, blocks.num_blocks) * BLOCK_TOKENS
        if not length:
            return
        if publishes:
            self.add_extents(tokens, blocks.num_blocks)
        had_one = self.index.has_snapshot(blocks, length)
        snapshot_id = self.index.add_snapshot(blocks, length, nbytes=nbytes, kind=kind, owner=owner)
        self.store.drop(self.index)
        assert not (had_one and snapshot_id is not None)
        if snapshot_id is not None:
            self.store.snapshots[snapshot_id] = tokens[:length]
            self.store.nbytes[snapshot_id] = nbytes
            assert self.index.has_snapshot(blocks, length)

    @rule(tokens=SEQUENCES, cut=st.integers(1, 100), pins=st.booleans())
    def look_up(self, tokens, cut, pins):
        blocks = TokenBlocks(tokens)
        limit_len = max(len(tokens) - cut, 0)
        ahead = self.index.peek(blocks, limit_len=limit_len)

        match = self.index.match(blocks, limit_len=limit_len, request_id="r")

        assert match.restore_len == ahead <= match.matched_len <= limit_len
        assert self.store.restore(match) == tokens[: match.restore_len]
        assert (match.snapshot_id is not None) == (self.needs_snapshots and match.restore_len > 0)
        if match.restore_len == limit_len // BLOCK_TOKENS * BLOCK_TOKENS:
            assert match.explanation is None
        elif match.explanation is None:  # it goes on where an earlier one ended
            assert match.restore_len == match.matched_len > 0
        if match.junction_len is not None:
            assert self.needs_snapshots and match.restore_len < match.junction_len <= limit_len
        if match.explanation is not None:
            first_difference = match.explanation.first_difference
            assert match.matched_len <= (first_difference or 0) <= len(tokens)
        if pins and len(self.pinned) < 3:
            self.index.pin(match)
            self.pinned.append(match)

    @rule(data=st.data())
    def unpin(self, data):
        if self.pinned:
            match = self.pinned.pop(data.draw(st.integers(0, len(self.pinned) - 1)))
            self.index.unpin(match)
            self.index.set_budget(self.budget)
            self.store.drop(self.index)

    @rule(budget=st.integers(0, 6_000))
    def cut_the_budget(self, budget):
        self.budget = budget
        self.index.set_budget(budget)
        self.store.drop(self.index)

    @rule(owner=st.sampled_from(OWNERS))
    def release(self, owner):
        self.index.release(owner)

    @rule()
    def clear(self):
        self.index.clear()
        self.store.drop(self.index)
        kept = {match.pieces[-1].extent_id for match in self.pinned if match.pieces}
        assert kept <= set(self.store.extents)
        assert self.pinned or not self.store.nbytes

    @invariant()
    def links_and_bytes_hold(self):
        self.index.check()
        assert sum(self.store.nbytes.values()) == self.index.used_bytes
        assert self.index.used_bytes <= self.budget or self.pinned

    @invariant()
    def pinned_pieces_are_there(self):
        for match in self.pinned:
            assert len(self.store.restore(match)) == match.restore_len


class DenseMachine(IndexMachine):
    needs_snapshots = False


class HybridMachine(IndexMachine):
    needs_snapshots = True


SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None)
DenseMachine.TestCase.settings = SETTINGS
HybridMachine.TestCase.settings = SETTINGS
TestDenseIndex = DenseMachine.TestCase
TestHybridIndex = HybridMachine.TestCase


def test_the_check_notices_bytes_that_nobody_holds():
    index = an_index()
    index._ledger.block_bytes += 1

    with pytest.raises(AssertionError):
        index.check()


def test_the_fake_store_notices_pieces_in_the_wrong_place():
    machine = DenseMachine()
    machine.start(budget=6_000)
    machine.add_extents(tokens=(1,) * 640, upto=20)
    match = machine.index.match(TokenBlocks((1,) * 640), limit_len=639, request_id="r")
    swapped = Match(match.restore_len, match.matched_len, match.pieces[::-1], None, None, None)

    with pytest.raises(AssertionError):
        machine.store.restore(swapped)
