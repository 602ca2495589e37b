"""A damaged splash.db, at start and while Splash serves: set aside, a new one begun, and what can be read is kept."""

import logging
import random
import shutil
import sqlite3
from contextlib import suppress

import pytest
from sqlalchemy import func, select

from control.errors import DatabaseUnusable
from control.keys import load_keys
from control.metrics import damage, place
from control.metrics.damage import name_aside
from control.metrics.database import open_database, open_for_reading
from control.metrics.place import open_or_begin_anew
from control.metrics.questions import Questions
from control.metrics.settings import load_settings
from control.metrics.tables import daily_requests, hourly_decode, hourly_times, requests, stretches
from control.metrics.writer import Writer
from control.wire import DatabaseHealth
from tests.fakes.newest_rows import newest_rows
from tests.unit.control_gateway.test_metrics import NOON, row
from tests.unit.control_metrics import earlier_schemas
from tests.unit.control_metrics.histories import stretch

PAGE_BYTES = 4096
NUM_ROWS = 400
ASIDE = "splash.db.damaged-20261129-120000"


@pytest.fixture
def path(tmp_path):
    """A database with something in each table, closed."""
    path = tmp_path / "splash.db"
    engine = open_database(path)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO settings VALUES ('concurrency', '3')")
        connection.exec_driver_sql(
            "INSERT INTO keys (name, request_class, hint, sha256, created_at_s) VALUES ('old', 'batch', 'h', x'ff', 1)"
        )
    writer = Writer(engine)
    for number in range(1, NUM_ROWS + 1):
        writer.record(row(number, started_at_s=NOON + number, key=f"key {number % 5}", queue_ms=float(number)))
        writer.record(stretch(started_at_s=NOON + number, width=1 + number % 4))
    writer.close()
    return path


def in_file(engine, question):
    with engine.begin() as connection:
        return connection.execute(question).scalar_one()


def count_of(engine, table) -> int:
    return in_file(engine, select(func.count()).select_from(table))


def sum_of_requests(engine) -> int:
    return in_file(engine, select(func.sum(daily_requests.c.requests)))


