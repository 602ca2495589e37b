"""What a layout is: how the KV of the running streams lies while they decode together, behind one interface.

It does not choose a layout; `selftest.py` does, by trying them on the loaded model.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import mlx.core as mx
from mlx_lm.models.cache import KVCache, make_prompt_cache

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

    def forward(self, tokens: mx.array) -> mx.array:
        """Append one token to every row. `tokens` is (B,) integers; returns lazy logits (B, V) of the next tokens."""

    def make_room(self, index: int, room_len: int) -> None:
        """Before a forward: should it find row `index` full, the row grows to `room_len` tokens."""

    def pending(self) -> list[mx.array]:
        """Arrays that the last forward replaced and that no logit needs: evaluate them with the step."""

    @property
    def kv_bytes(self) -> int:
        """Bytes that the rows hold."""


def new_caches(model: Any, *, room_len: int) -> Caches:
    """Empty caches for one sequence, with room for `room_len` tokens."""
    caches: Caches = make_prompt_cache(model)
    _grow_by(caches, room_len)
    return caches


def grow_to(caches: Sequence[Any], room_len: int) -> None:
    """Let growing layers that are full take room for `room_len` tokens in all with the next token."""
    for cache in caches:
        if type(cache) is KVCache:
            is_full = cache.keys is not None and cache.offset == cache.keys.shape[2]
            if is_full and cache.offset < room_len:
                _grow_by(caches, room_len - cache.offset)
            return


def _grow_by(caches: Sequence[Any], num_tokens: int) -> None:
    for cache in caches:
        if type(cache) is KVCache:
            cache.step = num_tokens


def arrays_of(state: Any) -> list[mx.array]:
    """Every array in a cache's state, however nested."""
    if isinstance(state, mx.array):
        return [state]
    if isinstance(state, (list, tuple)):
        return [array for part in state for array in arrays_of(part)]
    return []


def held_bytes(caches: Sequence[Any]) -> int:
    return sum(cache.nbytes for cache in caches)
