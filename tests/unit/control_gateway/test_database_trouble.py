"""splash.db locked, refusing, renamed or deleted while Splash serves: rows, keys and settings survive."""

import asyncio
import json
import logging
import sqlite3
import threading
import time
from types import SimpleNamespace

import msgspec
import pytest
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from control.admin.edge import HANDLERS
from control.keys import load_keys
from control.metrics import database
from control.metrics import writer as writer_module
from control.metrics.database import BUSY_TIMEOUT_S, open_database, open_for_reading
from control.metrics.questions import Questions
from control.metrics.settings import load_settings
from control.metrics.writer import Writer
from control.wire import DatabaseHealth, KeyChange
from tests.fakes.newest_rows import newest_rows
from tests.unit.control_gateway.test_metrics import row
from tests.unit.control_metrics.histories import stretch

PATIENCE_S = 10.0


@pytest.fixture
def splash(tmp_path, monkeypatch):
    """A database with all who live on it; nobody waits long for it."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "splash.db"
    engine = open_database(path)
    writer = Writer(engine, rows_limit=5, retry_every_s=0.05)
    questions = Questions(open_for_reading(path))
    yield SimpleNamespace(
        path=path,
        writer=writer,
        questions=questions,
        keys=load_keys(engine, writer),
        settings=load_settings(engine, writer),
    )
    questions.close()
    writer.close()


class Locked:
    """Another program that writes to the database, for as long as the block."""

    def __init__(self, path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_) -> None:
        self._connection.close()


async def eventually(is_so) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def numbers(splash, expected) -> None:
    """Until the console shows these requests, the newest first."""
    deadline = time.monotonic() + PATIENCE_S
    while [each.number for each in await newest_rows(splash.questions, 100)] != expected:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_requests_of_a_time_when_the_database_was_locked_are_in_the_list_afterwards(splash):
    with Locked(splash.path):
        splash.writer.record(row(1))
        splash.writer.record(row(2))
        await asyncio.sleep(0.2)

    await numbers(splash, [2, 1])
    assert splash.writer.losses == 0


async def test_a_database_that_takes_no_rows_is_one_line_in_the_log_and_not_a_traceback_for_each(splash, caplog):
    with Locked(splash.path):
        for number in range(5):
            splash.writer.record(row(number))
            await asyncio.sleep(0.1)

    [line] = warnings_of(caplog)
    assert line == "rows not written waiting=1 lost=0 reason=database is locked"
    assert all(record.exc_info is None for record in caplog.records)


async def test_the_log_says_again_after_a_while_that_rows_wait(splash, caplog, monkeypatch):
    monkeypatch.setattr(writer_module, "WARN_EVERY_S", 0.0)

    with Locked(splash.path):
        splash.writer.record(row(1))
        await eventually(lambda: len(warnings_of(caplog)) > 1)

    assert warnings_of(caplog)[1] == "rows not written waiting=1 lost=0 reason=database is locked"


async def test_of_more_rows_than_can_wait_the_oldest_are_lost_and_counted(splash):
    with Locked(splash.path):
        for number in range(8):
            splash.writer.record(row(number))
        await eventually(lambda: splash.writer.losses == 3)

    await numbers(splash, [7, 6, 5, 4, 3])
    assert splash.writer.losses == 3


async def test_rows_that_wait_at_the_end_are_lost_and_counted(splash, caplog):
    with Locked(splash.path):
        splash.writer.record(row(1))
        splash.writer.record(row(2))
        await asyncio.to_thread(splash.writer.close)

    assert splash.writer.losses == 2
    assert warnings_of(caplog)[-1] == "rows not written waiting=0 lost=2 reason=Splash ends"


@pytest.mark.parametrize("fields", [{"number": 2**70}, {"key": "\ud800"}, {"model": None}])
async def test_a_row_that_can_never_be_written_is_lost_alone(splash, fields, caplog):
    with Locked(splash.path):
        for each in (row(1), msgspec.structs.replace(row(2), **fields), row(3)):
            splash.writer.record(each)

    await numbers(splash, [3, 1])
    assert splash.writer.losses == 1
    assert all(record.exc_info is None for record in caplog.records)


async def test_a_row_of_an_order_is_written_before_what_was_ordered_after_it(splash):
    splash.writer.record(row(1))

    found = await splash.writer.write(
        lambda connection: connection.exec_driver_sql("SELECT number FROM requests").all()
    )

    assert found == [(1,)]


async def test_nobody_waits_for_ever_for_a_writer_that_is_closed(splash):
    await asyncio.to_thread(splash.writer.close)

    with pytest.raises(RuntimeError):
        await splash.writer.write(lambda connection: None)


@pytest.mark.parametrize("gone", ["deleted", "renamed", "deleted with its companions"])
async def test_a_database_that_is_gone_is_made_again_with_keys_and_settings(splash, gone, caplog):
    created = await splash.keys.create("laptop", "batch")
    await splash.keys.change(1, KeyChange(tokens_per_day=7))
    revoked = await splash.keys.create("old")
    await splash.keys.revoke(revoked.view.id)
    await splash.settings.put("concurrency", 3)
    splash.writer.record(row(1))
    await numbers(splash, [1])

    lose(splash.path, gone)
    splash.writer.record(row(2))

    await numbers(splash, [2])
    await eventually(lambda: any("made again" in line for line in warnings_of(caplog)))
    assert splash.keys.verify(created.key.encode()).name == "laptop"
    await splash.keys.create("phone")
    assert splash.writer.losses == 0
    splash.writer.close()
    again = open_database(splash.path)
    writer = Writer(again)
    assert load_keys(again, writer).list() == splash.keys.list()
    assert load_settings(again, writer).get("concurrency", int) == 3
    writer.close()


async def test_a_database_that_was_renamed_keeps_everything_up_to_then(splash):
    splash.writer.record(row(1))
    await numbers(splash, [1])

    lose(splash.path, "renamed")
    splash.writer.record(row(2))
    await numbers(splash, [2])

    with sqlite3.connect(splash.path.with_name("old.db")) as old:
        assert old.execute("SELECT number FROM requests").fetchall() == [(1,)]


async def test_a_database_that_is_gone_is_made_again_though_nobody_asks_for_anything(splash, monkeypatch, caplog):
    monkeypatch.setattr(writer_module, "LOOK_EVERY_S", 0.05)
    await splash.writer.write(lambda connection: None)

    lose(splash.path, "deleted")

    await eventually(splash.path.exists)
    assert await splash.keys.create("laptop")


async def test_while_no_other_database_can_be_made_orders_are_refused_and_rows_wait(splash, caplog):
    await numbers(splash, [])
    folder = splash.path.parent
    folder.rename(folder.with_name("away"))
    splash.writer.record(row(1))
    with pytest.raises(database.DatabaseLost):
        await splash.keys.create("laptop")
    assert splash.keys.list() == ()

    folder.mkdir()
    await numbers(splash, [1])

    await splash.keys.create("laptop")
    assert splash.writer.losses == 0


def lose(path, how: str) -> None:
    if how == "renamed":
        path.rename(path.with_name("old.db"))
        return
    path.unlink()
    if how == "deleted with its companions":
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink()


async def test_an_order_that_can_not_be_begun_in_time_is_refused_and_never_done(splash, monkeypatch):
    monkeypatch.setattr(writer_module, "ORDER_BEGINS_WITHIN_S", 0.02)
    held, began = threading.Event(), threading.Event()

    def hold(connection) -> None:
        began.set()
        held.wait(PATIENCE_S)

    first = asyncio.create_task(splash.writer.write(hold))
    await asyncio.to_thread(began.wait, PATIENCE_S)

    with pytest.raises(database.DatabaseBusy) as caught:
        await splash.keys.create("laptop")
    held.set()
    await first
    await splash.writer.write(lambda connection: None)

    assert database.is_busy(caught.value)
    assert splash.keys.list() == ()
    found = await splash.writer.write(lambda c: c.exec_driver_sql("SELECT count(*) FROM keys").scalar_one())
    assert found == 0


async def test_an_order_that_meets_a_locked_database_is_told_so(splash):
    with Locked(splash.path), pytest.raises(SQLAlchemyError) as caught:
        await splash.keys.create("laptop")

    assert database.is_busy(caught.value)
    assert not database.is_busy(database.DatabaseLost("the file is gone"))


async def test_the_admin_api_says_of_a_locked_database_that_the_order_may_come_again(splash):
    with Locked(splash.path), pytest.raises(SQLAlchemyError) as caught:
        await splash.settings.put("concurrency", 3)
    request = Request({"type": "http", "path": "/settings"})

    held = await HANDLERS[SQLAlchemyError](request, caught.value)
    gone = await HANDLERS[SQLAlchemyError](request, database.DatabaseLost("the file is gone"))

    assert (held.status_code, json.loads(held.body)["code"]) == (503, "database_busy")
    assert held.headers["retry-after"] == "2"
    assert (gone.status_code, json.loads(gone.body)["code"]) == (503, "database_unusable")


def test_nobody_waits_more_than_five_seconds_for_an_order():
    assert writer_module.ORDER_BEGINS_WITHIN_S + BUSY_TIMEOUT_S <= 5.0


async def test_while_a_database_is_locked_its_health_says_what_waits_and_why(splash):
    before = splash.writer.health
    with Locked(splash.path):
        splash.writer.record(row(1))
        splash.writer.record(row(2))
        await eventually(lambda: splash.writer.health.problem is not None)
        meanwhile = [splash.writer.health for _ in range(50) if not await asyncio.sleep(0.005)]

    await numbers(splash, [2, 1])
    await eventually(lambda: splash.writer.health.problem is None)
    assert set(meanwhile) == {DatabaseHealth(waiting_rows=2, problem="database is locked")}
    assert before == splash.writer.health == DatabaseHealth()


async def test_on_a_full_disk_rows_wait_and_those_beyond_the_limit_are_counted_as_lost(splash):
    await splash.writer.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 1"))
    for number in range(8):
        # Each needs a page of its own.
        splash.writer.record(row(number, key="k" * 5000))
    await eventually(lambda: splash.writer.losses == 3 and splash.writer.health.problem is not None)
    full = splash.writer.health

    await splash.writer.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 1000000"))

    await numbers(splash, [7, 6, 5, 4, 3])
    await eventually(lambda: splash.writer.health.problem is None)
    assert full == DatabaseHealth(waiting_rows=5, lost_rows=3, problem="database or disk is full")
    assert splash.writer.health == DatabaseHealth(lost_rows=3)


async def test_stretches_wait_and_are_lost_as_requests_are(splash):
    with Locked(splash.path):
        for number in range(8):
            splash.writer.record(stretch(tokens=number))
        await eventually(lambda: splash.writer.losses == 3)

    found = await splash.writer.write(lambda c: c.exec_driver_sql("SELECT tokens FROM stretches").scalars().all())
    assert found == [3, 4, 5, 6, 7]
