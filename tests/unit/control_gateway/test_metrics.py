"""splash.db: private, migrated, one row per request, totals of the local day, settings; and when it fails."""

import asyncio
import stat
import threading
import time

import pytest
from sqlalchemy import insert, select

from control.errors import DatabaseUnusable
from control.metrics.database import open_database, open_for_reading
from control.metrics.local_day import local_midnight_s, next_midnight_s
from control.metrics.plausible import TOKENS_LIMIT
from control.metrics.questions import Questions
from control.metrics.settings import load_settings
from control.metrics.stretch import Stretch
from control.metrics.tables import metadata
from control.metrics.writer import Writer
from control.wire import KeyUsage, RequestRow, Today
from tests.fakes.newest_rows import newest_rows

NOON = time.mktime((2026, 11, 29, 12, 0, 0, 0, 0, -1))


def row(number=1, **fields) -> RequestRow:
    values = {
        "id": f"id-{number}",
        "number": number,
        "started_at_s": NOON,
        "key": "k",
        "dialect": "chat",
        "model": "demo",
        "stream": True,
        "outcome": "completed",
        "error_code": None,
        "finish_reason": "stop",
        "queue_ms": 1.5,
        "prefill_ms": None,
        "decode_ms": None,
        "ttft_ms": 2.5,
        "total_ms": 3.5,
        "prompt_tokens": 100,
        "cached_tokens": 90,
        "completion_tokens": 10,
        "reasoning_tokens": 4,
    }
    return RequestRow(**{**values, **fields})


@pytest.fixture
def path(tmp_path):
    # What a person's folder may be called.
    folder = tmp_path / "with space & 100%25"
    folder.mkdir()
    return folder / "splash.db"


@pytest.fixture
def writer(path):
    writer = Writer(open_database(path))
    yield writer
    writer.close()


@pytest.fixture
def questions(path, writer):
    questions = Questions(open_for_reading(path), wall=lambda: NOON + 60)
    yield questions
    questions.close()


async def written(writer):
    await writer.write(lambda connection: None)


async def rows_of(questions, limit=1000) -> tuple[RequestRow, ...]:
    """As they are in the table, the newest first."""
    statement = select(metadata.tables["requests"]).order_by(metadata.tables["requests"].c.number.desc()).limit(limit)
    found = await questions.ask(lambda connection: connection.execute(statement).mappings().all())
    return tuple(RequestRow(**each) for each in found)


async def test_a_row_comes_back_as_it_was_written(writer, questions):
    writer.record(row())
    await written(writer)

    assert await newest_rows(questions, 10) == (row(),)


async def test_the_same_id_twice_is_one_row(writer, questions):
    writer.record(row())
    writer.record(row(outcome="failed"))
    await written(writer)

    assert await newest_rows(questions, 10) == (row(),)
    assert writer.losses == 0


async def test_the_last_number_is_the_highest_whichever_request_ended_last(writer, questions):
    for number in (3, 7, 5):
        writer.record(row(number))
    await written(writer)

    assert await questions.last_number() == 7


async def test_before_the_first_request_there_are_no_totals(questions):
    assert await questions.today() == Today(hit_rate=None)
    assert await questions.last_number() == 0


