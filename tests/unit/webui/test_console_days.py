"""Steps of whole days on *Performance*: the machine's days, by their dates, wherever the person who looks is."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from control import wire
from tests.fakes import performance as measured
from webui.text import load_texts
from webui.views.performance_charts import first_token_over_time, over_time

ENGLISH = load_texts()["en"]


@pytest.fixture
def machine_in_new_york(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_days_of_twenty_five_hours_are_neighbours_and_have_their_dates(machine_in_new_york):
    # Clocks went back on 1 November.
    dates = (datetime(2026, 10, 31), datetime(2026, 11, 1), datetime(2026, 11, 2))
    days = tuple(each.timestamp() for each in dates)
    performance = measured.performance(
        range="all",
        step_s=86_400.0,
        speeds=tuple(wire.SpeedPoint(at_s=at_s, width=1, tokens_per_second=100.0) for at_s in days),
    )

    chart = over_time(performance, replace(ENGLISH, zone=ZoneInfo("America/Los_Angeles")))

    assert chart.x == tuple(each.replace(tzinfo=UTC).timestamp() for each in dates)
    assert chart.is_by_day and chart.x_range is None
    assert [row[0] for row in chart.table.rows] == ["2026-11-02", "2026-11-01", "2026-10-31"]
    assert chart.summary == "A value for every day; where a line is broken, nothing counted."


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kathmandu", "Pacific/Kiritimati"])
@pytest.mark.parametrize("chart_of", [over_time, first_token_over_time])
def test_a_step_of_a_day_has_the_machines_date_for_everybody(machine_in_new_york, chart_of, zone):
    at_s, since_s = datetime(2026, 11, 30).timestamp(), datetime(2026, 11, 1).timestamp()
    performance = measured.performance(
        range="month",
        since_s=since_s,
        step_s=86_400.0,
        speeds=(wire.SpeedPoint(at_s=at_s, width=1, tokens_per_second=100.0),),
        ttfts=(wire.TtftPoint(at_s=at_s, p50_ms=5.0, p95_ms=6.0),),
    )

    chart = chart_of(performance, replace(ENGLISH, zone=ZoneInfo(zone)))

    assert [row[0] for row in chart.table.rows] == ["2026-11-30"]
    assert chart.x == (datetime(2026, 11, 30, tzinfo=UTC).timestamp(),)
    assert chart.x_range == (
        datetime(2026, 11, 1, tzinfo=UTC).timestamp(),
        datetime(2026, 12, 1, tzinfo=UTC).timestamp(),
    )
