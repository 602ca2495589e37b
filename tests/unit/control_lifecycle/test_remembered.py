"""Settings and remembered loads in a real database, which anybody can write to."""

import pytest
from sqlalchemy import text

from control.assembly import concurrency_of
from control.fifo import MAXIMUM_CONCURRENCY
from control.lifecycle import Wanted
from control.metrics.database import open_database
from control.metrics.settings import load_settings
from control.metrics.writer import Writer
from control.remembered import RememberedLoads


@pytest.fixture
def settings_with(tmp_path):
    """Settings read from a database in which a name has a value, as text, that Splash may not have written."""
    database = open_database(tmp_path / "splash.db")
    writer = Writer(database)

    def read(**values):
        with database.begin() as connection:
            for name, value in values.items():
                connection.execute(
                    text("insert into settings (name, value) values (:name, :value)"), {"name": name, "value": value}
                )
        return load_settings(database, writer)

    yield read
    writer.close()


@pytest.mark.parametrize("value", ["5", "[1]", "null", '""', "{", "[" * 100_000, b"\xff"])
def test_a_last_model_that_is_no_name_is_the_demo(settings_with, value):
    assert RememberedLoads(settings_with(last_model=value)).last_model == "demo"


@pytest.mark.parametrize(
    "value",
    ["[1]", '{"big": 1}', '{"big": {"context": "x"}}', '{"big": {"context": -5}}', '{"big": {"budget_bytes": 0}}'],
)
def test_loads_that_cannot_be_understood_are_forgotten(settings_with, value):
    assert RememberedLoads(settings_with(loads=value)).complete("big", None, None) == Wanted("big")


async def test_a_load_comes_back_with_what_was_left_out(settings_with):
    await RememberedLoads(settings_with()).remember(Wanted("big", context=100, budget_bytes=7))

    again = RememberedLoads(settings_with())

    assert again.last_model == "big"
    assert again.complete("big", None, 8) == Wanted("big", 100, 8)
    assert again.complete("other", None, None) == Wanted("other")


@pytest.mark.parametrize(
    ("value", "concurrency"), [("2", 2), ('"abc"', 4), ("0", 4), ("99", 4), ("true", 4), ("2.5", 4), ("[2]", 4)]
)
def test_a_concurrency_that_is_impossible_is_the_default(settings_with, value, concurrency):
    assert MAXIMUM_CONCURRENCY == 4
    assert concurrency_of(settings_with(concurrency=value)) == concurrency
