"""The prefix cache's tensors: extents of growing layers, snapshots of fixed ones, copied out of caches and into them.

It decides nothing: the index says what is kept, under which id, and what is dropped. It belongs to the worker's thread.

1. Nothing that it keeps holds a larger array alive, and nothing that it hands out can be written through.
2. An extent holds every growing layer for a run of tokens; a snapshot every fixed layer at one exact token count.
3. A restore goes layer by layer, and lets go of each layer's extents before it takes the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.blocks import BLOCK_TOKENS
from engine.kinds import (
    TOKEN_AXIS,
    is_growing,
    is_settable,
    saved_state,
    set_saved_state,
    set_token_arrays,
    token_arrays,
)
from engine.layout import Caches, arrays_of, parts_of
from engine.prefix.index import Piece

LayerArrays = tuple[mx.array, ...]
"""The arrays (1, H, T, D) of one growing layer, in the order of `token_arrays`."""


class CacheUnsupported(Exception):
    """A layer's cache can't be saved exactly; the message says which. The prefix cache is off then."""


class RestoreMismatch(Exception):
    """What was to be restored does not add up to the length asked for. The caches given must be thrown away."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Every growing layer for `num_tokens` tokens."""

    num_tokens: int
    layers: tuple[LayerArrays, ...]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for layer in self.layers for array in layer)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every fixed layer's state after exactly `covered_tokens` tokens."""

    covered_tokens: int
    states: tuple[Any, ...]

    def arrays(self) -> list[mx.array]:
        """To be evaluated by whoever took the snapshot: until then it holds on to what it is a copy of."""
        return arrays_of(self.states)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays())


@dataclass(slots=True)
class Held:
    """What a restore needs, held apart from the store: ids that are dropped there can still be restored from here.

    `layers[growing layer][piece]`; each layer is let go of as soon as it is in the caches, so a restore works once.
    """

    layers: list[list[LayerArrays]]
    num_tokens: int
    snapshot: Snapshot | None


def joined(pieces: Sequence[LayerArrays], *, room_len: int) -> list[mx.array]:
    """Each array of a layer, its pieces one after another on the token axis, with zeros up to `room_len`."""
    arrays = []
    for parts in zip(*pieces, strict=True):
        batch, heads, _, width = parts[0].shape
        length = sum(part.shape[TOKEN_AXIS] for part in parts)
        room = mx.broadcast_to(mx.array(0, parts[0].dtype), (batch, heads, room_len - length, width))
        arrays.append(mx.concatenate([*parts, room], axis=TOKEN_AXIS))
    return arrays


