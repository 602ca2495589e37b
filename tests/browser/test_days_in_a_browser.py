"""Charts whose steps are whole days, for a person in another time zone than the machine's."""

from datetime import datetime

import pytest

from control import wire
from tests.fakes import performance as measured

READ = "() => document.querySelector('#over-time-plot .plot-where').textContent"
DAYS = tuple(datetime(2026, 11, day) for day in (28, 29, 30))


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Kiritimati"])
@pytest.mark.parametrize("days", [DAYS, DAYS[-1:]], ids=["three", "one"])
@pytest.mark.parametrize("chosen", ["month", "all"])
def test_a_step_of_a_day_is_the_machines_date_alone_on_the_chart_and_in_its_table(
    console, control, pages, zone, days, chosen
):
    control.answers = {
        wire.PERFORMANCE: measured.performance(
            range=chosen,
            since_s=datetime(2026, 11, 1).timestamp(),
            step_s=86_400.0,
            speeds=tuple(wire.SpeedPoint(at_s=day.timestamp(), width=1, tokens_per_second=100.0) for day in days),
        ),
        wire.MISSES: measured.misses(),
    }
    page = pages.open(console.link(), timezone_id=zone)
    page.goto(f"{console.address}/performance?range={chosen}")
    page.wait_for_selector("#over-time-plot canvas")
    page.focus("#over-time-plot")

    read = []
    page.keyboard.press("Home")
    for _ in days:
        read.append(page.evaluate(READ))
        page.keyboard.press("ArrowRight")

    assert read == [day.date().isoformat() for day in days]
    table = page.locator("#over-time tbody tr th, #over-time tbody tr td:first-child").all_text_contents()
    assert [cell.strip() for cell in table] == [day.date().isoformat() for day in reversed(days)]
