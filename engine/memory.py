"""The memory plan: what a model needs, what this machine gives, and one sentence of verdict, from numbers alone.

It loads nothing and needs no MLX. What a GPU allows only MLX knows: `startup.within_device`.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from engine.errors import ModelRefused
from engine.memory_text import GIB, MIB, Figures, acceptance, budget_too_small, too_large
from engine.model.layers import kv_obstacle
from engine.model.preflight import Preflight
from engine.wire import MemoryPlan

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

WARM_SESSION_TOKENS: Final = 23_000
WARM_SESSIONS: Final = 6
"""What the default pool is sized for. Source: requirement E3, six agent sessions of 23,000 tokens over a day."""

RUNNING_STREAMS: Final = 4
"""The most streams that the gateway lets run at once."""

SNAPSHOTS_PER_SESSION: Final = 6
"""End of system and tools, the two newest message starts, prompt end, decoded end, and one rolling."""

STATES_PER_STREAM: Final = 2
"""A running stream holds its live state and one checkpoint, from which it is resumed when memory runs short."""

_NUM_LOGIT_ROWS: Final = 16  # four streams, each with a few copies while a token is sampled

_RESERVE_SHARE: Final = 0.1
_SMALLEST_RESERVE_BYTES: Final = GIB
_LARGEST_RESERVE_BYTES: Final = 8 * GIB
_DEVICE_RESERVE_SHARE: Final = 0.02

_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")
_WIRED_LIMIT: Final = ("/usr/sbin/sysctl", "-n", "iogpu.wired_limit_mb")


@dataclass(frozen=True, slots=True)
class Limit:
    """Memory for the engine in all, and what is left beside it for the person's other programs. Bytes."""

    limit_bytes: int
    reserve_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The numbers that every size of a context is computed from. Bytes."""

    kv_bytes_per_token: int
    state_bytes_per_sequence: int
    snapshots_per_session: int

    @classmethod
    def of(cls, plan: MemoryPlan) -> "Coefficients":
        return cls(plan.kv_bytes_per_token, plan.state_bytes_per_sequence, plan.snapshots_per_session)

    def running_bytes(self, num_tokens: int) -> int:
        """One running sequence: its row, its live state and its checkpoint."""
        return num_tokens * self.kv_bytes_per_token + STATES_PER_STREAM * self.state_bytes_per_sequence

    def warm_session_bytes(self, num_tokens: int) -> int:
        """One session in the prefix cache: its blocks and its snapshots."""
        return num_tokens * self.kv_bytes_per_token + self.snapshots_per_session * self.state_bytes_per_sequence

    def smallest_pool_bytes(self, context: int) -> int:
        return self.running_bytes(min(context, SMALLEST_POOL_TOKENS))

    def longest_context_tokens(self, pool_bytes: int, context: int) -> int:
        """Tokens of the longest sequence that the pool holds alone, up to `context`."""
        left_bytes = pool_bytes - self.running_bytes(0)
        if left_bytes < 0:
            return 0
        return min(left_bytes // self.kv_bytes_per_token, context) if self.kv_bytes_per_token else context

    def warm_sessions(self, pool_bytes: int, num_tokens: int) -> int:
        """How many sessions stay in the cache although as many as may (four at most) run at once."""
        warm_bytes, running_bytes = self.warm_session_bytes(num_tokens), self.running_bytes(num_tokens)
        if warm_bytes == 0:
            return 0
        num_sessions = pool_bytes // (warm_bytes + running_bytes)
        if num_sessions < RUNNING_STREAMS:
            return num_sessions
        return (pool_bytes - RUNNING_STREAMS * running_bytes) // warm_bytes

    def wanted_pool_bytes(self, context: int) -> int:
        """The default pool, if memory allows: six warm sessions with room to run, and one of the whole context.

        Room to run is for four sessions of the usual length or one of the whole context, whichever is more. A session
        of the whole context also finds its own past in the cache at its next turn: blocks and row are there at once.
        """
        usual = min(context, WARM_SESSION_TOKENS)
        room_bytes = max(RUNNING_STREAMS * self.running_bytes(usual), self.running_bytes(context))
        return max(
            WARM_SESSIONS * self.warm_session_bytes(usual) + room_bytes,
            self.warm_session_bytes(context) + self.running_bytes(context),
        )


def coefficients(preflight: Preflight, *, kv_bits: int | None = None) -> Coefficients:
    state_bytes = sum(layer.state_bytes for layer in preflight.layers)
    return Coefficients(
        kv_bytes_per_token=sum(layer.bytes_per_token_at(kv_bits) for layer in preflight.layers),
        state_bytes_per_sequence=state_bytes,
        snapshots_per_session=SNAPSHOTS_PER_SESSION if state_bytes else 0,
    )


def plan(
    preflight: Preflight,
    limit: Limit,
    *,
    context: int | None = None,
    budget_bytes: int | None = None,
    kv_bits: int | None = None,
) -> MemoryPlan:
    """Return the plan for one model on a device that gives `limit`.

    `context` None is the model's native length. It is never cut to fit: where the pool cannot hold it, the verdict says
    how much it holds. `budget_bytes` is the size of the pool; None takes what is worth having, as far as it is there.
    `fits` is False when weights, runtime and pool exceed the limit, or the pool cannot hold even a short sequence.
    Raises ModelRefused for a context above the native one, and for `kv_bits` when no layer's keys and values can be
    quantised.
    """
    native = preflight.native_context_tokens
    if context is not None and not 0 < context <= native:
        raise ModelRefused(
            f"a context of {context:,} tokens is not possible: {preflight.name} was made for up to {native:,}",
            reason="context_above_native",
            native_tokens=native,
        )
    context = native if context is None else context
    if kv_bits is not None and (obstacle := kv_obstacle(preflight.layers)) is not None:
        raise ModelRefused(
            f"the keys and values of {preflight.name} can't be kept in {kv_bits} bits: {obstacle}; "
            "load it without quantising them",
            reason="kv_not_quantisable",
        )
    sizes = coefficients(preflight, kv_bits=kv_bits)
    fixed_bytes = RUNTIME_BYTES + _scratch_bytes(preflight)
    left_bytes = limit.limit_bytes - preflight.weights_bytes - fixed_bytes
    short_bytes = sizes.smallest_pool_bytes(context)
    pool_bytes = _default_pool_bytes(sizes, context, left_bytes) if budget_bytes is None else budget_bytes
    usual = min(context, WARM_SESSION_TOKENS)
    full_bytes = sizes.running_bytes(context)
    figures = Figures(
        name=preflight.name,
        weights_bytes=preflight.weights_bytes,
        fixed_bytes=fixed_bytes,
        limit_bytes=limit.limit_bytes,
        left_bytes=left_bytes,
        pool_bytes=pool_bytes,
        short_tokens=min(context, SMALLEST_POOL_TOKENS),
        short_bytes=short_bytes,
        context=context,
        full_bytes=full_bytes,
        full_sequences=min(pool_bytes // full_bytes, RUNNING_STREAMS) if full_bytes else RUNNING_STREAMS,
        longest_tokens=sizes.longest_context_tokens(pool_bytes, context),
        warm_sessions=sizes.warm_sessions(pool_bytes, usual),
        warm_session_tokens=usual,
        is_known=bool(preflight.layers) and all(layer.kind != "unknown" for layer in preflight.layers),
    )
    if pool_bytes > left_bytes or left_bytes < short_bytes:
        fits, verdict = False, too_large(figures, wanted_pool_bytes=max(budget_bytes or 0, short_bytes))
    elif pool_bytes < short_bytes:
        fits, verdict = False, budget_too_small(figures)
    else:
        fits, verdict = True, acceptance(figures)
    return MemoryPlan(
        weights_bytes=preflight.weights_bytes,
        fixed_bytes=fixed_bytes,
        kv_bytes_per_token=sizes.kv_bytes_per_token,
        state_bytes_per_sequence=sizes.state_bytes_per_sequence,
        pool_bytes=pool_bytes,
        limit_bytes=limit.limit_bytes,
        maximum_context_tokens=context,
        fits=fits,
        verdict=verdict,
        reserve_bytes=limit.reserve_bytes,
        kv_bits=kv_bits,
        snapshots_per_session=sizes.snapshots_per_session,
        longest_context_tokens=figures.longest_tokens,
        warm_session_tokens=usual,
        warm_sessions=figures.warm_sessions,
        smallest_pool_bytes=short_bytes,
        is_known=figures.is_known,
    )


def _default_pool_bytes(sizes: Coefficients, context: int, left_bytes: int) -> int:
    wanted_bytes = sizes.wanted_pool_bytes(context)
    # Layers of which nothing is known count as nothing: then all that is left is the only safe answer.
    return max(min(left_bytes, wanted_bytes), 0) if wanted_bytes else max(left_bytes, 0)


def _scratch_bytes(preflight: Preflight) -> int:
    """Activations and logits, and what windows hold beyond their size in every sequence that runs.

    A window keeps the whole slice that it was last given until its next one, or its first decode step. As many prompts
    may stand half-way as may run, each overtaken by a more urgent one. While it is prefilled, a sequence has no
    checkpoint, so of the states that the pool counts for it all but one have room for that.
    """
    activations = PREFILL_TOKENS * SCRATCH_PER_HIDDEN * (preflight.hidden_size or 0)
    logits = _NUM_LOGIT_ROWS * (preflight.vocabulary_size or 0)
    windows = sum(
        max(PREFILL_TOKENS * layer.window_bytes_per_token - (STATES_PER_STREAM - 1) * layer.state_bytes, 0)
        for layer in preflight.layers
    )
    return (activations + logits) * preflight.activation_bytes + RUNNING_STREAMS * windows


def available_bytes(*, own_cgroup: Path = _OWN_CGROUP, cgroup_root: Path = _CGROUP_ROOT) -> int:
    """Memory that the machine has to give now. Linux: the smaller of available memory and what control groups leave."""
    return min([int(psutil.virtual_memory().available), *_cgroup_headrooms(own_cgroup, cgroup_root)])


def host_limit(available: int) -> Limit:
    """What of `available` bytes the engine may use: all but a reserve for the person's other programs."""
    reserve_bytes = min(
        max(int(available * _RESERVE_SHARE), _SMALLEST_RESERVE_BYTES), _LARGEST_RESERVE_BYTES, available
    )
    return Limit(available - reserve_bytes, reserve_bytes)


def device_limit(working_set_bytes: int) -> Limit:
    """What of a GPU's memory the engine may use. The rest is for the screen, the driver and other programs' kernels."""
    reserve_bytes = min(max(int(working_set_bytes * _DEVICE_RESERVE_SHARE), _SMALLEST_RESERVE_BYTES), working_set_bytes)
    return Limit(working_set_bytes - reserve_bytes, reserve_bytes)


def wired_limit_mb(*, platform: str = sys.platform, command: Sequence[str] = _WIRED_LIMIT) -> int | None:
    """The kernel's own limit for GPU memory on macOS, `iogpu.wired_limit_mb`: 0 is the system's choice; None elsewhere.

    It is shown and never set: old recipes that raise it lower what the device offers. Never run on a Mac.
    """
    if platform != "darwin":
        return None
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


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
