"""Whatever happens to splash.db and what lies beside it: a start comes up, no key is lost, requests are recorded."""

import asyncio
import random
import shutil
import sqlite3

import pytest

from control.keys import load_keys
from control.metrics.cost_questions import CostQuestions
from control.metrics.database import open_database, open_for_reading
from control.metrics.performance_questions import PerformanceQuestions
from control.metrics.place import open_or_begin_anew
from control.metrics.questions import Questions
from control.metrics.ranges import RANGES
from control.metrics.request_questions import RequestQuestions
from control.metrics.request_search import Search
from control.metrics.settings import load_settings
from control.metrics.writer import Writer
from control.prices import Prices
from tests.unit.control_gateway.test_metrics import NOON, row
from tests.unit.control_metrics.histories import stretch

NUM_ROWS = 120
FILES = (*["splash.db"] * 4, *["splash.db-wal"] * 2, "splash.db-shm")
HOWS = ("cut", "bytes", "bytes", "block", "zeros", "header", "gone", "append")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """What a killed control leaves behind: the file, a log that is not all in it, and the copy of six keys."""
    folder = tmp_path_factory.mktemp("crashed")
    return folder, asyncio.run(live(tmp_path_factory.mktemp("life") / "splash.db", folder))


async def live(path, folder) -> list[str]:
    """The texts of the keys; what is there in the middle of it is in `folder`."""
    opened = open_or_begin_anew(path)
    writer = Writer(opened.engine)
    keys, settings = load_keys(opened.engine, writer), load_settings(opened.engine, writer)
    texts = [(await keys.create(f"key {number}")).key for number in range(6)]
    await keys.revoke(6)
    await settings.put("concurrency", 3)
    for number in range(NUM_ROWS):
        writer.record(row(number, started_at_s=NOON - number * 900, key=f"key {number % 5}"))
        writer.record(stretch(started_at_s=NOON - number * 900, width=1 + number % 4))
        if number == NUM_ROWS - 20:
            await writer.truncate_wal()
    await writer.write(lambda connection: None)
    for each in path.parent.glob("splash*"):
        shutil.copy(each, folder / each.name)
    writer.close()
    return texts


def damage(folder, chance) -> None:
    for _ in range(chance.randint(1, 3)):
        file, how = folder / chance.choice(FILES), chance.choice(HOWS)
        if not file.exists() or not (size := file.stat().st_size):
            continue
        if how == "gone":
            file.unlink()
            continue
        with file.open("r+b") as stream:
            if how == "cut":
                stream.truncate(chance.randint(0, size))
                continue
            for _ in range(chance.randint(1, 40) if how == "bytes" else 1):
                stream.seek(size if how == "append" else chance.randrange(100 if how == "header" else size))
                num_bytes = chance.randint(1, 4) if how in ("bytes", "header") else chance.randint(1, 6000)
                stream.write(bytes(num_bytes) if how == "zeros" else chance.randbytes(num_bytes))


# Those first found a damaged schema, digest, revision, or text in a row, which the start took for whole or died of.
@pytest.mark.parametrize("seed", range(40))
async def test_whatever_is_damaged_no_key_is_lost_and_every_question_is_answered(crashed, tmp_path, seed):
    folder, texts = crashed
    home = tmp_path / "home"
    shutil.copytree(folder, home)
    damage(home, random.Random(seed))

    opened = open_or_begin_anew(home / "splash.db")
    writer = Writer(opened.engine, opened.set_aside, from_copy=opened.from_copy)
    keys, settings = load_keys(opened.engine, writer), load_settings(opened.engine, writer)
    questions = Questions(open_for_reading(home / "splash.db"), begin_anew=writer.begin_anew, wall=lambda: NOON)
    asked = RequestQuestions(questions, Prices())
    writer.record(row(9001, started_at_s=NOON - 1))
    await writer.write(lambda connection: None)
    for chosen in RANGES:
        await PerformanceQuestions(questions, discarded=dict, wall=lambda: NOON).performance(chosen, None)
        await CostQuestions(questions, Prices(), wall=lambda: NOON).report(chosen)
    await questions.usage_by_day()
    page = await asked.page(Search(limit=1000))
    await asked.page(Search(sort="cost"))
    questions.close()
    writer.close()

    assert [keys.verify(text.encode()) is not None for text in texts] == [True] * 5 + [False]
    assert settings.get("concurrency", int) == 3
    assert 9001 in {listed.row.number for listed in page.requests}
    assert writer.losses == 0
    open_database(home / "splash.db").dispose()


# --- What random damage finds seldom ---


def edited(folder, home, statement: str) -> None:
    """The file, whole for SQLite, with something in it that no Splash has written."""
    shutil.copytree(folder, home)
    connection = sqlite3.connect(home / "splash.db")
    connection.execute("PRAGMA writable_schema = ON")
    assert connection.execute(statement).rowcount != 0
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sqlite_master SET sql = replace(sql, 'ceiling_tokens_per_second', 'ceiling_tokens_per_secon_')",
        "UPDATE sqlite_master SET sql = CAST(replace(sql, 'hint VARCHAR', x'b9ff28') AS TEXT) WHERE name = 'keys'",
        "DELETE FROM alembic_version",
        "UPDATE alembic_version SET version_num = 'x'",
        "UPDATE settings SET value = CAST(x'ff' AS TEXT)",
    ],
)
async def test_a_file_that_is_whole_and_not_ours_any_more_is_set_aside(crashed, tmp_path, statement):
    folder, texts = crashed
    edited(folder, tmp_path / "home", statement)

    opened = open_or_begin_anew(tmp_path / "home" / "splash.db")
    writer = Writer(opened.engine)
    keys = load_keys(opened.engine, writer)
    setting = load_settings(opened.engine, writer).get("concurrency", int)
    writer.close()

    assert opened.set_aside is not None
    assert [keys.verify(text.encode()) is not None for text in texts] == [True] * 5 + [False]
    assert setting == 3


async def test_text_in_a_row_that_is_none_takes_only_that_row_and_is_met_once(crashed, tmp_path):
    folder, _ = crashed
    home = tmp_path / "home"
    edited(folder, home, "UPDATE requests SET finish_reason = CAST(x'ff' AS TEXT) WHERE number = 50")
    opened = open_or_begin_anew(home / "splash.db")
    writer = Writer(opened.engine, opened.set_aside)
    questions = Questions(open_for_reading(home / "splash.db"), begin_anew=writer.begin_anew)

    page = await RequestQuestions(questions, Prices()).page(Search(limit=1000))

    questions.close()
    writer.close()
    assert opened.set_aside is None and writer.health.set_aside is not None
    assert {listed.row.number for listed in page.requests} == set(range(NUM_ROWS)) - {50}


async def test_a_digest_that_was_changed_is_seen_and_the_copys_counts(crashed, tmp_path):
    folder, texts = crashed
    home = tmp_path / "home"
    edited(folder, home, "UPDATE settings SET value = '3'")
    with sqlite3.connect(home / "splash.db") as connection:
        (digest,) = connection.execute("SELECT sha256 FROM keys WHERE id = 2").fetchone()
    connection.close()
    content = (home / "splash.db").read_bytes()
    assert content.count(digest) == 2, "in the table and in its index"
    (home / "splash.db").write_bytes(content.replace(digest, bytes(32), 1))

    opened = open_or_begin_anew(home / "splash.db")
    writer = Writer(opened.engine)
    keys = load_keys(opened.engine, writer)
    writer.close()

    assert opened.set_aside is not None
    assert [keys.verify(text.encode()) is not None for text in texts] == [True] * 5 + [False]