def pages_of(path, table: str) -> list[int]:
    """Numbers of its leaves, first to last; of its own tree, not of its indexes."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        found = connection.execute("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,))
        pages = [pageno for (pageno,) in found]
    connection.close()
    return pages


def overwrite(path, pages, content=b"\xa5") -> None:
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(content * PAGE_BYTES)


def root_of(path, table: str) -> int:
    with sqlite3.connect(path) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    return page


# --- At start ---


@pytest.mark.parametrize(
    "spoil", ["no database", "header", "a later version", "a later schema", "truncated", "half a page", "zeros"]
)
def test_at_start_a_file_that_can_not_be_used_is_set_aside_and_a_new_one_begun(path, spoil, caplog):
    was = {
        "no database": b"not a database, but long enough to look like one" * 500,
        "header": b"\xff" * 100 + path.read_bytes()[100:],
        "a later version": path.read_bytes()[:18] + b"\x09" + path.read_bytes()[19:],
        "a later schema": path.read_bytes()[:44] + b"\x09" + path.read_bytes()[45:],
        "truncated": path.read_bytes()[: 6 * PAGE_BYTES],
        "half a page": path.read_bytes()[: 3 * PAGE_BYTES + 77],
        "zeros": bytes(len(path.read_bytes())),
    }[spoil]
    path.write_bytes(was)

    opened = open_or_begin_anew(path, wall=lambda: NOON)

    assert opened.set_aside == ASIDE
    assert path.with_name(ASIDE).read_bytes() == was
    writer = Writer(opened.engine, opened.set_aside)
    writer.record(row(NUM_ROWS + 1))
    assert writer.health.set_aside == ASIDE
    writer.close()
    assert writer.losses == 0
    assert path.stat().st_mode & 0o777 == 0o600
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert line.startswith(f"database damaged, and another begun file={path} aside={path.with_name(ASIDE)} reason=")


def test_of_a_damaged_page_of_requests_all_others_come_over_with_keys_settings_and_sums(path):
    lost = pages_of(path, "requests")[3]
    overwrite(path, [lost])

    opened = open_or_begin_anew(path, wall=lambda: NOON)
    writer = Writer(opened.engine)
    keys, settings = load_keys(opened.engine, writer), load_settings(opened.engine, writer)

    assert [(key.id, key.name) for key in keys.list()] == [(1, "old")]
    assert settings.get("concurrency", int) == 3
    # Some forty rows lie on a page.
    assert NUM_ROWS - 60 < count_of(opened.engine, requests) < NUM_ROWS
    assert count_of(opened.engine, stretches) == NUM_ROWS
    assert sum_of_requests(opened.engine) == NUM_ROWS
    writer.close()


def test_sums_that_can_not_be_read_are_made_again_of_the_rows(path):
    engine = open_database(path)
    counts = {table.name: count_of(engine, table) for table in (daily_requests, hourly_decode, hourly_times)}
    engine.dispose()
    overwrite(path, [root_of(path, name) for name in counts])

    opened = open_or_begin_anew(path, wall=lambda: NOON)

    assert {table.name: count_of(opened.engine, table) for table in (daily_requests, hourly_decode, hourly_times)} == (
        counts
    )
    assert sum_of_requests(opened.engine) == NUM_ROWS
    opened.engine.dispose()


def test_a_damaged_file_of_an_earlier_schema_comes_over_too(tmp_path):
    path = tmp_path / "splash.db"
    earlier_schemas.make(path, "0001", [row(number, started_at_s=NOON + number) for number in range(NUM_ROWS)])
    overwrite(path, pages_of(path, "requests")[2:3])

    opened = open_or_begin_anew(path, wall=lambda: NOON)
    num_kept = count_of(opened.engine, requests)
    writer = Writer(opened.engine)

    assert [(key.id, key.name) for key in load_keys(opened.engine, writer).list()] == [(3, "old")]
    assert NUM_ROWS - 60 < num_kept < NUM_ROWS
    assert sum_of_requests(opened.engine) == num_kept
    writer.close()


def test_a_value_that_its_column_can_not_have_stays_behind_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE requests SET prompt_tokens = 'many' WHERE number = 1")
        connection.execute("UPDATE requests SET outcome = 'glorious' WHERE number = 2")
        connection.execute("UPDATE requests SET model = CAST(x'fffe' AS TEXT) WHERE number = 3")
        connection.execute("UPDATE settings SET value = CAST(x'ff' AS TEXT)")
    connection.close()
    overwrite(path, pages_of(path, "stretches")[:1])

    opened = open_or_begin_anew(path, wall=lambda: NOON)

    with opened.engine.begin() as connection:
        numbers = connection.execute(select(requests.c.number).order_by(requests.c.number)).scalars().all()
        assert connection.exec_driver_sql("SELECT * FROM settings").all() == []
    assert numbers == list(range(4, NUM_ROWS + 1))
    opened.engine.dispose()


@pytest.mark.parametrize("seed", range(12))
def test_whichever_pages_are_overwritten_splash_starts_and_records(path, seed):
    chance = random.Random(seed)
    num_pages = path.stat().st_size // PAGE_BYTES
    overwrite(path, chance.sample(range(1, num_pages + 1), chance.randint(1, 4)), chance.randbytes(1))

    opened = open_or_begin_anew(path, wall=lambda: NOON)
    writer = Writer(opened.engine, opened.set_aside)
    load_keys(opened.engine, writer), load_settings(opened.engine, writer)
    writer.record(row(9999))
    writer.close()

    assert writer.losses == 0
    again = open_database(path)
    with again.begin() as connection:
        assert connection.execute(select(requests.c.key).where(requests.c.number == 9999)).scalar_one() == "k"
    again.dispose()


def test_a_whole_file_is_left_alone(path):
    was = path.read_bytes()

    opened = open_or_begin_anew(path, wall=lambda: NOON)
    opened.engine.dispose()

    assert opened.set_aside is None
    assert path.read_bytes() == was
    assert sorted(each.name for each in path.parent.iterdir()) == ["splash-keys.json", "splash.db"]


def test_a_second_damaged_file_of_the_same_second_has_a_name_of_its_own(path):
    path.with_name(ASIDE).touch()

    assert name_aside(path, now_s=NOON).name == f"{ASIDE}-2"


def test_a_damaged_file_that_can_not_be_moved_stops_the_start_with_one_sentence(path, monkeypatch):
    path.write_bytes(b"no database" * 1000)

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(place, "move_aside", refused)

    with pytest.raises(DatabaseUnusable, match=r"cannot be used: .* It cannot be set aside: .*Permission denied"):
        open_or_begin_anew(path, wall=lambda: NOON)

    assert path.read_bytes() == b"no database" * 1000


def test_of_a_large_file_only_what_a_start_needs_is_checked(path, monkeypatch):
    monkeypatch.setattr(damage, "CHECKED_WHOLE_BYTES", 0)
    overwrite(path, [root_of(path, "keys")])

    opened = open_or_begin_anew(path, wall=lambda: NOON)

    assert opened.set_aside == ASIDE
    assert count_of(opened.engine, requests) == NUM_ROWS
    opened.engine.dispose()


# --- While Splash serves ---


@pytest.fixture
async def splash(path, monkeypatch):
    """It serves, and nobody has looked at the pages of requests yet."""
    monkeypatch.setattr(place, "ASIDE_EVERY_S", 0.0)
    opened = open_or_begin_anew(path)
    writer = Writer(opened.engine, opened.set_aside, retry_every_s=0.05)
    keys, settings = load_keys(opened.engine, writer), load_settings(opened.engine, writer)
    questions = Questions(open_for_reading(path), begin_anew=writer.begin_anew)
    yield Serving(path, writer, keys, settings, questions)
    questions.close()
    writer.close()


class Serving:
    def __init__(self, path, writer, keys, settings, questions) -> None:
        self.path, self.writer, self.keys, self.settings, self.questions = path, writer, keys, settings, questions

    def asides(self) -> list[str]:
        """Of damaged files, without what lies beside them."""
        names = (each.name for each in self.path.parent.glob("splash.db.damaged-*"))
        return [name for name in names if not name.endswith(("-wal", "-shm"))]


async def spoil(splash, how: str) -> None:
    """And forget what SQLite holds of it in memory: it would serve from there for as long as it could."""
    path = splash.path
    await splash.writer.write(lambda connection: connection.exec_driver_sql("PRAGMA cache_size = 0"))
    await splash.writer.truncate_wal()
    if how == "truncated":
        with path.open("r+b") as file:
            file.truncate(5 * PAGE_BYTES)
    elif how == "no database":
        path.write_bytes(b"no database" * 20_000)
    else:
        overwrite(path, range(2, path.stat().st_size // PAGE_BYTES + 1))


@pytest.mark.parametrize("how", ["truncated", "no database", "pages"])
async def test_rows_settings_and_keys_survive_a_file_that_is_spoilt_while_it_is_written_to(splash, how):
    created = await splash.keys.create("laptop")
    await splash.settings.put("concurrency", 2)

    await spoil(splash, how)
    splash.writer.record(row(5001))
    await splash.settings.put("last", "demo")
    splash.writer.record(row(5002))
    await splash.keys.create("phone")

    [aside] = splash.asides()
    assert splash.writer.health == DatabaseHealth(set_aside=aside)
    assert splash.keys.verify(created.key.encode()).name == "laptop"
    assert [each.number for each in await newest_rows(splash.questions, 2)] == [5002, 5001]
    splash.writer.close()
    again = open_database(splash.path)
    writer = Writer(again)
    assert load_keys(again, writer).list() == splash.keys.list()
    assert load_settings(again, writer).get("concurrency", int) == 2
    assert load_settings(again, writer).get("last", str) == "demo"
    writer.close()


async def test_a_question_that_meets_damage_is_answered_from_the_new_file(splash):
    overwrite(splash.path, pages_of_open(splash.path))

    rows = await newest_rows(splash.questions)

    [aside] = splash.asides()
    assert splash.writer.health.set_aside == aside
    assert NUM_ROWS - 60 < len(rows) < NUM_ROWS
    assert await splash.questions.ask(lambda c: c.execute(select(func.sum(daily_requests.c.requests))).scalar()) == (
        NUM_ROWS
    )


async def test_damage_that_nobody_has_met_is_found_within_an_hour(path, monkeypatch):
    opened = open_or_begin_anew(path)
    writer = Writer(opened.engine, opened.set_aside)
    now_s = 0.0
    questions = Questions(open_for_reading(path), begin_anew=writer.begin_anew, monotonic=lambda: now_s)
    overwrite(path, pages_of_open(path))

    await questions.today()
    before = writer.health.set_aside
    now_s = 3600.0
    today = await questions.today()
    after = writer.health.set_aside
    now_s = 7200.0
    await questions.today()

    assert (before, after is not None, writer.health.set_aside) == (None, True, after)
    assert today == await questions.today()
    questions.close()
    writer.close()


def pages_of_open(path) -> list[int]:
    """One page of requests, looked up in a copy: the file itself has a reader and a writer."""
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    page = pages_of(copy, "requests")[5]
    copy.unlink()
    return [page]


async def test_a_file_that_can_not_be_replaced_keeps_rows_waiting_until_it_can(splash, monkeypatch):
    await spoil(splash, "no database")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "move_aside", full)
        splash.writer.record(row(5001))
        with pytest.raises(place.DatabaseLost):
            await splash.settings.put("last", "demo")
        health = splash.writer.health
    await eventually_written(splash.writer)

    assert (health.waiting_rows, health.lost_rows, health.set_aside) == (1, 0, None)
    assert health.problem.startswith("the file is damaged (file is not a database), and another can't be made")
    assert [each.number for each in await newest_rows(splash.questions, 1)] == [5001]
    assert splash.writer.health == DatabaseHealth(set_aside=splash.asides()[0])


async def eventually_written(writer) -> None:
    for _ in range(200):
        try:
            await writer.write(lambda connection: None)
        except place.DatabaseLost:
            continue
        if not writer.health.waiting_rows:
            return
    raise AssertionError("rows still wait")


async def test_a_disk_that_damages_every_file_is_not_filled_with_them(splash, monkeypatch):
    monkeypatch.setattr(place, "ASIDE_EVERY_S", 60.0)
    for number in (5001, 5002):
        await spoil(splash, "no database")
        splash.writer.record(row(number))
        with suppress(place.DatabaseLost):
            await splash.settings.put("last", number)
    splash.writer.record(row(5003))
    with pytest.raises(place.DatabaseLost, match="another can't be made yet"):
        await splash.settings.put("last", "demo")

    assert len(splash.asides()) == 1
    assert splash.writer.health.waiting_rows == 2
    assert splash.writer.losses == 0
