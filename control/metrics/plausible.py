"""Counts and times that no request can have: an engine that says so is wrong, and it is cut before it is added up.

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

# More than ten times the longest context of any model.
TOKENS_LIMIT: Final = 2**27
# As long as a row is kept; a request waits for a day at most.
TIME_LIMIT_MS: Final = 30 * 86_400_000.0
COUNTS: Final = tuple(name for name in RequestRow.__struct_fields__ if name.endswith("_tokens"))
TIMES: Final = tuple(name for name in RequestRow.__struct_fields__ if name.endswith("_ms"))
# A part and its whole, of which shares are made.
PARTS: Final = (
    ("cached_tokens", "prompt_tokens"),
    ("reasoning_tokens", "completion_tokens"),
    ("accepted_tokens", "drafted_tokens"),
)
_counts_of: Final[Callable[[RequestRow], tuple[int, ...]]] = attrgetter(*COUNTS)
_times_of: Final[Callable[[RequestRow], tuple[float | None, ...]]] = attrgetter(*TIMES)


def plausible(row: RequestRow) -> RequestRow:
    """The same, with counts from 0 to TOKENS_LIMIT, no part larger than its whole, and times from 0 to TIME_LIMIT_MS.

    With a warning where one was not. A time that is no number is 0.
    """
    if is_plausible(row):
        return row
    cut: dict[str, float] = {name: min(max(getattr(row, name), 0), TOKENS_LIMIT) for name in COUNTS}
    for part, whole in PARTS:
        cut[part] = min(cut[part], cut[whole])
    # Of NaN and 0, max takes the first.
    cut |= {name: min(max(0.0, ms), TIME_LIMIT_MS) for name in TIMES if (ms := getattr(row, name)) is not None}
    wrong = {name: getattr(row, name) for name, value in cut.items() if getattr(row, name) != value}
    logger.warning("counts cut id=%s counts=%s", row.id, " ".join(f"{name}={value}" for name, value in wrong.items()))
    return msgspec.structs.replace(row, **{name: cut[name] for name in wrong})


def is_plausible(entry: RequestRow | Stretch) -> bool:
    if isinstance(entry, Stretch):
        # NaN is in no range.
        numbers = (entry.seconds, entry.peak_tokens_per_second or 0.0, entry.ceiling_tokens_per_second or 0.0)
        has_counts = 0 <= entry.tokens <= TOKENS_LIMIT and 0 <= entry.context_tokens <= TOKENS_LIMIT
        return has_counts and all(0 <= number <= TOKENS_LIMIT for number in numbers)
    counts = _counts_of(entry)
    return (
        min(counts) >= 0
        and max(counts) <= TOKENS_LIMIT
        and all(getattr(entry, part) <= getattr(entry, whole) for part, whole in PARTS)
        and all(ms is None or 0 <= ms <= TIME_LIMIT_MS for ms in _times_of(entry))
    )
