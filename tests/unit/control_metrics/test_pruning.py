"""Rows go after 30 days, in small steps that hold up nobody; what they said stays, and the file does not grow."""

import asyncio
import os
import sqlite3

import pytest
from sqlalchemy import func, select

from control.metrics import pruning as pruning_module
from control.metrics.database import open_database
from control.metrics.pruning import KEPT_S, Pruning
from control.metrics.tables import daily_requests, requests, stretches
from control.metrics.writer import Writer
from tests.unit.control_gateway.test_metrics import NOON, row
from tests.unit.control_metrics.histories import stretch

DAY_S = 86_400.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "splash.db"


@pytest.fixture
def writer(path):
    writer = Writer(open_database(path))
    yield writer
    writer.close()


async def numbers(writer) -> list[int]:
    return await writer.write(lambda connection: connection.execute(select(requests.c.number)).scalars().all())


async def counted(writer) -> int:
    return await writer.write(lambda c: c.execute(select(func.sum(daily_requests.c.requests))).scalar_one())


async def test_what_is_older_than_thirty_days_goes_and_its_sums_stay(writer):
    now_s = NOON + 40 * DAY_S
    for number, age_s in ((1, KEPT_S + 1), (2, KEPT_S), (3, 0.0)):
        writer.record(row(number, started_at_s=now_s - age_s))
        writer.record(stretch(started_at_s=now_s - age_s))

    removed = await Pruning(writer, wall=lambda: now_s).prune()

    spans = await writer.write(lambda connection: connection.execute(select(stretches.c.started_at_s)).scalars().all())
    assert removed == 2
    assert await numbers(writer) == [2, 3]
    assert spans == [now_s - KEPT_S, now_s]
    assert await counted(writer) == 3


async def test_no_step_removes_more_than_five_hundred_and_others_go_between_two_steps(writer):
    for number in range(1200):
        writer.record(row(number))
    await writer.write(lambda connection: None)
    steps, left = [], []
    remove_some = pruning_module.remove_some

    def watched(connection, table, before_s):
        steps.append(remove_some(connection, table, before_s))
        return steps[-1]

    async def person():
        while not steps:  # noqa: ASYNC110  # steps are no events
            await asyncio.sleep(0)
        writer.record(row(9999, started_at_s=NOON + 60 * DAY_S))
        left.append(len(await numbers(writer)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning_module, "remove_some", watched)
        removed, _ = await asyncio.gather(Pruning(writer, wall=lambda: NOON + 40 * DAY_S).prune(), person())

    assert removed == 1200
    assert steps == [500, 500, 200, 0, 0]
    assert left[0] in (701, 201)
    assert await numbers(writer) == [9999]


async def test_after_something_went_the_wal_is_emptied_once_and_not_for_nothing(writer, path):
    writer.record(row(1))
    await writer.write(lambda connection: None)
    wal = path.with_name("splash.db-wal")

    nothing = await Pruning(writer, wall=lambda: NOON).prune()
    before = wal.stat().st_size
    something = await Pruning(writer, wall=lambda: NOON + 40 * DAY_S).prune()

    assert (nothing, something) == (0, 1)
    assert before > 0
    assert wal.stat().st_size == 0


async def test_year_after_year_the_file_stays_as_large_as_thirty_days_are(writer, path):
    sizes, number = [], 0
    for month in range(1, 13):
        now_s = NOON + month * KEPT_S
        for place in range(900):
            number += 1
            # All in one hour: what is kept for ever is little.
            writer.record(row(number, id=os.urandom(16).hex(), started_at_s=now_s - KEPT_S / 2 + place))
        await Pruning(writer, wall=lambda now_s=now_s: now_s).prune()
        await writer.truncate_wal()
        sizes.append(path.stat().st_size)

    assert await counted(writer) == number
    assert sizes[-1] <= sizes[1] * 1.1


async def test_a_database_that_is_locked_is_pruned_the_next_time(writer, path, monkeypatch, caplog):
    writer.record(row(1))
    await writer.write(lambda connection: connection.exec_driver_sql("PRAGMA busy_timeout = 20"))
    pruning = Pruning(writer, wall=lambda: NOON + 40 * DAY_S)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    first = await pruning.prune()
    other.close()
    second = await pruning.prune()

    assert (first, second) == (0, 1)
    warning = next(record for record in caplog.records if record.levelname == "WARNING")
    assert warning.getMessage() == "old rows not all removed removed=0 reason=database is locked"


async def test_it_prunes_at_once_when_control_starts(writer):
    writer.record(row(1))
    running = asyncio.create_task(Pruning(writer, wall=lambda: NOON + 40 * DAY_S).run())

    async with asyncio.timeout(5):
        while await numbers(writer):  # noqa: ASYNC110  # the database says it, no event
            await asyncio.sleep(0)
    running.cancel()

    assert await counted(writer) == 1
