"""A backup: whole, private, checked before it has its name, never in the place of anything; and why there is none."""

import asyncio
import errno
import json
import os
import sqlite3
import stat
import threading

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from typer.testing import CliRunner

from control import wire
from control.admin.database import DatabaseApi
from control.admin.edge import HANDLERS
from control.cli.app import app
from control.home import Home
from control.keys import load_keys
from control.metrics import backup as backup_module
from control.metrics.backup import BackupExists, BackupImpossible, back_up
from control.metrics.database import open_database
from control.metrics.writer import Writer
from tests.unit.control_gateway.test_metrics import row


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def writer(home):
    writer = Writer(open_database(home.database))
    for number in range(1, 301):
        writer.record(row(number))
    yield writer
    writer.close()


@pytest.fixture
async def written(writer):
    await writer.write(lambda connection: None)
    return writer


def names_in(folder) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_backup_is_one_private_file_that_splash_starts_with(home, written, tmp_path):
    to = tmp_path / "copies" / "one.db"
    to.parent.mkdir()

    backup = back_up(home.database, to)

    assert (backup.path, backup.requests, backup.size_bytes) == (str(to), 300, to.stat().st_size)
    assert backup.seconds >= 0
    assert names_in(to.parent) == ["one.db"]
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    engine = open_database(to)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT sum(requests) FROM daily_requests").scalar() == 300
    engine.dispose()


async def test_the_copy_can_be_opened_where_nothing_may_be_written(home, written, tmp_path):
    to = tmp_path / "one.db"
    back_up(home.database, to)

    with sqlite3.connect(f"file:{to}?mode=ro&immutable=1", uri=True) as copy:
        assert copy.execute("SELECT count(*) FROM requests").fetchone() == (300,)
    copy.close()


async def test_rows_that_are_written_meanwhile_neither_wait_nor_make_it_begin_again(
    home, written, tmp_path, monkeypatch
):
    monkeypatch.setattr(backup_module, "PAGES_A_STEP", 1)
    begun, may_go_on = threading.Event(), threading.Event()
    copied = backup_module._copy
    connect = sqlite3.connect

    class Stepping(sqlite3.Connection):
        def backup(self, target, *, pages):
            def after_a_step(*_):
                begun.set()
                assert may_go_on.wait(5)

            super().backup(target, pages=pages, progress=after_a_step)

    monkeypatch.setattr(
        backup_module.sqlite3, "connect", lambda *args, **options: connect(*args, factory=Stepping, **options)
    )
    copying = asyncio.create_task(asyncio.to_thread(copied, home.database, tmp_path / "one.db"))
    await asyncio.to_thread(begun.wait, 5)
    for number in range(301, 401):
        written.record(row(number))
    await written.write(lambda connection: None)
    may_go_on.set()

    assert await copying == 300
    with connect(tmp_path / "one.db") as copy:
        assert copy.execute("SELECT count(*) FROM requests").fetchone() == (300,)
    copy.close()


async def test_a_file_that_is_there_stays_as_it_is(home, written, tmp_path):
    to = tmp_path / "one.db"
    to.write_text("mine")

    with pytest.raises(BackupExists, match=r"one\.db is there already"):
        back_up(home.database, to)

    assert to.read_text() == "mine"


async def test_a_file_that_comes_while_the_copy_is_made_stays_as_it_is(home, written, tmp_path, monkeypatch):
    to = tmp_path / "one.db"
    monkeypatch.setattr(backup_module, "_require_sound", lambda _: to.write_text("mine"))

    with pytest.raises(BackupExists):
        back_up(home.database, to)

    assert to.read_text() == "mine"
    assert names_in(tmp_path) == ["home", "one.db"]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda patch: patch.setattr(backup_module.os, "fsync", full), "No space left on device"),
        (lambda patch: patch.setattr(backup_module.tempfile, "mkstemp", full), "No space left on device"),
        (
            lambda patch: patch.setattr(
                backup_module, "_copy", lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("disk is full"))
            ),
            "disk is full",
        ),
    ],
    ids=["at the end", "at the beginning", "in the middle"],
)
async def test_a_full_disk_is_said_and_nothing_stays_behind(home, written, tmp_path, monkeypatch, spoil, sentence):
    to = tmp_path / "copies" / "one.db"
    to.parent.mkdir()
    spoil(monkeypatch)

    with pytest.raises(BackupImpossible, match=rf"^No backup was made at {to}: .*{sentence}"):
        back_up(home.database, to)

    assert names_in(to.parent) == []


