"""Where requests are that are not in the line: their body still arrives, or they only ask for a count.

It does not read or count: it ends what others do here, typed, when control ends.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from control.errors import ApiError

Result = TypeVar("Result")


class Reception:
    def __init__(self) -> None:
        self._closed_by: ApiError | None = None
        self._guests: set[asyncio.Timeout] = set()

    async def until_closed(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`. Raises what the reception is, or was, closed by; `work` is cancelled then."""
        guest = asyncio.timeout(None if self._closed_by is None else 0)
        self._guests.add(guest)
        try:
            async with guest:
                return await work
        except TimeoutError:
            if self._closed_by is None or not guest.expired():
                raise
            # The same object for all of them: its trace would grow with each.
            raise self._closed_by.with_traceback(None) from None
        finally:
            self._guests.discard(guest)

    def close(self, error: ApiError) -> None:
        """End all who are here, and all who come, with `error`."""
        self._closed_by = error
        for guest in self._guests:
            guest.reschedule(0)
