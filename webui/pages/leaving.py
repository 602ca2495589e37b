"""A question that ends with whoever asked it: the browser takes it back when it has asked anew, or has gone elsewhere.

It knows nothing of what is asked.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

Answer = TypeVar("Answer")


async def until_gone(request: Request, asking: Coroutine[Any, Any, Answer]) -> Answer | None:
    """What comes of `asking`, whose body was read; None when the browser left first, and then it is cancelled."""
    asked, left = asyncio.create_task(asking), asyncio.create_task(_leave(request))
    try:
        await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
        return asked.result() if asked.done() else None
    finally:
        for task in (asked, left):
            task.cancel()
        await asyncio.gather(asked, left, return_exceptions=True)


async def _leave(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
