"""Does one thing again and again for as long as control lives; a fault is logged, and does not end it.

It knows nothing of what is done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


async def repeat(what: str, act: Callable[[], Awaitable[object]], *, every_s: Callable[[], float]) -> None:
    """Until it is cancelled. `what` begins a line of the log: "WHAT failed"."""
    while True:
        try:
            await act()
        except Exception:
            logger.exception("%s failed", what)
        await asyncio.sleep(every_s())
