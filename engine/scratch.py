"""The buffers that MLX keeps for its next operations: as many as a prefill slice was seen to need.

It frees nothing that is in use. When nothing is prefilled, the worker clears what is kept.

The next slice needs buffers of the same sizes again, and a device takes long to give new ones: without any kept, a
prefill took 1.4 times as long on an H200 (`benchmarks/notes/2026-11-30-engine.md`, 17). Keeping what a slice needs
anyway makes the largest use no larger.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import mlx.core as mx

SPARE: Final = 1.25
"""The next slice's buffers are a little larger, and a cache that is just full lets go of its largest buffers."""


class Scratch:
    """One a process, since MLX counts and limits memory for the whole process."""

    def __init__(self, planned_bytes: int) -> None:
        self._kept_bytes = planned_bytes
        self._peak_bytes = 0
        mx.set_cache_limit(planned_bytes)

    @property
    def peak_bytes(self) -> int:
        """The most that was in use at once."""
        return max(self._peak_bytes, mx.get_peak_memory())

    @contextmanager
    def slice(self) -> Iterator[None]:
        """Around a slice that is done when it ends."""
        self._peak_bytes = self.peak_bytes
        mx.reset_peak_memory()
        yield
        needed_bytes = int((mx.get_peak_memory() - mx.get_active_memory()) * SPARE)
        if needed_bytes > self._kept_bytes:
            self._kept_bytes = needed_bytes
            mx.set_cache_limit(needed_bytes)
