"""The day of this machine's time zone: where it began, and where the next one does.

It reads no clock: who asks says what time it is.
"""

from datetime import datetime, timedelta
from typing import Final

# A local day has 23 to 25 hours, so this long after its beginning is always in the next one.
INTO_NEXT_DAY_S: Final = 30 * 3600.0


def local_midnight_s(now_s: float) -> float:
    """Unix time of the last midnight in this machine's time zone."""
    now = datetime.fromtimestamp(now_s).astimezone()
    # The offset of midnight, not of now: they differ on the days when the clocks change.
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return midnight.timestamp()


def next_midnight_s(now_s: float) -> float:
    """Unix time of the coming midnight in this machine's time zone."""
    return local_midnight_s(local_midnight_s(now_s) + INTO_NEXT_DAY_S)


def midnight_days_before_s(now_s: float, num_days: int) -> float:
    """Unix time of the midnight at which the day so many days before today began: by the calendar, not by hours."""
    first = datetime.fromtimestamp(now_s).astimezone().date() - timedelta(days=num_days)
    return datetime(first.year, first.month, first.day).timestamp()


def local_day(at_s: float) -> str:
    """YYYY-MM-DD in this machine's time zone, as the tables of days name it."""
    return datetime.fromtimestamp(at_s).astimezone().date().isoformat()
