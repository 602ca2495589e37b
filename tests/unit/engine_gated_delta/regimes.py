"""Inputs of four kinds that tell a sound gated delta rule from an unsound one, and the rule in float64, token by token.

It knows nothing of the implementations under test.
"""

from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

REGIMES = ("mild", "strong", "mixed", "correlated")


@dataclass(frozen=True)
class Inputs:
    """float64. q, k (B, T, Hk, Dk); v (B, T, Hv, Dv); g (B, T, Hv[, Dk]); beta (B, T, Hv); state (B, Hv, Dv, Dk)."""

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    g: NDArray[Any]
    beta: NDArray[Any]
    state: NDArray[Any]
    mask: NDArray[Any] | None = None

    def arrays(self, dtype: mx.Dtype = mx.float32) -> tuple[mx.array, ...]:
        """What a Rule takes before its mask. g and the state are always float32, as in mlx-lm."""
        inputs = [mx.array(array.astype(np.float32)) for array in (self.q, self.k, self.v, self.g, self.beta)]
        q, k, v, g, beta = inputs
        state = mx.array(self.state.astype(np.float32))
        return q.astype(dtype), k.astype(dtype), v.astype(dtype), g, beta.astype(dtype), state

    def rounded(self, dtype: mx.Dtype) -> "Inputs":
        """The same with each number as `arrays(dtype)` gives it to the implementation."""
        kept = [np.array(array.astype(mx.float32)).astype(np.float64) for array in self.arrays(dtype)]
        return replace(self, **dict(zip(("q", "k", "v", "g", "beta", "state"), kept, strict=True)))


def draw(
    regime: str,
    num_tokens: int,
    *,
    batch: int = 1,
    num_key_heads: int = 2,
    num_value_heads: int = 4,
    key_dim: int = 16,
    value_dim: int = 16,
    is_decay_per_key: bool = False,
    seed: int = 0,
) -> Inputs:
    random = np.random.default_rng(seed)
    q = unit(random.normal(size=(batch, num_tokens, num_key_heads, key_dim))) * key_dim**-0.5
    k = unit(random.normal(size=(batch, num_tokens, num_key_heads, key_dim)))
    v = random.normal(size=(batch, num_tokens, num_value_heads, value_dim))
    beta = random.uniform(0, 1, size=(batch, num_tokens, num_value_heads))
    state = random.normal(size=(batch, num_value_heads, value_dim, key_dim))
    shape = (*beta.shape, key_dim) if is_decay_per_key else beta.shape
    if regime == "mild":
        g = random.uniform(0.9, 0.999, size=shape)
    elif regime == "strong":
        g = np.exp(-random.uniform(0, 30, size=shape))
    elif regime == "mixed":
        g = np.exp(-random.choice([0.0, 1e-4, 0.1, 5.0, 80.0, 300.0], size=shape, p=[0.3, 0.3, 0.2, 0.1, 0.05, 0.05]))
    else:
        k = unit(random.normal(size=(batch, 1, num_key_heads, key_dim)) + 0.02 * k)
        beta = random.uniform(0.98, 1.0, size=beta.shape)
        g = random.uniform(0.999, 1.0, size=shape)
    return Inputs(q, k, v, g, beta, state)


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Outcome:
    y: NDArray[Any]
    state: NDArray[Any]


def token_by_token(inputs: Inputs) -> Outcome:
    """The recurrence as it is written down, in float64."""
    shared_by = inputs.v.shape[2] // inputs.k.shape[2]
    q, k = (np.repeat(heads, shared_by, axis=2) for heads in (inputs.q, inputs.k))
    decay = inputs.g if inputs.g.ndim == 4 else inputs.g[..., None]
    state, ys = inputs.state, []
    for t in range(q.shape[1]):
        decayed = state * decay[:, t, :, None, :]
        recalled = np.einsum("bhvk,bhk->bhv", decayed, k[:, t])
        change = inputs.beta[:, t, :, None] * (inputs.v[:, t] - recalled)
        changed = decayed + change[..., None] * k[:, t, :, None, :]
        ys.append(np.einsum("bhvk,bhk->bhv", changed, q[:, t]))
        is_kept = True if inputs.mask is None else inputs.mask[:, t, None, None, None]
        state = np.where(is_kept, changed, state)
    return Outcome(np.stack(ys, axis=1), state)


def largest_error(found: tuple[mx.array, mx.array], inputs: Inputs) -> float:
    """Of y, where it means something, and of the state: the largest difference, relative to the largest value."""
    expected = token_by_token(inputs)
    y, state = (np.array(array.astype(mx.float32)).astype(np.float64) for array in found)
    difference = np.abs(y - expected.y)
    if inputs.mask is not None:
        difference = difference[inputs.mask]
    errors = [
        difference.max() / np.abs(expected.y).max(),
        np.abs(state - expected.state).max() / np.abs(expected.state).max(),
    ]
    return float(np.max(errors)) if np.isfinite(errors).all() else float("inf")
