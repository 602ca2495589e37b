"""The kinds of mlx-lm's caches: growing ones, with one place a token, and fixed ones; and how each is taken apart.

It stores nothing and computes nothing; the prefix store keeps what is taken apart here. All copies are lazy.

A growing part (full attention, quantised or not, a sparse indexer's keys) can be cut at any token. A fixed part
(recurrent and convolution state, sliding windows, and whatever is not known) is what it is at one exact token count,
so it is saved whole. The self-test decides whether that is true of the loaded model.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

TOKEN_AXIS = 2
WEIGHT_BITS = 32  # quantised weights are packed into 32-bit integers


def is_growing(part: Any) -> bool:
    return type(part) is KVCache or isinstance(part, QuantizedKVCache)


def is_settable(part: Any) -> bool:
    """Whether a fixed part's state can be read and set."""
    state = getattr(type(part), "state", None)
    return isinstance(state, property) and state.fset is not None


def token_arrays(part: Any) -> tuple[mx.array, ...]:
    """A growing part's arrays (1, H, capacity, D): keys and values, or weights, scales and biases of both.

    It holds at least one token.
    """
    if isinstance(part, QuantizedKVCache):
        return (*part.keys, *part.values)
    return (part.keys, part.values)


def set_token_arrays(part: Any, arrays: Sequence[mx.array], length: int) -> None:
    """Make a growing part hold `length` tokens in `arrays`, which are in the order of `token_arrays`."""
    if isinstance(part, QuantizedKVCache):
        part.keys, part.values = tuple(arrays[:3]), tuple(arrays[3:])
        weights, scales, _ = part.keys
        part.group_size = weights.shape[-1] * WEIGHT_BITS // part.bits // scales.shape[-1]
    else:
        part.keys, part.values = arrays
    part.offset = length


def saved_state(part: Any) -> Any:
    """A fixed part's state in arrays of its own. Room that it has not used yet and tokens that it would drop first
    thing are left out: mlx-lm's own next update computes the same with and without them.
    """
    match part:
        case RotatingKVCache(keys=mx.array()):
            return own_arrays(_saved_window(part))
        case ChunkedKVCache(keys=mx.array()):
            keys, values = part.keys_and_values()
            return own_arrays((keys, values, *part.state[2:]))
    return own_arrays(part.state)


def set_saved_state(part: Any, state: Any) -> None:
    # Caches write into their arrays in place, so they must never be given the saved objects themselves.
    part.state = own_arrays(state)


def own_arrays(state: Any) -> Any:
    """The same tree with arrays of its own, which keep nothing larger alive: a slice would keep what it was cut from.

    An array that already fills its buffer shares it; a later write copies it first.
    """
    if isinstance(state, mx.array):
        return mx.contiguous(state)
    if isinstance(state, (list, tuple)):
        return type(state)(own_arrays(part) for part in state)
    if isinstance(state, dict):
        return {name: own_arrays(part) for name, part in state.items()}
    return state


def _saved_window(part: Any) -> tuple[Any, ...]:
    keys, values, offset, keep, max_size, index = part.state
    held = keys.shape[TOKEN_AXIS]
    if held > max_size:  # only a prefill leaves it so, and in temporal order
        keys, values = (part._trim(held - max_size, array) for array in (keys, values))
        index = max_size
    elif index == offset < held:
        keys, values = part.keys_and_values()
    return keys, values, offset, keep, max_size, index
