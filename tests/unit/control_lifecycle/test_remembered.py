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
def test_a_last_model_that_is_no_name_is_the_demo_with_a_warning(settings_with, value, caplog):
    assert RememberedLoads(settings_with(last_model=value)).last_model == "demo"
    assert "setting ignored name=last_model" in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        "null",
        "[1]",
        '{"big": 1}',
        '{"big": {"context": "x"}}',
        '{"big": {"context": -5}}',
        '{"big": {"budget_bytes": 0}}',
        '{"big": {"kv_bits": 7}}',
        '{"big": {"max_gap_ms": 1}}',
        '{"big": {"decode_share": 0.95}}',
    ],
)
def test_loads_that_cannot_be_understood_are_forgotten_with_a_warning(settings_with, value, caplog):
    assert RememberedLoads(settings_with(loads=value)).last("big") == Wanted("big")
    assert "setting ignored name=loads" in caplog.text


async def test_a_model_comes_back_with_every_setting_that_it_had(settings_with):
    big = Wanted("big", context=100, budget_bytes=7, kv_bits=8, max_gap_ms=250, decode_share=0)
    await RememberedLoads(settings_with()).remember(big)

    again = RememberedLoads(settings_with())

    assert again.last_model == "big"
    assert again.last("big") == big
    assert again.last("other") == Wanted("other")


async def test_what_nobody_asked_for_is_not_kept_so_that_a_new_default_counts(settings_with):
    settings = settings_with()

    await RememberedLoads(settings).remember(Wanted("big", kv_bits=4))

    assert settings.get("loads", dict) == {"big": {"kv_bits": 4}}


def test_what_an_older_splash_kept_is_understood(settings_with):
    settings = settings_with(loads='{"big": {"context": 9, "budget_bytes": null}}')

    assert RememberedLoads(settings).last("big") == Wanted("big", context=9)


@pytest.mark.parametrize(
    ("value", "concurrency"), [("2", 2), ('"abc"', 4), ("0", 4), ("99", 4), ("true", 4), ("2.5", 4), ("[2]", 4)]
)
def test_a_concurrency_that_is_impossible_is_the_default_with_a_warning(settings_with, value, concurrency, caplog):
    assert MAXIMUM_CONCURRENCY == 4
    assert concurrency_of(settings_with(concurrency=value)) == concurrency
    assert ("setting ignored name=concurrency" in caplog.text) == (concurrency == MAXIMUM_CONCURRENCY)
