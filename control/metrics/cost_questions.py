"""What tokens would have cost: by day, month, key and model, from the sums that are kept for ever.

It writes nothing, and sets no price: the tariff in force holds for everything, whenever it was used.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, Table, func, literal, select

from control.metrics.local_day import local_day, midnight_days_before_s
from control.metrics.questions import Questions
from control.metrics.ranges import HOUR_S, MONTH_DAYS, since_s
from control.metrics.tables import daily_requests, hourly_requests, requests
from control.prices import Prices, Tariff, Tokens
from control.wire import CostLine, CostReport, Range, Today

# With today: more than a year, and as many columns as a chart can show.
DAYS_LIMIT: Final = 400
# A short range, too, is shown beside the days around it.
LEAST_DAYS: Final = MONTH_DAYS
MONTH_LENGTH: Final = len("YYYY-MM")

ByModel = Mapping[str, Tokens]


class CostQuestions:
    """Each raises SQLAlchemyError or TimeoutError."""

    def __init__(self, questions: Questions, prices: Prices, *, wall: Callable[[], float] = time.time) -> None:
        self._questions = questions
        self._prices = prices
        self._wall = wall

    async def report(self, chosen: Range) -> CostReport:
        tariff, now_s = self._prices.tariff, self._wall()
        return await self._questions.ask(lambda connection: _report(connection, tariff, chosen, now_s))

    async def today(self) -> Today:
        """As `Questions.today`, with what was saved."""
        totals, tariff, today = await self._questions.today(), self._prices.tariff, local_day(self._wall())
        days = await self._questions.ask(lambda connection: _days(connection, today, today))
        return msgspec.structs.replace(totals, saved=tariff.cost(days.by_label.get(today, {})))


@dataclass(frozen=True, slots=True)
class _Used:
    """Tokens by label and model, labels in the order in which they came."""

    by_label: dict[str, dict[str, Tokens]] = field(default_factory=dict)

    def add(self, label: str, model: str, tokens: Tokens) -> None:
        models = self.by_label.setdefault(label, {})
        models[model] = models[model] + tokens if model in models else tokens

    def lines(self, tariff: Tariff) -> list[CostLine]:
        return [_line(tariff, label, used) for label, used in self.by_label.items()]


def _report(connection: Connection, tariff: Tariff, chosen: Range, now_s: float) -> CostReport:
    begin_s = since_s(chosen, now_s)
    keys, models, total = _Used(), _Used(), _Used()
    for row in _of_the_range(connection, chosen, begin_s, now_s):
        tokens = _tokens(row)
        keys.add(row.key, row.model, tokens)
        models.add(row.model, row.model, tokens)
        total.add("", row.model, tokens)
    least_s, limit_s = (midnight_days_before_s(now_s, number - 1) for number in (LEAST_DAYS, DAYS_LIMIT))
    oldest_s = max(min(begin_s, least_s), limit_s)
    first_day, last_day = local_day(oldest_s), local_day(now_s)
    days = tuple(_days(connection, first_day, last_day).lines(tariff))
    if chosen == "all":
        first_day = min([local_day(least_s), *(line.label for line in days[:1])])
    return CostReport(
        range=chosen,
        prices=tariff.prices,
        total=tariff.cost(total.by_label.get("", {})),
        first_day=first_day,
        last_day=last_day,
        days=days,
        months=tuple(_months(connection, local_day(now_s)).lines(tariff)),
        keys=_dearest_first(tariff, keys),
        models=_dearest_first(tariff, models),
    )


def _of_the_range(connection: Connection, chosen: Range, begin_s: float, now_s: float) -> Iterable[Any]:
    """Sums by model and key. The hour that the range begins in is summed from its rows, which are still there."""
    if chosen == "all":
        days = _sums(daily_requests, daily_requests.c.model, daily_requests.c.key)
        return connection.execute(days.where(daily_requests.c.day <= local_day(now_s)))
    first_whole_hour_s = -(-begin_s // HOUR_S) * HOUR_S
    started_at_s = requests.c.started_at_s
    edge = _sums(requests, requests.c.model, requests.c.key).where(
        started_at_s >= begin_s, started_at_s < first_whole_hour_s, started_at_s <= now_s
    )
    hours = _sums(hourly_requests, hourly_requests.c.model, hourly_requests.c.key)
    whole = hours.where(hourly_requests.c.hour_s >= first_whole_hour_s, hourly_requests.c.hour_s <= now_s)
    return (*connection.execute(edge), *connection.execute(whole))


def _days(connection: Connection, first: str, last: str) -> _Used:
    columns = daily_requests.c
    is_within = (columns.day >= first) & (columns.day <= last)
    return _by_date(connection, _sums(daily_requests, columns.day, columns.model).where(is_within))


def _months(connection: Connection, last: str) -> _Used:
    """All of them, as far as to the day `last`."""
    month = func.substr(daily_requests.c.day, 1, MONTH_LENGTH).label("day")
    sums = _sums(daily_requests, month, daily_requests.c.model)
    return _by_date(connection, sums.where(daily_requests.c.day <= last))


def _by_date(connection: Connection, sums: Select[Any]) -> _Used:
    """The oldest first."""
    found = _Used()
    for row in connection.execute(sums.order_by(sums.selected_columns.day)):
        found.add(row.day, row.model, _tokens(row))
    return found


def _sums(table: Table, *groups: ColumnElement[Any]) -> Select[Any]:
    """Of those that ran: what was turned away at the door has cost nothing."""
    columns = table.c
    num_ran: ColumnElement[Any] = literal(1)
    if table is requests:
        has_run = columns.outcome != "rejected"
    else:
        num_ran = columns.completed + columns.cancelled + columns.failed
        has_run = num_ran > 0
    # In each row and not in the sum: every way of grouping must come to the same.
    cached = func.min(columns.cached_tokens, columns.prompt_tokens)
    return (
        select(
            *groups,
            func.sum(num_ran).label("requests"),
            func.sum(columns.prompt_tokens).label("prompt"),
            func.sum(cached).label("cached"),
            func.sum(columns.completion_tokens).label("completion"),
        )
        .where(has_run)
        .group_by(*groups)
    )


def _tokens(row: Any) -> Tokens:
    return Tokens(row.requests, row.prompt, row.cached, row.completion)


def _line(tariff: Tariff, label: str, used: ByModel) -> CostLine:
    tokens = sum(used.values(), Tokens())
    return CostLine(
        label=label,
        requests=tokens.requests,
        prompt_tokens=tokens.prompt,
        cached_tokens=tokens.cached,
        completion_tokens=tokens.completion,
        money=tariff.cost(used),
    )


def _dearest_first(tariff: Tariff, used: _Used) -> tuple[CostLine, ...]:
    """Amounts of two currencies can't be compared: that of the default price decides, then the others by their code."""
    currencies = (tariff.prices.default.currency, *sorted(price.currency for price in tariff.prices.models.values()))

    def rank(line: CostLine) -> tuple[list[float], str]:
        amounts = {money.currency: money.total for money in line.money}
        return [-amounts.get(currency, 0.0) for currency in currencies], line.label

    return tuple(sorted(used.lines(tariff), key=rank))
