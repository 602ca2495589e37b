"""One way to write a check for a client that waits and for one that is awaited.

It runs in the small environments too: the standard library only.
"""

import contextlib
import inspect
from collections.abc import AsyncIterator
from typing import Any


class Absent(Exception):
    """This release of the SDK has no such helper."""


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def each(items: Any) -> list[Any]:
    """Of a stream or a list in pages."""
    if hasattr(items, "__aiter__"):
        return [item async for item in items]
    return list(items)


@contextlib.asynccontextmanager
async def entered(manager: Any) -> AsyncIterator[Any]:
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value