async def test_today_begins_at_local_midnight_and_leaves_out_what_was_turned_away(writer, questions):
    midnight = local_midnight_s(NOON)
    writer.record(row(1, started_at_s=midnight - 1))
    writer.record(row(2, started_at_s=midnight))
    writer.record(row(3, outcome="cancelled", prompt_tokens=300, cached_tokens=110))
    writer.record(row(4, outcome="rejected"))
    await written(writer)

    assert await questions.today() == Today(
        requests=2, prompt_tokens=400, cached_tokens=200, completion_tokens=20, hit_rate=0.5
    )


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_midnight_is_this_machines(monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        # The clocks go back in New York on 1 November 2026: that day has 25 hours.
        for day in (1, 29):
            noon = time.mktime((2026, 11, day, 12, 0, 0, 0, 0, -1))
            assert time.localtime(local_midnight_s(noon))[:6] == (2026, 11, day, 0, 0, 0)
            assert time.localtime(next_midnight_s(noon))[:6] == (2026, 11, day + 1, 0, 0, 0)
            assert next_midnight_s(local_midnight_s(noon)) == next_midnight_s(noon)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_days_on_which_the_clocks_change_are_as_long_as_they_are(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        hours = {}
        for month, day in ((3, 8), (11, 1), (11, 2)):
            noon = time.mktime((2026, month, day, 12, 0, 0, 0, 0, -1))
            hours[month, day] = (next_midnight_s(noon) - local_midnight_s(noon)) / 3600
    finally:
        monkeypatch.undo()
        time.tzset()

    assert hours == {(3, 8): 23, (11, 1): 25, (11, 2): 24}


async def test_what_each_key_used_today_is_told_by_its_id(path, writer, questions):
    midnight = local_midnight_s(NOON)
    for key_id, name, created_at_s, revoked_at_s in (
        (1, "laptop", 0, NOON),
        (2, "laptop", NOON, None),
        (3, "phone", 0, None),
        (4, "idle", 0, None),
    ):
        values = {"id": key_id, "name": name, "created_at_s": created_at_s, "revoked_at_s": revoked_at_s}
        statement = insert(metadata.tables["keys"]).values(
            **values, request_class="batch", hint="h", sha256=bytes([key_id])
        )
        await writer.write(lambda connection, statement=statement: connection.execute(statement))
    for number, fields in enumerate(
        (
            {"key": "laptop", "started_at_s": midnight - 1},
            {"key": "laptop", "started_at_s": midnight},
            {"key": "laptop", "started_at_s": NOON, "prompt_tokens": 1, "completion_tokens": 2},
            {"key": "laptop", "started_at_s": NOON + 1, "outcome": "rejected"},
            {"key": "phone", "outcome": "cancelled"},
            {"key": "phone", "outcome": "failed"},
            {"key": "console"},
        )
    ):
        writer.record(row(number, **fields))
    await written(writer)

    usage = await questions.usage_by_day()
    assert usage[midnight] == {
        1: KeyUsage(requests=1, tokens=110),
        2: KeyUsage(requests=1, tokens=3),
        3: KeyUsage(requests=2, tokens=220),
    }
    # The first of them began a second before midnight, and a clock that goes back must find it.
    assert {day_s: len(keys) for day_s, keys in usage.items()} == {midnight - 86_400: 1, midnight: 3}


async def test_counts_that_no_request_can_have_are_cut_and_stop_no_question(path, writer, questions, caplog):
    statement = insert(metadata.tables["keys"]).values(
        id=1, name="k", created_at_s=0, request_class="batch", hint="h", sha256=b"1"
    )
    await writer.write(lambda connection: connection.execute(statement))
    for number in range(3):
        writer.record(row(number, prompt_tokens=9 * 10**18, cached_tokens=-5, completion_tokens=9 * 10**18))
    writer.record(Stretch(NOON, seconds=9.0, model="m", width=1, tokens=9 * 10**18, context_tokens=5))
    await written(writer)

    [usage] = (await questions.usage_by_day()).values()
    rows = await newest_rows(questions)

    assert usage == {1: KeyUsage(requests=3, tokens=6 * TOKENS_LIMIT)}
    assert {(each.prompt_tokens, each.cached_tokens) for each in rows} == {(TOKENS_LIMIT, 0)}
    assert (await questions.today()).prompt_tokens == 3 * TOKENS_LIMIT
    assert writer.losses == 1
    assert "counts cut id=" in caplog.text and "prompt_tokens=9000000000000000000" in caplog.text


async def test_rows_of_an_earlier_version_with_such_counts_stop_no_start(path, writer, questions):
    statement = insert(metadata.tables["keys"]).values(
        id=1, name="k", created_at_s=0, request_class="batch", hint="h", sha256=b"1"
    )
    await writer.write(lambda connection: connection.execute(statement))
    for number in range(3):
        writer.record(row(number))
    await writer.write(
        lambda connection: connection.exec_driver_sql(
            "UPDATE requests SET prompt_tokens = 9000000000000000000, completion_tokens = 9000000000000000000"
        )
    )

    [usage] = (await questions.usage_by_day()).values()

    assert usage[1].requests == 3 and isinstance(usage[1].tokens, int)


def test_closing_writes_everything_that_was_taken(path):
    writer = Writer(open_database(path))

    for number in range(200):
        writer.record(row(number))
    writer.close()

    engine = open_for_reading(path)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM requests").scalar() == 200
    engine.dispose()


def test_a_row_after_the_close_is_lost_and_counted(path, caplog):
    writer = Writer(open_database(path))
    writer.close()

    writer.record(row())

    assert writer.losses == 1


async def test_a_job_that_fails_leaves_nothing_behind_and_says_so(writer, questions):
    def half(connection):
        connection.exec_driver_sql("INSERT INTO settings VALUES ('a', '1')")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await writer.write(half)

    settings = await writer.write(lambda connection: connection.exec_driver_sql("SELECT * FROM settings").all())
    assert settings == []


async def test_all_writing_is_done_by_one_thread_and_never_the_loops(writer):
    threads = {await writer.write(lambda connection: threading.current_thread().name) for _ in range(5)}

    assert len(threads) == 1
    assert threads != {threading.current_thread().name}


async def test_readers_are_not_held_up_by_a_writer(writer, questions):
    writer.record(row(1))
    await written(writer)
    begun, may_end = threading.Event(), threading.Event()

    def slow(connection):
        connection.exec_driver_sql("DELETE FROM requests")
        begun.set()
        assert may_end.wait(5)

    writing = asyncio.create_task(writer.write(slow))
    await asyncio.to_thread(begun.wait, 5)
    seen = await newest_rows(questions, 10)
    may_end.set()
    await writing

    assert [each.number for each in seen] == [1]


async def test_the_file_its_two_companions_and_the_copy_of_its_keys_are_private(path, writer):
    writer.record(row())
    await written(writer)

    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["splash-keys.json", "splash.db", "splash.db-shm", "splash.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_file_that_others_could_read_is_made_private(path):
    path.touch(0o644)

    open_database(path).dispose()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_request_row_has_a_column_for_each_field():
    assert [column.name for column in metadata.tables["requests"].columns] == list(RequestRow.__struct_fields__)


def test_opening_again_from_any_folder_keeps_everything(path, tmp_path, monkeypatch):
    writer = Writer(open_database(path))
    writer.record(row())
    writer.close()
    monkeypatch.chdir("/")

    engine = open_database(path)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT id FROM requests").scalars().all() == ["id-1"]
    engine.dispose()


@pytest.mark.parametrize("spoil", ["text", "folder", "missing"])
def test_a_file_that_is_no_database_is_refused_in_one_sentence(path, spoil):
    if spoil == "text":
        path.write_text("not a database, but long enough to look like one" * 50)
    elif spoil == "folder":
        path.mkdir()
    else:
        path.parent.rmdir()

    with pytest.raises(DatabaseUnusable) as caught:
        open_database(path)

    assert str(caught.value).startswith(f"The database {path} cannot be used: ")
    assert "\n" not in str(caught.value)


async def test_settings_come_back_after_a_restart(path):
    engine = open_database(path)
    writer = Writer(engine)
    settings = load_settings(engine, writer)
    await settings.put("last", {"model": "demo", "context": None})
    await settings.put("concurrency", 3)
    await settings.put("concurrency", 2)
    writer.close()

    engine = open_database(path)
    writer = Writer(engine)
    again = load_settings(engine, writer)
    writer.close()

    assert settings.get("concurrency", int) == again.get("concurrency", int) == 2
    assert again.get("last", dict) == {"model": "demo", "context": None}
    assert again.get("never", str) is None
