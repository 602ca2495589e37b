"""What each key was used for on the last 30 days, and when last, from the sums of days and hours.

It writes nothing. Rows have the name of a key, and a name can have been another key's before: a key's days are those of
its life, so two keys of one name share the day on which one was revoked and the other made.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, func, select

from control.metrics.local_day import local_day, midnight_days_before_s, next_midnight_s
from control.metrics.questions import Questions
from control.metrics.tables import daily_requests, hourly_requests, requests
from control.wire import KeyTotals, KeyView

NUM_DAYS: Final = 30
HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class _Day:
    """Sums of all models."""

    day: str
    key: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


async def key_totals(
    questions: Questions, views: Sequence[KeyView], *, wall: Callable[[], float] = time.time
) -> tuple[KeyTotals, ...]:
    """Of keys that were used, in the order of `views`. Raises SQLAlchemyError or TimeoutError."""
    now_s = wall()
    since_day, today = local_day(midnight_days_before_s(now_s, NUM_DAYS - 1)), local_day(now_s)
    return await questions.ask(lambda connection: _totals(connection, views, since_day, today))


def _totals(connection: Connection, views: Sequence[KeyView], since_day: str, today: str) -> tuple[KeyTotals, ...]:
    by_key: dict[str, list[_Day]] = {}
    for day in _days(connection, since_day, today):
        by_key.setdefault(day.key, []).append(day)
    of_each = ((view, [day for day in by_key.get(view.name, ()) if _lived(view, day.day)]) for view in views)
    return tuple(_of_key(connection, view, days) for view, days in of_each if days)


def _days(connection: Connection, since_day: str, today: str) -> Iterable[_Day]:
    columns = daily_requests.c
    sums = (columns.requests, columns.prompt_tokens, columns.cached_tokens, columns.completion_tokens)
    rows = connection.execute(
        select(columns.day, columns.key, *(func.sum(each) for each in sums))
        .where(columns.day >= since_day, columns.day <= today, columns.requests > 0)
        .group_by(columns.day, columns.key)
        .order_by(columns.day)
    )
    return [_Day(*row) for row in rows]


def _lived(view: KeyView, day: str) -> bool:
    return local_day(view.created_at_s) <= day and (view.revoked_at_s is None or day <= local_day(view.revoked_at_s))


def _of_key(connection: Connection, view: KeyView, days: Sequence[_Day]) -> KeyTotals:
    prompt_tokens = sum(day.prompt_tokens for day in days)
    cached_tokens = sum(day.cached_tokens for day in days)
    return KeyTotals(
        id=view.id,
        requests=sum(day.requests for day in days),
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        completion_tokens=sum(day.completion_tokens for day in days),
        hit_rate=cached_tokens / prompt_tokens if prompt_tokens else None,
        last_used_at_s=_last_used_at_s(connection, view.name, days[-1].day),
    )


def _last_used_at_s(connection: Connection, name: str, day: str) -> float:
    """Of that day, the hour; and of that hour, whose rows are few, the row, as long as it is kept."""
    day_s = datetime.fromisoformat(day).timestamp()
    hours = hourly_requests.c
    last_hour_s = connection.execute(
        select(func.max(hours.hour_s)).where(
            # An hour of UTC may have begun on the day before.
            hours.hour_s > day_s - HOUR_S,
            hours.hour_s < next_midnight_s(day_s),
            hours.key == name,
            hours.requests > 0,
        )
    ).scalar()
    begin_s = day_s if last_hour_s is None else float(last_hour_s)
    row_s = connection.execute(
        select(func.max(requests.c.started_at_s)).where(
            requests.c.started_at_s >= begin_s,
            requests.c.started_at_s < begin_s + HOUR_S,
            requests.c.key == name,
            requests.c.outcome != "rejected",
        )
    ).scalar()
    return begin_s if row_s is None else float(row_s)
