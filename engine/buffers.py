"""The memory that MLX keeps when it no longer needs it: it stays for what comes next, within the plan of the whole.

It frees nothing that is in use, and decides nothing about the pool: rows and prefix cache are counted there.

A slice, a row or a restore needs buffers of the sizes that the one before let go of, and a device takes long to give
new ones: on an H200 a slice of 2,048 tokens took a third longer with none kept, and restoring 32,768 tokens took 70 ms,
almost all of it in asking for memory (`benchmarks/notes/2026-11-30-engine.md`, 17 and 18).
"""

from typing import Final

import mlx.core as mx

from engine.wire import MemoryPlan

IDLE_S: Final = 60.0
"""An engine that did nothing for so long gives back what it does not use. An agent's next turn comes sooner."""


class KeptBuffers:
    """`plan` None: whatever MLX keeps by itself."""

    def __init__(self, plan: MemoryPlan | None) -> None:
        self._plan = plan

    def fit(self) -> None:
        """Let go of them when what is used and what is kept are more than was planned for everything together."""
        plan = self._plan
        if plan is None:
            return
        planned_bytes = plan.weights_bytes + plan.fixed_bytes + plan.pool_bytes
        if mx.get_active_memory() + mx.get_cache_memory() > planned_bytes:
            mx.clear_cache()

    def observe(self, *, available_bytes: int) -> None:
        """Let go of them when other programs need the memory: `available_bytes` is what the machine still has."""
        if self._plan is not None and available_bytes < self._plan.reserve_bytes:
            mx.clear_cache()

    def rest(self, *, idle_s: float) -> None:
        if idle_s >= IDLE_S:
            mx.clear_cache()
