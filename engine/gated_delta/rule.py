"""What the gated delta rule is to this engine: one function, however computed, and mlx-lm's loop as the last resort.

It computes nothing of its own; `chunkwise.py` and `cuda.py` do.
"""

from typing import Protocol

import mlx.core as mx
from mlx_lm.models.gated_delta import gated_delta_ops


class Rule(Protocol):
    """The recurrence over T tokens, for state S (Dv, Dk) of each value head:

    S = g S;  S = S + beta (v - S k) k^T;  y = S q
    """

    def __call__(
        self,
        q: mx.array,
        k: mx.array,
        v: mx.array,
        g: mx.array,
        beta: mx.array,
        state: mx.array,
        mask: mx.array | None,
    ) -> tuple[mx.array, mx.array]:
        """Returns y (B, T, Hv, Dv) in the dtype of q, and the new state (B, Hv, Dv, Dk) float32.

        q, k (B, T, Hk, Dk); v (B, T, Hv, Dv), Hv a multiple of Hk; g (B, T, Hv), or (B, T, Hv, Dk) for a decay per key
        dimension; beta (B, T, Hv); mask (B, T): where False the state stays as it was and y means nothing.
        """


def loop(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array, mask: mx.array | None
) -> tuple[mx.array, mx.array]:
    """mlx-lm's own: one compiled step a token."""
    computed: tuple[mx.array, mx.array] = gated_delta_ops(q, k, v, g, beta, state, mask)
    return computed


def leave_out_masked(g: mx.array, beta: mx.array, mask: mx.array) -> tuple[mx.array, mx.array]:
    """Decay and strength with which a masked token changes nothing: 1 and 0."""
    g_mask = mask.reshape(*mask.shape, *(1,) * (g.ndim - 2))
    return mx.where(g_mask, g, 1.0), mx.where(mask[..., None], beta, 0.0)
