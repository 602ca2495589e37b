"""The memory plan: what a model needs, what this machine gives, and one sentence of verdict, from numbers alone.

It loads nothing and needs no MLX. What a GPU allows only MLX knows: `startup.within_device`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from engine.errors import ModelRefused
from engine.model.preflight import Preflight
from engine.wire import MemoryPlan

GIB: Final = 2**30
MIB: Final = 2**20

RUNTIME_BYTES: Final = 512 * MIB
"""Python, MLX, mlx-lm and a tokenizer of 262,144 tokens: 500 MiB resident on Linux beside the weights."""

PREFILL_TOKENS: Final = 2048
"""Tokens of the largest prefill chunk that scratch memory is planned for."""

SCRATCH_PER_HIDDEN: Final = 48
"""Activations alive at once while a chunk passes a layer, in multiples of the hidden size: an upper estimate.

Attention scores are not in it: Metal and CUDA never write them down, MLX's CPU backend does.
"""

SMALLEST_POOL_TOKENS: Final = 4096
"""A pool that cannot hold one sequence of this length is not worth loading a model for."""

_NUM_LOGIT_ROWS: Final = 16  # four streams, each with a few copies while a token is sampled

_RESERVE_SHARE: Final = 0.1
_SMALLEST_RESERVE_BYTES: Final = GIB
_LARGEST_RESERVE_BYTES: Final = 8 * GIB

_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")


def plan(
    preflight: Preflight, *, limit_bytes: int, context: int | None = None, budget_bytes: int | None = None
) -> MemoryPlan:
    """Return the plan for one model on a device that gives `limit_bytes` in all.

    `context` None is the model's native length. It is never cut to fit: where the pool cannot hold it, the verdict says
    how much it holds. `budget_bytes` is the size of the pool; None takes all that is left. `fits` is False when the
    weights, runtime and pool exceed the limit, or the pool cannot hold even a short sequence.
    Raises ModelRefused for a context above the native one.
    """
    native = preflight.native_context_tokens
    if context is not None and not 0 < context <= native:
        raise ModelRefused(
            f"a context of {context:,} tokens is not possible: {preflight.name} was made for up to {native:,}",
            reason="context_above_native",
        )
    need = _Need(preflight, native if context is None else context)
    left_bytes = limit_bytes - need.weights_bytes - need.fixed_bytes
    pool_bytes = max(left_bytes, 0) if budget_bytes is None else budget_bytes
    if pool_bytes > left_bytes or left_bytes < need.smallest_pool_bytes:
        fits, verdict = (
            False,
            _too_large(need, max(budget_bytes or 0, need.smallest_pool_bytes), limit_bytes, left_bytes),
        )
    elif pool_bytes < need.smallest_pool_bytes:
        fits, verdict = False, _budget_too_small(need, pool_bytes)
    else:
        fits, verdict = True, _acceptance(need, pool_bytes)
    return MemoryPlan(
        weights_bytes=need.weights_bytes,
        fixed_bytes=need.fixed_bytes,
        kv_bytes_per_token=need.kv_bytes_per_token,
        state_bytes_per_sequence=need.state_bytes,
        pool_bytes=pool_bytes,
        limit_bytes=limit_bytes,
        maximum_context_tokens=need.context,
        fits=fits,
        verdict=verdict,
    )


def device_limit_bytes(*, own_cgroup: Path = _OWN_CGROUP, cgroup_root: Path = _CGROUP_ROOT) -> int:
    """Return what this process may use in all: memory available now, less a reserve for the person's other programs.

    Linux: the smaller of available memory and what the control groups leave. macOS: available memory only, since
    Metal's working set is MLX's to tell (`engine.device`); never run on a Mac.
    """
    available_bytes = min([int(psutil.virtual_memory().available), *_cgroup_headrooms(own_cgroup, cgroup_root)])
    reserve_bytes = int(available_bytes * _RESERVE_SHARE)
    return max(available_bytes - min(max(reserve_bytes, _SMALLEST_RESERVE_BYTES), _LARGEST_RESERVE_BYTES), 0)


class _Need:
    """What a model takes, derived from its preflight and the wanted context."""

    def __init__(self, preflight: Preflight, context: int) -> None:
        self.name = preflight.name
        self.context = context
        self.weights_bytes = preflight.weights_bytes
        self.fixed_bytes = RUNTIME_BYTES + _scratch_bytes(preflight)
        self.kv_bytes_per_token = sum(layer.bytes_per_token for layer in preflight.layers)
        self.state_bytes = sum(layer.state_bytes for layer in preflight.layers)
        self.smallest_tokens = min(context, SMALLEST_POOL_TOKENS)
        self.smallest_pool_bytes = self.sequence_bytes(self.smallest_tokens)
        self.is_known = bool(preflight.layers) and all(layer.kind != "unknown" for layer in preflight.layers)

    def sequence_bytes(self, num_tokens: int) -> int:
        return self.state_bytes + num_tokens * self.kv_bytes_per_token

    @property
    def caveat(self) -> str:
        """What the reader must know about the numbers; empty when they are exact."""
        if self.is_known:
            return ""
        if self.kv_bytes_per_token:
            return " Splash does not know the layers of this architecture: its context is counted as large as can be."
        return " Splash does not know the layers of this architecture: what its context takes is not counted."


def _scratch_bytes(preflight: Preflight) -> int:
    activations = PREFILL_TOKENS * SCRATCH_PER_HIDDEN * (preflight.hidden_size or 0)
    logits = _NUM_LOGIT_ROWS * (preflight.vocabulary_size or 0)
    return (activations + logits) * preflight.activation_bytes


def _too_large(need: _Need, pool_bytes: int, limit_bytes: int, left_bytes: int) -> str:
    total_bytes = need.weights_bytes + need.fixed_bytes + pool_bytes
    weights, runtime, pool = (size_text(part) for part in (need.weights_bytes, need.fixed_bytes, pool_bytes))
    if left_bytes >= need.smallest_pool_bytes:
        remedy = f"a budget of {size_text(left_bytes)} or less fits"
    else:
        remedy = "a smaller or lower-bit version would fit, or memory that other programs give back"
    lacking = size_text(total_bytes - limit_bytes)
    return (
        f"{need.name} does not fit: it takes {size_text(total_bytes)} ({weights} weights, {runtime} runtime, "
        f"{pool} pool), {lacking} more than the {size_text(limit_bytes)} there are; {remedy}.{need.caveat}"
    )


def _budget_too_small(need: _Need, pool_bytes: int) -> str:
    return (
        f"{need.name} does not fit: a budget of {size_text(pool_bytes)} cannot hold one sequence of "
        f"{need.smallest_tokens:,} tokens, which takes {size_text(need.smallest_pool_bytes)}.{need.caveat}"
    )


def _acceptance(need: _Need, pool_bytes: int) -> str:
    sequence_bytes = need.sequence_bytes(need.context)
    if sequence_bytes == 0:
        return f"{need.name} fits, with {size_text(pool_bytes)} for contexts.{need.caveat}"
    num_sequences = pool_bytes // sequence_bytes
    if num_sequences > 0:
        sequences = "sequence" if num_sequences == 1 else "sequences"
        held = f"{num_sequences:,} {sequences} of the full {need.context:,} tokens at once"
    else:
        num_tokens = (pool_bytes - need.state_bytes) // need.kv_bytes_per_token
        held = (
            f"one sequence of up to {num_tokens:,} tokens; the full {need.context:,} would take "
            f"{size_text(sequence_bytes - pool_bytes)} more"
        )
    return f"{need.name} fits, with {size_text(pool_bytes)} for contexts: {held}.{need.caveat}"


def size_text(num_bytes: int) -> str:
    if num_bytes >= GIB:
        return f"{num_bytes / GIB:,.1f} GiB"
    return f"{num_bytes / MIB:,.0f} MiB" if num_bytes >= MIB else f"{num_bytes / 1024:,.0f} KiB"


def _cgroup_headrooms(own_cgroup: Path, root: Path) -> Iterator[int]:
    """Yield what each control group above this process leaves, where it has a limit. Format: Linux cgroup v2."""
    try:
        lines = own_cgroup.read_text(encoding="ascii").splitlines()
    except OSError:
        return  # not Linux
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if own is None:
        return
    for group in (root / own, *(root / own).parents):
        if not group.is_relative_to(root):
            return
        limit = _read_integer(group / "memory.max")
        used = _read_integer(group / "memory.current")
        if limit is not None and used is not None:
            yield max(limit - used + _reclaimable(group / "memory.stat"), 0)


def _reclaimable(statistics: Path) -> int:
    """Page cache that the kernel drops before it calls memory short: it counts as used, but is there to be had."""
    try:
        entries = dict(line.split() for line in statistics.read_text(encoding="ascii").splitlines())
        return int(entries.get("inactive_file", 0))
    except (OSError, ValueError):
        return 0


def _read_integer(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # absent, or "max"