class PrefixStore:
    """Extents and snapshots under the ids that the index gave them.

    Raises CacheUnsupported when a layer of `example` (the model's caches, full or empty) can't be saved exactly.
    """

    def __init__(self, example: Caches) -> None:
        parts = parts_of(example)
        strangers = sorted({type(part).__name__ for part in parts if not is_settable(part)})
        if strangers:
            raise CacheUnsupported(f"the state of caches of kind {', '.join(strangers)} can't be restored")
        self.needs_snapshots = any(not is_growing(part) for part in parts)
        self._num_growing = sum(is_growing(part) for part in parts)
        self._extents: dict[int, Extent] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self.nbytes = 0

    def extent_bytes(self, caches: Caches, num_tokens: int) -> int:
        """Bytes of an extent of `num_tokens` tokens of these caches, which hold at least one. Evaluates nothing."""
        arrays = [array for part in parts_of(caches) if is_growing(part) for array in token_arrays(part)]
        return sum(array.nbytes // array.shape[TOKEN_AXIS] for array in arrays) * num_tokens

    def put_extent(self, extent_id: int, caches: Caches, start: int, end: int) -> None:
        """Keep a copy of tokens [start, end) of every growing layer. Returns while the device still copies."""
        growing = [part for part in parts_of(caches) if is_growing(part)]
        assert all(part.offset >= end for part in growing), "tokens that are not there yet"
        assert extent_id not in self._extents
        layers = tuple(tuple(mx.contiguous(array[:, :, start:end]) for array in token_arrays(part)) for part in growing)
        mx.async_eval(layers)  # type: ignore[no-untyped-call]  # so in MLX's stubs
        extent = Extent(end - start, layers)
        self._extents[extent_id] = extent
        self.nbytes += extent.nbytes

    def move_extents(self, runs: Mapping[int, tuple[int, int]], caches: Caches) -> None:
        """Keep the tokens [start, end) of each extent id, and take every growing layer out of the caches on the way.

        Returns when the device is done: a row becomes extents at a peak of one layer.
        """
        layers: dict[int, list[LayerArrays]] = {extent_id: [] for extent_id in runs}
        for part in parts_of(caches):
            if is_growing(part):
                assert all(end <= part.offset for _, end in runs.values()), "tokens that are not there yet"
                arrays = token_arrays(part)
                for extent_id, (start, end) in runs.items():
                    layers[extent_id].append(tuple(mx.contiguous(array[:, :, start:end]) for array in arrays))
                mx.eval([kept[-1] for kept in layers.values()])
                part.keys = part.values = None
        for extent_id, (start, end) in runs.items():
            extent = Extent(end - start, tuple(layers[extent_id]))
            self._extents[extent_id] = extent
            self.nbytes += extent.nbytes

    def capture(self, caches: Caches, covered_tokens: int) -> Snapshot:
        """The fixed layers of caches that hold exactly `covered_tokens` tokens. Lazy: evaluate `Snapshot.arrays()`."""
        fixed = [part for part in parts_of(caches) if not is_growing(part)]
        return Snapshot(covered_tokens, tuple(saved_state(part) for part in fixed))

    def put_snapshot(self, snapshot_id: int, snapshot: Snapshot) -> None:
        assert snapshot_id not in self._snapshots
        # Until it is evaluated, a window of one sequence holds on to all that its last slice computed.
        mx.async_eval(snapshot.arrays())  # type: ignore[no-untyped-call]  # so in MLX's stubs
        self._snapshots[snapshot_id] = snapshot
        self.nbytes += snapshot.nbytes

    def hold(self, pieces: Sequence[Piece], snapshot_id: int | None) -> Held:
        """What a restore of these pieces, in order, needs. From here on their ids may be dropped.

        Raises RestoreMismatch for blocks that an extent does not have.
        """
        layers: list[list[LayerArrays]] = [[] for _ in range(self._num_growing)]
        for piece in pieces:
            extent = self._extents[piece.extent_id]
            start, end = piece.first * BLOCK_TOKENS, (piece.first + piece.num_blocks) * BLOCK_TOKENS
            if not 0 <= start < end <= extent.num_tokens:
                raise RestoreMismatch(f"tokens [{start}, {end}) of an extent of {extent.num_tokens}")
            is_whole = end - start == extent.num_tokens
            for layer, arrays in zip(layers, extent.layers, strict=True):
                layer.append(arrays if is_whole else tuple(array[:, :, start:end] for array in arrays))
        num_tokens = sum(piece.num_blocks for piece in pieces) * BLOCK_TOKENS
        return Held(layers, num_tokens, None if snapshot_id is None else self._snapshots[snapshot_id])

    def restore(self, held: Held, *, length: int, caches: Caches, room_len: int) -> None:
        """Fill fresh `caches` with the first `length` tokens, in buffers that have room for `room_len`.

        Returns when the device is done. A layer is waited for when the next one has been asked for, so where the store
        no longer has what is held, the peak is two layers.
        Raises RestoreMismatch when what is held, or a layer afterwards, does not stand at exactly `length` tokens.
        """
        self._check(held, length)
        parts = parts_of(caches)
        assert all(part.empty() for part in parts), "only fresh caches can be restored into"
        fixed = [part for part in parts if not is_growing(part)]
        held.layers.reverse()
        before: list[mx.array] = []
        for part in parts:
            if is_growing(part):
                arrays = joined(held.layers.pop(), room_len=max(room_len, length))
                mx.async_eval(arrays)  # type: ignore[no-untyped-call]  # so in MLX's stubs
                mx.eval(before)
                set_token_arrays(part, arrays, length)
                before = arrays
        mx.eval(before)
        if held.snapshot is not None:
            for part, state in zip(fixed, held.snapshot.states, strict=True):
                set_saved_state(part, state)
            held.snapshot = None
            mx.eval(arrays_of([part.state for part in fixed]))
        for part in parts:
            if getattr(part, "offset", length) != length:
                name = type(part).__name__
                raise RestoreMismatch(f"{name} stands at {part.offset} tokens, {length} were to be restored")

    def drop(self, extents: Iterable[int], snapshots: Iterable[int]) -> None:
        for extent_id in extents:
            self.nbytes -= self._extents.pop(extent_id).nbytes
        for snapshot_id in snapshots:
            self.nbytes -= self._snapshots.pop(snapshot_id).nbytes

    def _check(self, held: Held, length: int) -> None:
        if held.num_tokens != length:
            raise RestoreMismatch(f"the blocks cover {held.num_tokens} tokens, {length} were to be restored")
        if not self.needs_snapshots:
            return
        if held.snapshot is None:
            raise RestoreMismatch("the model has fixed layers, and there is no snapshot")
        if held.snapshot.covered_tokens != length:
            raise RestoreMismatch(f"the snapshot covers {held.snapshot.covered_tokens} tokens, not {length}")
