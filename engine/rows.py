"""The rows layout: each stream keeps its own KV, linear layers and experts run batched, attention runs row by row.

It computes no attention itself: mlx-lm's own function is called once a row, and models that do attention their own way
fail the self-test and get the padded layout.

How it meets mlx-lm: a layer's cache answers `offset`, `make_mask` and `update_and_fetch`. `AttentionRows` answers for
all rows at once, K and V as tuples of rows, and the name `scaled_dot_product_attention` in the model's own modules is
replaced by one that takes such tuples apart. Recurrent state has a fixed size, so it is one batched array a layer.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, Literal

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

from engine.layout import Caches, LayoutUnsupported, QuantizedRow, grow_to, held_bytes

ATTENTION_NAME = "scaled_dot_product_attention"
ATTENTION_CACHES = (KVCache, QuantizedRow, RotatingKVCache)

Attention = Callable[..., mx.array]


class PerRow(list[Any]):
    """One value a row, where mlx-lm has a single one: keys or values (1, H, T, D), quantised or not, or masks."""


ALL = slice(None)


class Positions:
    """Where the next token of each row goes: one array a step, shared by all layers."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array = mx.array([], dtype=mx.int32)


class AttentionRows:
    """What a layer's attention sees as its cache: the own caches of all rows."""

    __slots__ = ("_positions", "rows")

    def __init__(self, positions: Positions) -> None:
        self.rows: list[Any] = []
        self._positions = positions

    @property
    def offset(self) -> mx.array:
        return self._positions.array

    def make_mask(self, num_tokens: int, **options: Any) -> Any:
        masks = [row.make_mask(num_tokens, **options) for row in self.rows]
        if all(mask is None for mask in masks):
            return None
        return PerRow(masks)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[PerRow, PerRow]:
        """Append (B, H, T, D) to the rows; returns the whole K and V of each."""
        width, num_tokens = len(self.rows), keys.shape[2]
        all_keys, all_values = PerRow(), PerRow()
        for row, row_keys, row_values in zip(self.rows, mx.split(keys, width), mx.split(values, width), strict=True):
            held_keys, held_values, start = row.keys, row.values, row.offset
            end = start + num_tokens
            if type(row) is not KVCache or held_keys is None or end > held_keys.shape[2]:
                held_keys, held_values = row.update_and_fetch(row_keys, row_values)
            else:
                # What KVCache does, in two thirds of the host's time: a step does this for each row of each layer.
                place, whole = (ALL, ALL, slice(start, end)), (ALL, ALL, slice(end))
                held_keys[place] = row_keys
                held_values[place] = row_values
                row.offset = end
                held_keys, held_values = held_keys[whole], held_values[whole]
            all_keys.append(held_keys)
            all_values.append(held_values)
        return all_keys, all_values

    def keys_and_values(self) -> tuple[PerRow, PerRow]:
        fetched = [row.keys_and_values() for row in self.rows]
        return PerRow(pair[0] for pair in fetched), PerRow(pair[1] for pair in fetched)


def by_rows(attention: Attention) -> Attention:
    """`attention`, but rows are computed one by one over their own length. Anything else goes through untouched."""

    @functools.wraps(attention)
    def attend(
        queries: mx.array, keys: Any, values: Any, cache: Any, scale: float, mask: Any, **options: Any
    ) -> mx.array:
        if not isinstance(keys, PerRow):
            return attention(queries, keys, values, cache=cache, scale=scale, mask=mask, **options)
        width = len(keys)
        masks = mask if isinstance(mask, PerRow) else (mask,) * width
        # mlx-lm's attention asks the cache itself whether, and how, its keys are quantised.
        caches = cache.rows if isinstance(cache, AttentionRows) else (cache,) * width
        rows = zip(mx.split(queries, width), keys, values, caches, masks, strict=True)
        return mx.concatenate(
            [attention(q, k, v, cache=own, scale=scale, mask=m, **options) for q, k, v, own, m in rows]
        )

    attend.takes_rows = True  # type: ignore[attr-defined]  # marks what is already replaced
    return attend


