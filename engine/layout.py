"""What a layout is: how the KV of the running streams lies while they decode together, behind one interface.

It does not choose a layout; `selftest.py` does, by trying them on the loaded model.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import mlx.core as mx
from mlx_lm.models.cache import CacheList, KVCache, QuantizedKVCache, make_prompt_cache

GROUP_SIZES = (64, 32)  # values that share a scale: 64 where the size of the heads allows it, 32 where that does

Caches = list[Any]
"""mlx-lm's caches of one sequence, one entry a layer, batch size 1."""


class LayoutUnsupported(Exception):
    """This model can't be laid out this way; the message says why. Never leaves the choice of the layout."""


class Layout(Protocol):
    """The decoding streams of one model. Rows are numbered 0.. in the order in which they joined."""

    @property
    def kind(self) -> Literal["rows", "padded"]: ...

    def __len__(self) -> int: ...

    def join(self, caches: Caches) -> None:
        """Add a sequence as the last row. The layout owns `caches` from now on."""

    def leave(self, index: int) -> None:
        """Drop row `index`; the rows behind it move up by one."""

    def sequence(self, index: int) -> Caches:
        """Row `index` as caches of one sequence, to copy from before the next forward; never to be written.

        What lies in a batch is copied out of it lazily: layers that are not evaluated cost nothing.
        """

    def forward(self, tokens: mx.array) -> mx.array:
        """Append one token to every row. `tokens` is (B,) integers; returns lazy logits (B, V) of the next tokens."""

    def make_room(self, index: int, room_len: int) -> None:
        """Before a forward: should it find row `index` full, the row grows to `room_len` tokens."""

    def pending(self) -> list[mx.array]:
        """Arrays that the last forward replaced and that no logit needs: evaluate them with the step."""

    @property
    def kv_bytes(self) -> int:
        """Bytes that the rows hold."""


class QuantizedRow(QuantizedKVCache):  # type: ignore[misc]  # mlx-lm has no types
    """Quantised keys and values of one sequence. Its first tokens decide the size of the groups that share a scale."""

    def __init__(self, bits: int) -> None:
        super().__init__(group_size=GROUP_SIZES[0], bits=bits)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        if self.keys is None:
            self.group_size = group_size_of(keys.shape[-1], values.shape[-1])
        return super().update_and_fetch(keys, values)


def group_size_of(*head_dims: int) -> int:
    """Raises LayoutUnsupported when heads of these sizes can't be cut into groups."""
    for group_size in GROUP_SIZES:
        if all(head_dim % group_size == 0 for head_dim in head_dims):
            return group_size
    raise LayoutUnsupported(f"heads of {head_dims[0]} can't be quantised in groups of {GROUP_SIZES[-1]}")


def new_caches(model: Any, *, room_len: int, kv_bits: int | None = None) -> Caches:
    """Empty caches for one sequence, with room for `room_len` tokens; `kv_bits` quantises full attention's KV.

    Sliding windows, fixed state and layers that hold several caches stay as the model computes them.
    """
    caches: Caches = make_prompt_cache(model)
    if kv_bits is not None:
        caches = [QuantizedRow(kv_bits) if type(cache) is KVCache else cache for cache in caches]
    _grow_by(caches, room_len)
    return caches


def grow_to(caches: Sequence[Any], room_len: int) -> None:
    """Let growing layers that are full take room for `room_len` tokens in all with the next token."""
    for cache in _growing(caches):
        if not cache.empty():
            keys = cache.keys if isinstance(cache.keys, mx.array) else cache.keys[0]
            if cache.offset == keys.shape[2] and cache.offset < room_len:
                _grow_by(caches, room_len - cache.offset)
            return


def _grow_by(caches: Sequence[Any], num_tokens: int) -> None:
    for cache in _growing(caches):
        cache.step = num_tokens


def _growing(caches: Sequence[Any]) -> list[Any]:
    return [part for part in parts_of(caches) if type(part) in (KVCache, QuantizedRow)]


def parts_of(caches: Sequence[Any]) -> list[Any]:
    """The caches in order, every CacheList replaced by what it holds."""
    parts: list[Any] = []
    for cache in caches:
        parts.extend(parts_of(cache.caches) if isinstance(cache, CacheList) else [cache])
    return parts


def arrays_of(state: Any) -> list[mx.array]:
    """Every array in a cache's state, however nested."""
    if isinstance(state, mx.array):
        return [state]
    if isinstance(state, (list, tuple)):
        return [array for part in state for array in arrays_of(part)]
    return []


def held_bytes(caches: Sequence[Any]) -> int:
    # An empty QuantizedKVCache can't say that it holds nothing.
    return sum(cache.nbytes for cache in caches if not cache.empty())
