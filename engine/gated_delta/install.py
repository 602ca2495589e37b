"""Puts a fast gated delta rule into a loaded model where mlx-lm would loop over tokens, once it has proven itself.

It computes no rule itself. Metal keeps mlx-lm's own kernel; a rule that fails its test is taken out again.

How it meets mlx-lm: the name `gated_delta_update` in the modules that the model's classes come from. The gates are
computed by mlx-lm's functions, so that a rule differs from its loop by float32 rounding alone.
"""

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models import gated_delta

from engine.gated_delta.chunkwise import chunkwise
from engine.gated_delta.cuda import CudaRule
from engine.gated_delta.rule import Rule, loop
from engine.gated_delta.trial import CASES, Form, Recorder, Seen, Update, relative_error, run_a_few_tokens
from engine.wire import SelfTest

logger = logging.getLogger(__name__)

TEST_NAME = "gated_delta"
UPDATE_NAME = "gated_delta_update"

FEWEST_CHUNKED_TOKENS = 8
"""Below, the loop is faster. Source: benchmarks/notes/2026-11-29-gated-delta.md"""

TOLERANCE = 2e-5
"""Float32 rounding stays below 6e-6, also with keys alike; an unsafe inversion is off by 5e-5 and more."""


def install_gated_delta(model: Any) -> SelfTest | None:
    """Choose a rule for the device, put it in place and try it; None when the model has no gated delta layers.

    Runs two tokens through the model, to see how it calls the rule.
    """
    uninstall_gated_delta(model)
    seen = forms_of(model)
    if not seen:
        return None
    if is_metal():
        return untested("mlx-lm's Metal kernel serves")
    try:
        name, rule, takes = rule_of_the_device()
        served = {form: how for form, how in seen.items() if takes(form)}
        if not served:
            return untested(f"mlx-lm's loop serves {listed(seen)}: {name} does not take that")
        update = with_rule(plain_update(), rule)
        error = max(
            relative_error(case, form, how, update, plain_update()) for form, how in served.items() for case in CASES
        )
    except Exception as failure:  # a device may refuse the kernel in any way
        logger.warning("gated delta rule failed", exc_info=True)
        detail = f"mlx-lm's loop serves: {type(failure).__name__}: {first_line(failure)}"
        return SelfTest(name=TEST_NAME, passed=False, error=None, tolerance=None, detail=detail)
    passed = error <= TOLERANCE
    if passed:
        put_in_place(model, update)
        detail = f"{name} serves {listed(served)}: off by {error:.1e} from mlx-lm's loop"
    else:
        logger.warning("gated delta rule failed the self-test rule=%s error=%s", name, error)
        detail = f"mlx-lm's loop serves: {name} is off by {error:.1e}, beyond {TOLERANCE:.1e}"
    return SelfTest(name=TEST_NAME, passed=passed, error=error, tolerance=TOLERANCE, detail=detail)


def uninstall_gated_delta(model: Any) -> None:
    """Give the model's modules mlx-lm's own function back."""
    put_in_place(model, plain_update())


def put_in_place(model: Any, update: Update) -> None:
    for part in model.modules():
        module = sys.modules[type(part).__module__]
        if UPDATE_NAME in vars(module):
            setattr(module, UPDATE_NAME, update)


def plain_update() -> Update:
    """mlx-lm's own, which no model's module can have replaced."""
    update: Update = gated_delta.gated_delta_update
    return update


def forms_of(model: Any) -> dict[Form, Seen]:
    recorder = Recorder(plain_update())
    put_in_place(model, recorder)
    try:
        run_a_few_tokens(model)
    finally:
        uninstall_gated_delta(model)
    return recorder.seen


def is_metal() -> bool:
    return mx.metal.is_available() and mx.default_device() == mx.gpu


def rule_of_the_device() -> tuple[str, Rule, Callable[[Form], bool]]:
    """What it is called, the rule, and whether it serves a form."""
    if mx.default_device() == mx.gpu:
        kernel = CudaRule()
        return "the CUDA kernel", kernel, lambda form: kernel.takes(form.key_dim, form.dtype)
    return "the chunkwise form", chunkwise_or_loop, lambda form: not form.is_decay_per_key


def chunkwise_or_loop(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array, mask: mx.array | None
) -> tuple[mx.array, mx.array]:
    is_chunked = k.shape[1] >= FEWEST_CHUNKED_TOKENS and g.ndim == 3
    return (chunkwise if is_chunked else loop)(q, k, v, g, beta, state, mask)


def with_rule(original: Update, rule: Rule) -> Update:
    """`original` with `rule` behind its gates."""

    @functools.wraps(original)
    def update(
        q: mx.array,
        k: mx.array,
        v: mx.array,
        a: mx.array,
        b: mx.array,
        A_log: mx.array,  # noqa: N803  # mlx-lm's name, as its callers write it
        dt_bias: mx.array,
        state: mx.array | None = None,
        mask: mx.array | None = None,
        *,
        use_kernel: bool = True,
        lower_bound: float | None = None,
        allow_neg_eigval: bool = False,
    ) -> tuple[mx.array, mx.array]:
        if not use_kernel:
            # A model in training: only the loop has gradients.
            gates = (a, b, A_log, dt_bias)
            options = {"lower_bound": lower_bound, "allow_neg_eigval": allow_neg_eigval}
            return original(q, k, v, *gates, state, mask, use_kernel=False, **options)
        beta = mx.sigmoid(b) * 2.0 if allow_neg_eigval else mx.sigmoid(b)
        if lower_bound is None:
            g = gated_delta.compute_g(A_log, a, dt_bias)
        else:
            g = gated_delta.compute_lower_bound_g(A_log, a, dt_bias, lower_bound)
        if state is None:
            state = mx.zeros((q.shape[0], *v.shape[2:], q.shape[-1]), dtype=mx.float32)
        return rule(q, k, v, g, beta, state, mask)

    return update


def untested(detail: str) -> SelfTest:
    return SelfTest(name=TEST_NAME, passed=True, error=None, tolerance=None, detail=detail)


def first_line(failure: Exception) -> str:
    """A compiler's message is many lines long."""
    return next(iter(str(failure).splitlines()), "")[:200]


def listed(forms: dict[Form, Seen]) -> str:
    return "; ".join(str(form) for form in forms)
