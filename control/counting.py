"""Whose prompt is counted now, of those that are only counted: the engine reads all prompts on one thread.

It counts nothing. A request's own prompt does not wait here, so at most two counts are before it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

# One that is on its way to the engine, while it is at the other.
COUNTS_AT_ONCE: Final = 2


class CountingTurns:
    """One count at a time for each key, so that a key with many of them keeps no other one waiting."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(COUNTS_AT_ONCE)
        self._of_key: dict[int, asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, key_id: int) -> AsyncIterator[None]:
        """Wait for it, in the order of coming; whoever is cancelled leaves the line."""
        async with self._of_key.setdefault(key_id, asyncio.Lock()), self._all:
            yield