async def test_a_folder_that_is_a_file_or_missing_is_said_and_none_is_made(home, written, tmp_path):
    (tmp_path / "file").touch()

    for to, reason in ((tmp_path / "file" / "one.db", "Not a directory"), (tmp_path / "a" / "one.db", "no folder")):
        with pytest.raises(BackupImpossible, match=reason):
            back_up(home.database, to)

    assert not (tmp_path / "a").exists()


async def test_a_copy_of_a_damaged_database_gets_no_name(home, written, tmp_path):
    written.close()
    with home.database.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xa5" * 4096 * 3)

    with pytest.raises(BackupImpossible, match=r"damaged|malformed"):
        back_up(home.database, tmp_path / "one.db")

    assert names_in(tmp_path) == ["home"]


def test_without_a_database_there_is_nothing_to_copy(home, tmp_path):
    with pytest.raises(BackupImpossible, match="no database"):
        back_up(home.database, tmp_path / "one.db")

    assert not home.database.exists()


# --- The admin API ---


@pytest.fixture
async def client(home):
    api = Starlette(routes=DatabaseApi(home=home).routes(), exception_handlers=HANDLERS)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api, raise_app_exceptions=False), base_url="http://splash"
    ) as client:
        yield client


async def test_the_api_makes_a_dated_backup_in_the_backups_folder(home, written, client):
    answer = await client.post(wire.BACKUP)

    backup = msgspec.json.decode(answer.content, type=wire.Backup)
    [name] = names_in(home.root / "backups")
    assert (answer.status_code, backup.requests) == (201, 300)
    assert backup.path == str(home.root / "backups" / name)
    assert name.startswith("splash-2")
    assert stat.S_IMODE((home.root / "backups").stat().st_mode) == 0o700


async def test_the_api_takes_a_name_once_and_a_path_never(home, written, client):
    answers = [await client.post(wire.BACKUP, json={"name": name}) for name in ("a.db", "a.db", "../b.db", "/c.db", "")]

    codes = [answer.json().get("code") for answer in answers]
    assert [answer.status_code for answer in answers] == [201, 409, 400, 400, 400]
    assert codes == [None, "backup_name_taken", *["invalid_request"] * 3]
    assert names_in(home.root / "backups") == ["a.db"]


async def test_the_api_says_why_no_backup_was_made(written, client, monkeypatch):
    monkeypatch.setattr(backup_module.os, "fsync", full)

    answer = await client.post(wire.BACKUP, json={"name": "a.db"})

    assert (answer.status_code, answer.json()["code"]) == (503, "backup_failed")
    assert "No space left on device" in answer.json()["message"]


# --- The command ---


@pytest.fixture
def command(home, monkeypatch):
    monkeypatch.setenv("SPLASH_HOME", str(home.root))
    return lambda *arguments: CliRunner().invoke(app, ["backup", *map(str, arguments)])


def test_the_command_copies_where_splash_does_not_run(home, command):
    writer = Writer(open_database(home.database))
    writer.record(row(1))
    writer.close()

    done = command()

    [name] = names_in(home.root / "backups")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{home.root / 'backups' / name}: ")
    assert done.stdout.endswith(" 1 request.\n")


async def test_the_command_takes_any_new_file_or_a_folder_and_answers_in_json(home, written, command, tmp_path):
    engine = open_database(home.database)
    await load_keys(engine, written).create("laptop")
    engine.dispose()

    into_file = command(tmp_path / "mine.db", "--json")
    into_folder = command(tmp_path, "--json")

    assert json.loads(into_file.stdout)["path"] == str(tmp_path / "mine.db")
    assert json.loads(into_folder.stdout)["requests"] == 300
    with sqlite3.connect(tmp_path / "mine.db") as copy:
        assert copy.execute("SELECT name FROM keys").fetchall() == [("laptop",)]
    copy.close()


def test_the_command_says_in_one_sentence_why_there_is_none(command, tmp_path):
    done = command(tmp_path / "mine.db")

    assert done.exit_code == 1
    assert "There is no database" in str(done.exception)