def replace_attention(model: Any) -> tuple[str, ...]:
    """Make attention take rows in every module that the model's classes come from; returns the names of the modules."""
    replaced = set()
    for part in model.modules():
        module = sys.modules[type(part).__module__]
        attention = vars(module).get(ATTENTION_NAME)
        if attention is None:
            continue
        if not hasattr(attention, "takes_rows"):
            setattr(module, ATTENTION_NAME, by_rows(attention))
        replaced.add(module.__name__)
    return tuple(sorted(replaced))


class RowsLayout:
    """Raises LayoutUnsupported when a layer's cache is neither growing KV, a sliding window nor fixed state."""

    kind: Literal["rows"] = "rows"

    def __init__(self, model: Any, example: Caches) -> None:
        known = (*ATTENTION_CACHES, ArraysCache)
        strangers = sorted({type(cache).__name__ for cache in example if type(cache) not in known})
        if strangers:
            raise LayoutUnsupported(f"no rows for caches of kind {', '.join(strangers)}")
        modules = replace_attention(model)
        if not modules and any(type(cache) in ATTENTION_CACHES for cache in example):
            raise LayoutUnsupported(f"the model does not call {ATTENTION_NAME}")
        self._model = model
        self._positions = Positions()
        self._lengths: list[int] = []
        self._sequences: list[Caches] = []
        self._layers: list[Any] = [
            AttentionRows(self._positions) if type(cache) in ATTENTION_CACHES else None for cache in example
        ]

    def __len__(self) -> int:
        return len(self._sequences)

    def join(self, caches: Caches) -> None:
        """Copies no KV. Fixed state is concatenated, which copies that state only."""
        for index, cache in enumerate(caches):
            layer = self._layers[index]
            if isinstance(layer, AttentionRows):
                layer.rows.append(cache)
            elif layer is None:
                self._layers[index] = cache
            else:
                layer.extend(cache)
        self._sequences.append([cache for cache in caches if type(cache) in ATTENTION_CACHES])
        self._lengths.append(next((cache.offset for cache in caches if type(cache) in ATTENTION_CACHES), 0))

    def leave(self, index: int) -> None:
        self._sequences.pop(index)
        self._lengths.pop(index)
        kept = [row for row in range(len(self._sequences) + 1) if row != index]
        for number, layer in enumerate(self._layers):
            if isinstance(layer, AttentionRows):
                layer.rows.pop(index)
            elif kept:
                layer.filter(kept)
            else:
                self._layers[number] = None

    def sequence(self, index: int) -> Caches:
        return [
            layer.rows[index] if isinstance(layer, AttentionRows) else row_of_state(layer, index)
            for layer in self._layers
        ]

    def forward(self, tokens: mx.array) -> mx.array:
        if len(self) == 1:
            # Alone, a stream is exactly what plain mlx-lm would run.
            caches = [layer.rows[0] if isinstance(layer, AttentionRows) else layer for layer in self._layers]
        else:
            self._positions.array = mx.array(self._lengths, dtype=mx.int32)
            caches = self._layers
        logits: mx.array = self._model(tokens[:, None], cache=caches)
        self._lengths = [length + 1 for length in self._lengths]
        return logits[:, -1, :]

    def make_room(self, index: int, room_len: int) -> None:
        grow_to(self._sequences[index], room_len)

    def pending(self) -> list[mx.array]:
        return [
            array
            for layer in self._layers
            if isinstance(layer, ArraysCache)
            for array in layer.cache
            if array is not None
        ]

    @property
    def kv_bytes(self) -> int:
        fixed = [layer for layer in self._layers if layer is not None and not isinstance(layer, AttentionRows)]
        return held_bytes(fixed) + sum(held_bytes(sequence) for sequence in self._sequences)


def row_of_state(batch: ArraysCache, index: int) -> ArraysCache:
    """Row `index` of batched fixed state, copied: a slice would keep the whole batch in memory."""
    row = ArraysCache(len(batch.cache))
    row.cache = [None if array is None else mx.contiguous(array[index : index + 1]) for array in batch.cache]
    return row
