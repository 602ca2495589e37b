"""The gated delta rule in chunks of 16 tokens: matrix products instead of a loop over tokens, for devices without a
kernel.

It takes decays per head only; a decay per key dimension does not factor into these products and stays with the loop.

Within a chunk, with D[i, j] = g[j+1]...g[i] and p[i] = g[0]...g[i], the changes u of the state solve
    (I + A) u = beta (v - p S k),   A[i, j] = beta[i] D[i, j] k[i].k[j] for j < i
and then y = p S q + ((q.k) D) u,   S' = p[last] S + u^T (D[last] k).
So all that needs no state is computed for all chunks at once, and five small products a chunk remain in sequence.

Two traps, both seen with keys that resemble each other or with strong decay:
1. (I + A)^-1 by doubling powers of A overflows float32. Inverting block by block, 1, 2, 4, ... tokens, does not.
2. D as exp of differences of sums cancels. Here it is products of the very g that the loop multiplies by.
"""

import mlx.core as mx

from engine.gated_delta.rule import leave_out_masked

CHUNK_LEN = 16
"""The best or near it of 8, 16, 32, 64 for head sizes 32 to 128, with fast and with reference BLAS.

Source: benchmarks/notes/2026-11-29-gated-delta.md
"""


def chunkwise(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array,
    mask: mx.array | None = None,
    *,
    chunk_len: int = CHUNK_LEN,
) -> tuple[mx.array, mx.array]:
    """A Rule for g (B, T, Hv). All of it is float32 inside, whatever the inputs are."""
    batch, num_tokens, num_key_heads, key_dim = k.shape
    num_value_heads, value_dim = v.shape[2:]
    shared_by = num_value_heads // num_key_heads
    if mask is not None:
        g, beta = leave_out_masked(g, beta, mask)

    queries = _in_chunks(q, num_key_heads, chunk_len)
    keys = _in_chunks(k, num_key_heads, chunk_len)
    values = _in_chunks(v, num_key_heads, chunk_len)
    strengths = _in_chunks(beta[..., None], num_key_heads, chunk_len)
    decays = _in_chunks(g[..., None], num_key_heads, chunk_len, padding=1.0)

    between = _decay_between(decays)
    since_start = decays[..., :1, :] * between[..., :1]
    until_end = between[..., -1, :, None]

    keys_transposed = keys.swapaxes(-1, -2)
    solve = _inverse_of_unit_lower(mx.tril((keys @ keys_transposed) * between * strengths, -1))
    own_change = solve @ (strengths * values)
    # What a chunk asks of the state it starts from, in one product: the keys' recall, then the queries' reading.
    asked = mx.concatenate([solve @ (strengths * since_start * keys), since_start * queries], axis=-2)
    attended = (queries @ keys_transposed) * between
    kept_keys = (until_end * keys).swapaxes(-1, -2)
    whole_decay = since_start[..., -1:, :]

    # (Dk, Dv) from here on: its products are the fast ones of a BLAS without blocking.
    memory = state.astype(mx.float32).swapaxes(-1, -2).reshape(batch, num_key_heads, shared_by, key_dim, value_dim)
    outputs = []
    for chunk in range(keys.shape[0]):
        answer = asked[chunk] @ memory
        change = own_change[chunk] - answer[..., :chunk_len, :]
        outputs.append(answer[..., chunk_len:, :] + attended[chunk] @ change)
        memory = whole_decay[chunk] * memory + kept_keys[chunk] @ change

    # (B, N, Hk, Hv/Hk, C, Dv) to (B, T, Hv, Dv)
    y = mx.stack(outputs, axis=1).transpose(0, 1, 4, 2, 3, 5)
    y = y.reshape(batch, -1, num_value_heads, value_dim)[:, :num_tokens]
    return y.astype(q.dtype), memory.swapaxes(-1, -2).reshape(batch, num_value_heads, value_dim, key_dim)


def _in_chunks(per_token: mx.array, num_key_heads: int, chunk_len: int, *, padding: float = 0.0) -> mx.array:
    """(B, T, H, D) to float32 (N, B, Hk, H/Hk, C, D). The last chunk's missing tokens are `padding`."""
    batch, num_tokens, num_heads, dim = per_token.shape
    missing = -num_tokens % chunk_len
    whole = per_token.astype(mx.float32)
    if missing:
        whole = mx.pad(whole, [(0, 0), (0, missing), (0, 0), (0, 0)], constant_values=padding)
    split = whole.reshape(batch, -1, chunk_len, num_key_heads, num_heads // num_key_heads, dim)
    return mx.contiguous(split.transpose(1, 0, 3, 4, 2, 5))


def _decay_between(decays: mx.array) -> mx.array:
    """(..., C, 1) to D (..., C, C): from after token j through token i, 1 where they are the same, 0 where j > i."""
    position = mx.arange(decays.shape[-2])
    return mx.tril(mx.cumprod(mx.where(position[:, None] > position, decays, 1.0), axis=-2))


def _inverse_of_unit_lower(below: mx.array) -> mx.array:
    """(I + below)^-1, below (..., C, C) strictly lower: the inverses of two neighbouring blocks make that of both."""
    size = below.shape[-1]
    index = mx.arange(size)
    inverse = mx.eye(size)
    block_len = 1
    while block_len < size:
        block = index // block_len
        is_joint = (block[:, None] % 2 == 1) & (block == block[:, None] - 1)
        joint = mx.where(is_joint, below, 0.0)
        inverse = inverse - joint if block_len == 1 else inverse - inverse @ joint @ inverse
        block_len *= 2
    return inverse
