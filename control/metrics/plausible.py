"""Counts that no request can have: an engine that says so is wrong, and its number is cut before it is added up.

It knows no reason; SQLite and JSON add up exactly only what stays far below 2⁶³.
"""

import logging
from collections.abc import Callable
from operator import attrgetter
from typing import Final

import msgspec

from control.metrics.stretch import Stretch
from control.wire import RequestRow

logger = logging.getLogger(__name__)

# A million times the longest context that there is; and eight million of them fit into 2⁶³.
TOKENS_LIMIT: Final = 2**40
COUNTS: Final = tuple(name for name in RequestRow.__struct_fields__ if name.endswith("_tokens"))
_counts_of: Final[Callable[[RequestRow], tuple[int, ...]]] = attrgetter(*COUNTS)


def plausible(row: RequestRow) -> RequestRow:
    """The same, with counts from 0 to TOKENS_LIMIT; with a warning where one was not."""
    if is_plausible(row):
        return row
    wrong = {name: count for name in COUNTS if not 0 <= (count := getattr(row, name)) <= TOKENS_LIMIT}
    logger.warning("counts cut id=%s counts=%s", row.id, " ".join(f"{name}={count}" for name, count in wrong.items()))
    return msgspec.structs.replace(row, **{name: min(max(count, 0), TOKENS_LIMIT) for name, count in wrong.items()})


def is_plausible(entry: RequestRow | Stretch) -> bool:
    if isinstance(entry, Stretch):
        return 0 <= entry.tokens <= TOKENS_LIMIT and 0 <= entry.context_tokens <= TOKENS_LIMIT
    counts = _counts_of(entry)
    return min(counts) >= 0 and max(counts) <= TOKENS_LIMIT
