"""A clock that is set, back over midnight too: each request is in the sums once, on the day that it said."""

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from control.metrics.local_day import local_day
from control.metrics.performance_questions import PerformanceQuestions
from control.metrics.tables import daily_requests
from tests.unit.control_gateway.test_metrics import row
from tests.unit.control_metrics.histories import stretch
from tests.unit.control_metrics.measured import DAY_S, HOUR_S, Measured

MINUTE_S = 60
MIDNIGHT_S = datetime(2026, 11, 18).timestamp()
RANGES = st.sampled_from(["hour", "day", "week", "month", "all"])
SHIFTS_S = st.sampled_from([0, MINUTE_S, 20 * MINUTE_S, -30 * MINUTE_S, -5 * HOUR_S, 2 * DAY_S, -2 * DAY_S, 9 * DAY_S])


@pytest.fixture
def measured(tmp_path):
    found = Measured(tmp_path / "splash.db")
    yield found
    found.close()


async def test_requests_before_and_after_a_clock_is_set_back_over_midnight_are_on_the_days_they_said(measured):
    moments = [MIDNIGHT_S - 120, MIDNIGHT_S + 60, MIDNIGHT_S - 60, MIDNIGHT_S + 90]
    for number, moment in enumerate(moments):
        measured.now_s = moment
        measured.record(row(number, started_at_s=moment, total_ms=5.0))
        measured.record(row(number, started_at_s=moment, total_ms=5.0))

    days = await measured.questions.ask(
        lambda connection: dict(connection.execute(select(daily_requests.c.day, daily_requests.c.requests)).all())
    )

    assert days == {local_day(MIDNIGHT_S - 1): 2, local_day(MIDNIGHT_S): 2}


async def test_a_clock_that_was_two_days_ahead_takes_nothing_from_the_last_day_when_it_is_right_again(measured):
    measured.record(row(1, started_at_s=measured.now_s - HOUR_S))
    measured.now_s += 2 * DAY_S
    ahead = await measured.performance("day")
    measured.now_s -= 2 * DAY_S

    right = await measured.performance("day")

    assert (ahead.ttft, right.ttft.count, right.requests) == (None, 1, 1)


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.tuples(SHIFTS_S, RANGES, st.booleans()), min_size=3, max_size=9))
async def test_wherever_the_clock_is_set_who_asked_before_is_told_what_a_new_one_is(steps, tmp_path_factory):
    found = Measured(tmp_path_factory.mktemp("clock") / "splash.db")
    for number, (shift_s, chosen, records) in enumerate(steps):
        found.now_s += shift_s
        if records:
            moment = found.now_s - 2 * MINUTE_S
            found.record(row(number, started_at_s=moment, ttft_ms=100.0 + number), stretch(started_at_s=moment))

        told = await found.performance(chosen)

        anew = PerformanceQuestions(found.questions, discarded=lambda: {"idle": 3}, wall=lambda: found.now_s)
        assert told == await anew.performance(chosen, None)
    found.close()
