"""What comes out of a damaged splash.db, wherever it was cut or spoilt: nothing that was not there, all that can."""

import random
import shutil
import sqlite3
import time

import pytest
from sqlalchemy import select

from control.metrics import readable, salvage
from control.metrics.database import open_database
from control.metrics.local_day import local_day
from control.metrics.recording import record
from control.metrics.rollups import SUM_TABLES
from control.metrics.salvage import KEYS_AND_SETTINGS, NUMBERS
from control.metrics.tables import keys, requests, settings, stretches
from tests.unit.control_gateway.test_metrics import NOON, row
from tests.unit.control_metrics.histories import stretch

PAGE_BYTES = 4096
NUM_ROWS = 700
NUM_KEYS = 17
# What is cut off is looked for up to now.
BEGIN_S = time.time() - NUM_ROWS * 1100
TABLES = (*KEYS_AND_SETTINGS, *NUMBERS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Keys and settings first, as in life; then nine days of requests and stretches, up to now."""
    path = tmp_path_factory.mktemp("whole") / "splash.db"
    engine = open_database(path)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO settings VALUES ('concurrency', '3')")
        for number in range(NUM_KEYS):
            connection.exec_driver_sql(
                "INSERT INTO keys (name, request_class, hint, sha256, created_at_s) VALUES (?, 'batch', 'h', ?, 1)",
                (f"key {number}", bytes([number]) * 32),
            )
    for first in range(0, NUM_ROWS, 10):
        numbers = range(first, first + 10)
        with engine.begin() as connection:
            record(connection, [row(n, started_at_s=BEGIN_S + n * 1100, key=f"key {n % NUM_KEYS}") for n in numbers])
            record(connection, [stretch(started_at_s=BEGIN_S + n * 1100, width=1 + n % 4) for n in numbers])
    engine.dispose()
    return path


def rows_of(path, table):
    engine = open_database(path)
    columns = [column for column in table.columns if column is not stretches.c.id]
    with engine.begin() as connection:
        found = {tuple(each) for each in connection.execute(select(*columns))}
    engine.dispose()
    return found


def salvaged(damaged, tmp_path):
    made = tmp_path / "made.db"
    engine = open_database(made)
    with engine.begin() as connection:
        # However slow the machine is.
        counts = salvage.salvage(damaged, connection, TABLES, monotonic=lambda: 0.0)
    engine.dispose()
    found = {table: rows_of(made, table) for table in TABLES}
    made.unlink()
    return counts, found


def pages_of(path, table: str) -> list[int]:
    with sqlite3.connect(path) as connection:
        found = [page for (page,) in connection.execute("SELECT pageno FROM dbstat WHERE name = ?", (table,))]
    connection.close()
    return found


def readable_by_number(damaged, was) -> set[tuple]:
    """Requests that can be read and are as they were, looked up one by one: nothing else is to be expected."""
    found = set()
    source = readable.open_damaged(damaged)
    for number in range(1, NUM_ROWS + 1):
        try:
            for values in source.execute("SELECT * FROM requests NOT INDEXED WHERE rowid = ?", (number,)):
                found.add(tuple(v.decode() if isinstance(v, bytes) else v for v in values))
        except (sqlite3.Error, UnicodeDecodeError):
            continue
    source.close()
    return found & was


@pytest.mark.parametrize("percent", [6, 11, 17, 23, 31, 40, 50, 59, 66, 73, 80, 88, 95, 99])
def test_of_a_file_that_was_cut_everything_comes_over_whose_pages_are_there(whole, tmp_path, percent):
    damaged = tmp_path / "splash.db"
    shutil.copy(whole, damaged)
    size = whole.stat().st_size * percent // 100
    with damaged.open("r+b") as file:
        file.truncate(size)
    was = {table: rows_of(whole, table) for table in TABLES}

    counts, found = salvaged(damaged, tmp_path)

    for table in (keys, settings, requests, stretches):
        assert found[table] <= was[table]
        assert counts[table.name] == len(found[table])
        if max([*pages_of(whole, table.name), *pages_of(whole, "sqlite_schema")]) * PAGE_BYTES <= size:
            assert found[table] == was[table]
    assert found[requests] == readable_by_number(damaged, was[requests])
    for table in SUM_TABLES:
        if max([*pages_of(whole, table.name), *pages_of(whole, "sqlite_schema")]) * PAGE_BYTES <= size:
            assert found[table] == was[table]
        # A sum that was made again of the rows that are left may be smaller, and never is of another hour or day.
        names = [column.name for column in table.primary_key]
        key = len(names)
        assert {each[:key] for each in found[table]} <= {each[:key] for each in was[table]}


@pytest.mark.parametrize("seed", range(20))
def test_past_pages_that_can_not_be_read_every_other_row_of_requests_comes_over_once(whole, tmp_path, seed):
    chance = random.Random(seed)
    damaged = tmp_path / "splash.db"
    shutil.copy(whole, damaged)
    leaves = pages_of(whole, "requests")[1:]
    spoilt = chance.sample(leaves, chance.randint(1, len(leaves) - 1))
    if seed % 2:
        spoilt = [leaves[0], leaves[-1], *spoilt]
    with damaged.open("r+b") as file:
        for page in spoilt:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(b"\xa5" * PAGE_BYTES)
    was = rows_of(whole, requests)

    counts, found = salvaged(damaged, tmp_path)

    assert found[requests] <= was
    assert found[requests] == readable_by_number(damaged, was)
    assert counts["stretches"] == NUM_ROWS


def test_sums_between_two_pages_that_can_not_be_read_come_over_too(whole, tmp_path):
    damaged = tmp_path / "splash.db"
    shutil.copy(whole, damaged)
    leaves = pages_of(whole, "hourly_requests")[1:]
    assert len(leaves) > 4
    with damaged.open("r+b") as file:
        for page in (leaves[0], leaves[-1]):
            file.seek((page - 1) * PAGE_BYTES)
            file.write(b"\xa5" * PAGE_BYTES)
    table = next(table for table in SUM_TABLES if table.name == "hourly_requests")

    counts, found = salvaged(damaged, tmp_path)

    # All are there again: those of the two pages were made of the rows.
    assert found[table] == rows_of(whole, table)
    assert counts["hourly_requests"] > len(found[table]) * (len(leaves) - 3) / len(leaves)


def test_the_newest_rows_come_over_when_there_are_more_than_are_taken(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(readable, "ROWS_TAKEN_OVER", 50)

    _, found = salvaged(whole, tmp_path)

    number = list(requests.columns.keys()).index("number")
    assert {each[number] for each in found[requests]} == set(range(NUM_ROWS - 50, NUM_ROWS))


def test_numbers_that_no_request_can_have_stay_behind(whole, tmp_path):
    damaged = tmp_path / "splash.db"
    shutil.copy(whole, damaged)
    with sqlite3.connect(damaged) as connection:
        connection.execute("UPDATE requests SET prompt_tokens = 9000000000000000000 WHERE number < 3")
    connection.close()

    counts, _ = salvaged(damaged, tmp_path)

    assert counts["requests"] == NUM_ROWS - 3


def test_the_day_of_a_sum_is_read_as_it_is_written():
    axis = readable._Days("day", ("day",), is_unique=False)

    assert axis.value_of(axis.position_of(local_day(NOON).encode())) == local_day(NOON)


def test_what_takes_too_long_to_take_over_is_left_and_the_start_goes_on(whole, tmp_path):
    # `whole` is spoilt by no test here: each works on a copy.
    damaged = shutil.copy(whole, tmp_path / "slow.db")
    seconds = iter(range(0, 10_000, 3))
    engine = open_database(tmp_path / "new.db")

    with engine.begin() as connection:
        counts = salvage.salvage(damaged, connection, TABLES, monotonic=lambda: next(seconds))
        num_requests = len(connection.execute(select(requests)).all())
    engine.dispose()

    assert counts["keys"] == NUM_KEYS
    assert counts["requests"] == num_requests == 0
