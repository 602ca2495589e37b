"""The chart of the page *Cost*: each day's amount by kind of token, one chart for each currency, with its table.

It adds no two currencies, and knows no prices.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Final

from control.wire import CostReport, Money
from webui import numbers
from webui.text import Text
from webui.views.charts import Chart, ChartTable, Series

# Below it a day's amount would be drawn as nothing: the axis has three decimals.
_SMALL: Final = 0.05
_THOUSANDTHS: Final = 1_000
# So few can't be mistaken for those of another year.
_DAYS_WITHOUT_YEAR: Final = 100


def charts_of(report: CostReport, text: Text) -> tuple[Chart, ...]:
    """At least one: without any amount it says that there is nothing."""
    currencies = sorted({money.currency for line in report.days for money in line.money})
    return tuple(_chart(report, currency, text) for currency in currencies or (report.prices.default.currency,))


def _chart(report: CostReport, currency: str, text: Text) -> Chart:
    known = {line.label: money for line in report.days for money in line.money if money.currency == currency}
    days = _every_day(report)
    scale, unit = _scale(known, currency)

    def values(of: str) -> tuple[float | None, ...]:
        return tuple(getattr(known[day], of) * scale if day in known else None for day in days)

    return Chart(
        id=f"cost-days-{currency}",
        title=text("cost.chart", currency=currency),
        hint=text("cost.chart_hint"),
        summary=_summary(known, currency, text),
        empty=text("cost.empty"),
        x_kind="category",
        x=tuple(float(at) for at in range(len(days))),
        x_label="",
        y_unit=unit,
        categories=days if len(days) > _DAYS_WITHOUT_YEAR else tuple(day.partition("-")[2] for day in days),
        is_stacked=True,
        series=(
            Series(text("cost.generated"), values("output"), "bars", "generating"),
            Series(text("cost.computed"), values("miss"), "bars", "prefilling"),
            Series(text("cost.cached"), values("hit"), "bars", "cached"),
        ),
        table=ChartTable(
            headings=(
                text("cost.day_heading"),
                text("cost.total"),
                text("cost.generated"),
                text("cost.computed"),
                text("cost.cached"),
                text("cost.cache"),
            ),
            rows=tuple(_row(day, money, text) for day, money in reversed(known.items())),
        ),
    )


def _every_day(report: CostReport) -> tuple[str, ...]:
    """Of the range, days without a request, too: a single bar must stand where its day is in the month."""
    first, last = date.fromisoformat(report.first_day), date.fromisoformat(report.last_day)
    return tuple((first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1))


def _scale(known: Mapping[str, Money], currency: str) -> tuple[float, str]:
    greatest = max((money.total for money in known.values()), default=0.0)
    return (_THOUSANDTHS, f"×10⁻³ {currency}") if 0 < greatest < _SMALL else (1, currency)


def _summary(known: Mapping[str, Money], currency: str, text: Text) -> str:
    if not known:
        return ""
    day, dearest = max(known.items(), key=lambda each: each[1].total)
    return text.count(
        "cost.chart_summary",
        len(known),
        total=numbers.money(text, sum(money.total for money in known.values()), currency),
        day=day,
        most=numbers.money(text, dearest.total, currency),
    )


def _row(day: str, money: Money, text: Text) -> tuple[str, ...]:
    each = (money.total, money.output, money.miss, money.hit, money.cache_saving)
    return (day, *(numbers.money(text, amount, money.currency) for amount in each))
