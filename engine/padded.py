"""The layouts for models that can't be laid out in rows: mlx-lm's own padded batch caches, and no batch at all.

They are correct before they are fast: a padded row reads and stores as much as the longest one.
"""

from typing import Any, Literal

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, BatchKVCache, CacheList

from engine.layout import Caches, LayoutUnsupported, arrays_of, grow_to, held_bytes, parts_of


class PaddedLayout:
    """Left-padded to the longest row. A stream alone keeps its own caches, so it pays for no padding.

    Raises LayoutUnsupported when a layer's cache can't be merged.
    """

    kind: Literal["padded"] = "padded"

    def __init__(self, model: Any, example: Caches) -> None:
        strangers = sorted({type(cache).__name__ for cache in example if not hasattr(cache, "merge")})
        if strangers:
            raise LayoutUnsupported(f"no merging for caches of kind {', '.join(strangers)}")
        self._model = model
        self._layers: Caches = []
        self._width = 0
        self._longest_room = 0

    def __len__(self) -> int:
        return self._width

    def join(self, caches: Caches) -> None:
        """Takes `caches` apart: a layer is copied and let go of before the next, so the peak is about a layer more."""
        if self._width == 0:
            self._layers = caches
        else:
            caches.reverse()
            for index, layer in enumerate(self._layers):
                cache = caches.pop()
                if self._width == 1:
                    self._layers[index] = type(layer).merge([layer, cache])
                else:
                    layer.extend(type(cache).merge([cache]))
                mx.eval(arrays_of(self._layers[index].state))
        self._width += 1

    def leave(self, index: int) -> None:
        self._width -= 1
        if self._width == 0:
            self._layers = []
        elif self._width == 1:
            self._layers = [alone(layer.extract(1 - index)) for layer in self._layers]
        else:
            kept = [row for row in range(self._width + 1) if row != index]
            for layer in self._layers:
                layer.filter(kept)

    def sequence(self, index: int) -> Caches:
        if self._width == 1:
            return self._layers
        return [alone(layer.extract(index)) for layer in self._layers]

    def forward(self, tokens: mx.array) -> mx.array:
        logits: mx.array = self._model(tokens[:, None], cache=self._layers)
        return logits[:, -1, :]

    def make_room(self, index: int, room_len: int) -> None:
        if self._width == 1:
            grow_to(self._layers, room_len)
            return
        self._longest_room = max(room_len, self._longest_room if index else 0)
        if index == self._width - 1:  # all rows grow together, when the longest is full
            for part in parts_of(self._layers):
                if type(part) is BatchKVCache:
                    part.step = max(1, self._longest_room - part._idx)

    def pending(self) -> list[mx.array]:
        return arrays_of([layer.state for layer in self._layers])

    @property
    def kv_bytes(self) -> int:
        return held_bytes(self._layers)


class OneByOneLayout:
    """No batch: each row is a step of its own, one after another. For models whose caches can't be merged at all."""

    kind: Literal["padded"] = "padded"

    def __init__(self, model: Any, example: Caches) -> None:
        del example  # any cache will do
        self._model = model
        self._sequences: list[Caches] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def join(self, caches: Caches) -> None:
        self._sequences.append(caches)

    def leave(self, index: int) -> None:
        self._sequences.pop(index)

    def sequence(self, index: int) -> Caches:
        return self._sequences[index]

    def forward(self, tokens: mx.array) -> mx.array:
        rows = zip(mx.split(tokens, len(self)), self._sequences, strict=True)
        return mx.concatenate([self._model(token[:, None], cache=caches)[:, -1, :] for token, caches in rows])

    def make_room(self, index: int, room_len: int) -> None:
        grow_to(self._sequences[index], room_len)

    def pending(self) -> list[mx.array]:
        return arrays_of([cache.state for caches in self._sequences for cache in caches])

    @property
    def kv_bytes(self) -> int:
        return sum(held_bytes(caches) for caches in self._sequences)


def alone(cache: Any) -> Any:
    """The same cache, its arrays copied out of the batch: a slice would keep the whole batch in memory."""
    if isinstance(cache, ArraysCache):
        cache.cache = [None if array is None else mx.contiguous(array) for array in cache.cache]
    elif isinstance(cache, CacheList):
        cache.caches = tuple(alone(part) for part in cache.caches)
    return cache
