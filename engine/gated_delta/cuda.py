"""The gated delta rule as a CUDA kernel of our own: the state stays in registers while one launch walks all tokens.

It serves CUDA only. Metal has mlx-lm's kernel; a CPU has `chunkwise.py`.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.gated_delta.rule import leave_out_masked, loop

SOURCE_FILE = Path(__file__).with_name("recurrence.cu")
FLOATS = (mx.float32, mx.bfloat16, mx.float16)
THREADS = 128
LARGEST_KEY_DIM = 256  # a thread's share of a longer row would not fit into its registers
LARGEST_TILE_LEN = 16
TILE_BYTES = 16 * 1024  # read ahead into registers: 128 bytes a thread, beside as much of the state

INPUTS = ("q", "k", "v", "g", "beta", "state_in")


@dataclass(frozen=True, slots=True)
class Variant:
    """`lanes` threads share a row of the state; a block has 128 / lanes rows. `tile_len` tokens are read ahead."""

    lanes: int = 8
    tile_len: int = LARGEST_TILE_LEN


class CudaRule:
    """A Rule. Shapes and dtypes that the kernel does not take go through mlx-lm's loop."""

    def __init__(self, variant: Variant | None = None) -> None:
        self._variant = variant or Variant()
        source = SOURCE_FILE.read_text(encoding="utf-8")
        # MLX keeps compiled kernels, in memory and on disk, by name alone.
        name = f"splash_gated_delta_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
        self._kernel: Any = mx.fast.cuda_kernel(
            name=name, input_names=INPUTS, output_names=("y", "state_out"), source=source
        )

    def takes(self, key_dim: int, dtype: mx.Dtype) -> bool:
        return key_dim <= LARGEST_KEY_DIM and key_dim % (4 * self._variant.lanes) == 0 and dtype in FLOATS

    def __call__(
        self,
        q: mx.array,
        k: mx.array,
        v: mx.array,
        g: mx.array,
        beta: mx.array,
        state: mx.array,
        mask: mx.array | None = None,
    ) -> tuple[mx.array, mx.array]:
        batch, num_tokens, _, key_dim = k.shape
        num_value_heads, value_dim = v.shape[2:]
        if num_tokens == 0 or not self.takes(key_dim, q.dtype):
            return loop(q, k, v, g, beta, state, mask)
        if mask is not None:
            g, beta = leave_out_masked(g, beta, mask)
        inputs = (q, k, v, g, beta, state)
        num_rows = THREADS // self._variant.lanes
        num_blocks = -(-value_dim // num_rows)
        outputs: list[mx.array] = self._kernel(
            inputs=list(inputs),
            # The compiled kernel is found by these values: each type that its signature has must be among them.
            template=[
                *((f"Type{number}", array.dtype) for number, array in enumerate(inputs)),
                ("Output", q.dtype),
                ("KEY_DIM", key_dim),
                ("LANES", self._variant.lanes),
                ("TILE", tile_len(key_dim, is_decay_per_key=g.ndim == 4, at_most=self._variant.tile_len)),
                ("THREADS", THREADS),
                ("DECAY_PER_KEY", g.ndim == 4),
            ],
            grid=(num_blocks * THREADS, batch * num_value_heads, 1),
            threadgroup=(THREADS, 1, 1),
            output_shapes=[(batch, num_tokens, num_value_heads, value_dim), state.shape],
            output_dtypes=[q.dtype, mx.float32],
        )
        return outputs[0], outputs[1]


def tile_len(key_dim: int, *, is_decay_per_key: bool, at_most: int) -> int:
    """Tokens whose queries, keys (and decays) fit into a block's shared memory: a power of two."""
    bytes_per_token = 4 * key_dim * (3 if is_decay_per_key else 2)
    length = at_most
    while length * bytes_per_token > TILE_BYTES:
        length //= 2
    return length
