"""A chart and the table that says the same: data for `frontend/static/js/charts.js`, which draws it with uPlot.

It draws nothing, and computes nothing but the JSON.
"""

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

# A tone of the style sheet, so that a chart changes with the theme: tokens.css, `--c-TONE`.
SeriesTone = Literal["generating", "prefilling", "cached", "waiting", "neutral", "one", "two", "three", "four"]
Draw = Literal["line", "points", "bars"]
XKind = Literal["time", "number", "category"]

UNKNOWN: Final = "—"


@dataclass(frozen=True, slots=True)
class Series:
    """`values` stand over the chart's x, None where there is nothing."""

    label: str
    values: tuple[float | None, ...]
    draw: Draw = "line"
    tone: SeriesTone = "generating"


@dataclass(frozen=True, slots=True)
class ChartTable:
    """The same in words: rows of ready text, as many cells as headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """`x`: Unix seconds for time, else numbers; a category's x is 0, 1, … and `categories` names them.

    `summary` is one sentence that says what is to be seen; `empty` what is shown when there is nothing to draw.
    `is_stacked`: bars of the same x stand on one another; their values are still each its own. `x_range`: what the axis
    spans, when that is more than where values are. `is_by_day`: x are dates, as midnights in UTC, in nobody's zone.
    """

    id: str
    title: str
    hint: str
    summary: str
    empty: str
    x_kind: XKind
    x: tuple[float, ...]
    x_label: str
    y_unit: str
    series: tuple[Series, ...]
    table: ChartTable
    categories: tuple[str, ...] = ()
    is_stacked: bool = False
    x_range: tuple[float, float] | None = None
    is_by_day: bool = False

    @property
    def is_empty(self) -> bool:
        return not any(value is not None for series in self.series for value in series.values)

    def data(self, zone: str | None) -> str:
        """JSON for charts.js. `zone` is the IANA name in which times are written; None: the browser's own."""
        return msgspec.json.encode(
            {
                "x": self.x,
                "xKind": self.x_kind,
                "xLabel": self.x_label,
                "yUnit": self.y_unit,
                "categories": self.categories,
                "stacked": self.is_stacked,
                "xRange": self.x_range,
                "byDay": self.is_by_day,
                "zone": "UTC" if self.is_by_day else zone,
                "series": [
                    {"label": each.label, "draw": each.draw, "tone": each.tone, "values": each.values}
                    for each in self.series
                ],
            }
        ).decode()
