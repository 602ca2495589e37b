"""What is asked of the list of requests, and where a page of it begins.

It asks no database: `control.metrics.request_pages` answers.
"""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from control.admin.errors import OrderInvalid
from control.metrics.request_kinds import KindFilter
from control.wire import RequestSort, SortDirection


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last row of a page, or, when the way leads back, its first one.

    `value` is what the rows are sorted by; None where that row has none. `number`: whatever the database has for it.
    `sorted_since_s` as in `RequestPage`.
    """

    sort: RequestSort
    direction: SortDirection
    value: float | None
    number: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    is_backwards: bool
    sorted_since_s: float | None

    def text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Search:
    """`since_s` is part of the range, `until_s` is not; None: no such bound. `after` None: the first page."""

    kinds: KindFilter = field(default_factory=KindFilter)
    since_s: float | None = None
    until_s: float | None = None
    sort: RequestSort = "started"
    direction: SortDirection = "desc"
    limit: int = 50
    after: Cursor | None = None

    @property
    def is_backwards(self) -> bool:
        return self.after is not None and self.after.is_backwards

    @property
    def is_ascending(self) -> bool:
        """The order in which rows are looked for: on the way back it is the other one."""
        return (self.direction == "asc") != self.is_backwards


def cursor_of(text: str, sort: RequestSort, direction: SortDirection) -> Cursor:
    """Raises OrderInvalid unless it came with a page of the same order."""
    try:
        padded = text + "=" * (-len(text) % 4)
        cursor = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Cursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise OrderInvalid("after must be `next` or `previous` of an earlier page.") from error
    if (cursor.sort, cursor.direction) != (sort, direction):
        raise OrderInvalid(f"after is of a list by {cursor.sort} {cursor.direction}, not by {sort} {direction}.")
    return cursor
