"""The last day's times are kept in memory, and are those of the rows whatever happens to them."""

import sqlite3

import pytest

from tests.unit.control_gateway.test_metrics import row
from tests.unit.control_metrics.measured import DAY_S, HOUR_S, NOW_S


async def test_a_day_goes_on_with_what_was_written_since_it_was_last_asked_for(measured):
    counts = []
    for number in range(1, 4):
        measured.record(row(number, started_at_s=NOW_S - 60 * number, ttft_ms=100.0 * number))
        counts.append((await measured.performance("day")).ttft)

    assert [found.count for found in counts] == [1, 2, 3]
    assert counts[-1].p95_ms == 300.0


async def test_a_day_forgets_what_is_older_and_an_hour_has_less_of_it(measured):
    measured.record(*(row(number, started_at_s=NOW_S - number * 2 * HOUR_S) for number in range(13)))

    counts = [(await measured.performance(chosen)).ttft.count for chosen in ("hour", "day", "hour", "day")]
    measured.now_s += 12 * HOUR_S
    later = await measured.performance("day")

    assert counts == [1, 13, 1, 13]
    assert later.ttft.count == 7


async def test_a_request_that_began_before_the_day_and_ended_in_it_is_not_of_the_day(measured):
    measured.record(row(1, started_at_s=NOW_S - 60))
    await measured.performance("day")
    measured.record(row(2, started_at_s=NOW_S - 2 * DAY_S))

    assert (await measured.performance("day")).ttft.count == 1


@pytest.mark.parametrize("statement", ["DELETE FROM requests WHERE number <= 3", "DELETE FROM requests", "VACUUM"])
async def test_a_database_that_others_changed_is_read_anew(measured, tmp_path, statement):
    measured.record(*(row(number, started_at_s=NOW_S - 60) for number in range(6)))
    measured.record(row(6, started_at_s=NOW_S - 60, outcome="rejected"))
    await measured.performance("day")
    connection = sqlite3.connect(tmp_path / "splash.db", isolation_level=None)
    connection.execute("DELETE FROM requests WHERE number = 0")
    connection.execute(statement)
    connection.execute("DELETE FROM requests WHERE number = 6")
    connection.close()
    measured.record(row(7, started_at_s=NOW_S - 60))

    found = await measured.performance("day")

    left = sqlite3.connect(tmp_path / "splash.db").execute("SELECT COUNT(*) FROM requests").fetchone()[0]
    assert found.ttft.count == left
