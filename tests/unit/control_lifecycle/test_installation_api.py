"""Where things are and what they take, by HTTP."""

import pytest

from control import wire
from control.admin.installation import InstallationApi
from control.config import Settings
from control.console_password import ConsolePassword
from control.home import Home
from control.metrics.database import open_database, open_for_reading
from control.metrics.questions import Questions
from control.metrics.writer import Writer
from tests.fakes.control import finished
from tests.unit.control_lifecycle.rooms import asked, served


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


async def installation(home, *, is_lan_on: bool = False) -> wire.Installation:
    questions = Questions(open_for_reading(home.database))
    settings = Settings(home=home.root, api_port=9001, is_lan_on=is_lan_on)
    room = InstallationApi(settings, home, questions, version="1.2.3")
    try:
        async with served(room) as client:
            return await asked(client, wire.INSTALLATION, wire.Installation)
    finally:
        questions.close()


async def test_it_tells_where_everything_is_and_how_much_it_takes(home):
    writer = Writer(open_database(home.database))
    for number in (3, 1, 2):
        writer.record(finished(number))
    writer.close()
    home.log_file("control").write_bytes(b"x" * 70)
    home.log_file("control").with_name("control.log.1").write_bytes(b"x" * 30)

    told = await installation(home)

    assert (told.home, told.database, told.logs) == (str(home.root), str(home.database), str(home.root / "logs"))
    assert told.rows == wire.StoredRows(requests=3, oldest_at_s=finished(1).started_at_s)
    assert told.database_bytes >= home.database.stat().st_size > 0
    assert told.logs_bytes == 100
    assert told.disk_free_bytes > 0
    assert (told.host, told.version) == ("127.0.0.1", "1.2.3")
    assert told.ports == {
        "SPLASH_API_PORT": 9001,
        "SPLASH_ADMIN_PORT": 18084,
        "SPLASH_CONSOLE_PORT": 18082,
        "SPLASH_ENGINE_PORT": 18081,
    }


async def test_addresses_for_other_machines_are_told_in_lan_mode_the_consoles_with_a_password_only(home, monkeypatch):
    monkeypatch.setattr("control.admin.installation.lan_urls", lambda port: (f"http://mac.local:{port}",))
    alone = await installation(home)
    opened = await installation(home, is_lan_on=True)
    ConsolePassword(home).keep("correct horse battery")
    with_password = await installation(home, is_lan_on=True)

    assert (alone.lan_api, alone.lan_console) == ((), ())
    assert (opened.lan_api, opened.lan_console) == (("http://mac.local:9001/v1",), ())
    assert with_password.lan_console == ("http://mac.local:18082",)


async def test_without_a_usable_database_the_rest_is_told(home):
    home.database.write_bytes(b"this is no database" * 1_000)

    told = await installation(home)

    assert told.rows is None
    assert told.database_bytes == 19_000


async def test_an_empty_database_has_no_oldest_row(home):
    open_database(home.database).dispose()

    assert (await installation(home)).rows == wire.StoredRows(requests=0, oldest_at_s=None)
