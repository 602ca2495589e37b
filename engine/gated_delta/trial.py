"""How the loaded model calls the gated delta rule, and inputs of that form to compare two ways to compute it.

It puts nothing in place; `install.py` does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

Update = Callable[..., tuple[mx.array, mx.array]]
"""mlx-lm's `gated_delta_update(q, k, v, a, b, A_log, dt_bias, state, mask, *, ...)`: the gates, then the rule."""

NUM_PROBED_TOKENS = 2
TRIAL_LEN = 40  # several chunks or tiles, and a part of one
KEEPING_GATE = -20.0  # a gate's input that makes the decay 1
FORGETTING_GATES = (-8.0, 6.0)  # from hardly any decay to nearly all
FULL_STRENGTH = 8.0


@dataclass(frozen=True, slots=True)
class Form:
    """What tells one kind of call from another."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    dtype: mx.Dtype
    is_decay_per_key: bool

    def __str__(self) -> str:
        per_key = ", decay per key dimension" if self.is_decay_per_key else ""
        dtype = str(self.dtype).removeprefix("mlx.core.")
        return f"{self.num_key_heads}/{self.num_value_heads} heads of {self.key_dim}x{self.value_dim} {dtype}{per_key}"


@dataclass(frozen=True, slots=True)
class Seen:
    """One call of a form: what its gates are made of and which options it has."""

    a: mx.array
    b: mx.array
    a_log: mx.array
    dt_bias: mx.array
    options: dict[str, Any]


class Recorder:
    """Stands where `gated_delta_update` does, and keeps the first call of each form."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self.seen: dict[Form, Seen] = {}

    def __call__(self, *arguments: Any, **options: Any) -> tuple[mx.array, mx.array]:
        q, k, v, a, b, a_log, dt_bias = arguments[:7]
        form = Form(k.shape[2], v.shape[2], k.shape[3], v.shape[3], q.dtype, a.ndim == 4)
        own_options = {name: value for name, value in options.items() if name not in ("state", "mask", "use_kernel")}
        self.seen.setdefault(form, Seen(a, b, a_log, dt_bias, own_options))
        return self._update(*arguments, **options)


def run_a_few_tokens(model: Any) -> None:
    tokens = mx.arange(1, 1 + NUM_PROBED_TOKENS)[None]
    mx.eval(model(tokens, cache=make_prompt_cache(model)))


@dataclass(frozen=True, slots=True)
class Case:
    """`are_keys_alike`, `is_masked`: what makes it hard."""

    num_tokens: int = TRIAL_LEN
    are_keys_alike: bool = False
    is_masked: bool = False


CASES = (Case(), Case(are_keys_alike=True), Case(is_masked=True), Case(num_tokens=1))


def relative_error(case: Case, form: Form, seen: Seen, update: Update, plain_update: Update) -> float:
    """The largest difference of outputs and states, relative to the largest value; infinite when it is no number.

    Outputs may be off by the rounding of their dtype on top.
    """
    batch, num_tokens = 2 if case.is_masked else 1, case.num_tokens
    key = mx.random.key(num_tokens)
    keys = iter(mx.random.split(key, 6))

    def normal(*shape: int) -> mx.array:
        return mx.random.normal((batch, *shape), key=next(keys))

    q = unit(normal(num_tokens, form.num_key_heads, form.key_dim)) * form.key_dim**-0.5
    k = unit(normal(num_tokens, form.num_key_heads, form.key_dim))
    v = normal(num_tokens, form.num_value_heads, form.value_dim).astype(form.dtype)
    state = normal(form.num_value_heads, form.value_dim, form.key_dim)
    a_shape, b_shape = (batch, num_tokens, *seen.a.shape[2:]), (batch, num_tokens, *seen.b.shape[2:])
    if case.are_keys_alike:
        k = unit(k[:, :1] + 0.02 * k)
        a, b = mx.full(a_shape, KEEPING_GATE), mx.full(b_shape, FULL_STRENGTH)
    else:
        a = mx.random.uniform(*FORGETTING_GATES, a_shape, key=next(keys))
        b = 3 * mx.random.normal(b_shape, key=next(keys))
    q, k, a, b = q.astype(form.dtype), k.astype(form.dtype), a.astype(seen.a.dtype), b.astype(seen.b.dtype)
    # One row padded on the left, one on the right.
    position = mx.arange(num_tokens)
    mask = mx.stack([position >= num_tokens // 3, position < num_tokens // 2]) if case.is_masked else None

    gates = (a, b, seen.a_log, seen.dt_bias)
    y, new_state = update(q, k, v, *gates, state, mask, **seen.options)
    exact = [array.astype(mx.float32) for array in (q, k, v)]
    plain_y, plain_state = plain_update(*exact, *gates, state, mask, **seen.options)

    rounding = mx.finfo(form.dtype).eps * mx.abs(plain_y) if form.dtype != mx.float32 else 0.0
    off = mx.maximum(mx.abs(y.astype(mx.float32) - plain_y) - rounding, 0.0)
    if mask is not None:
        off = mx.where(mask[..., None, None], off, 0.0)
    errors = mx.stack(
        [off.max() / mx.abs(plain_y).max(), mx.abs(new_state - plain_state).max() / mx.abs(plain_state).max()]
    )
    largest: Any = errors.max().item()
    return float(largest) if math.isfinite(largest) else math.inf


def unit(vectors: mx.array) -> mx.array:
    return vectors / mx.linalg.norm(vectors, axis=-1, keepdims=True)
