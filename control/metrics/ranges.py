"""How far back a question looks: the ranges of `control.wire.Range`, and what was sent as one.

It reads no clock: who asks says what time it is.
"""

from collections.abc import Mapping
from typing import Final, get_args

from control.admin.errors import OrderInvalid
from control.metrics.local_day import midnight_days_before_s
from control.wire import Range

HOUR_S: Final = 3_600
DAY_S: Final = 24 * HOUR_S
RANGE_S: Final[Mapping[Range, int]] = {"hour": HOUR_S, "day": DAY_S, "week": 7 * DAY_S}
# Today is one of them: so a month is the days that a table of days shows.
MONTH_DAYS: Final = 30
RANGES: Final[tuple[Range, ...]] = get_args(Range)


def since_s(chosen: Range, now_s: float) -> float:
    """Unix time at which the range begins; 0 for all. Each ends now: what has a later date counts when that comes."""
    if chosen == "month":
        return midnight_days_before_s(now_s, MONTH_DAYS - 1)
    return now_s - RANGE_S[chosen] if chosen in RANGE_S else 0.0


def range_of(text: str) -> Range:
    """Raises OrderInvalid, which names those that there are."""
    for chosen in RANGES:
        if chosen == text:
            return chosen
    raise OrderInvalid(f"range must be one of {', '.join(RANGES)}.")
