"""Logs by HTTP: pages of lines and whole files, of the three names that there are."""

import pytest

from control import wire
from control.admin.logs import CHUNK_BYTES, LogsApi
from control.home import Home
from tests.unit.control_lifecycle.rooms import asked, refusal, served

LINE = "2026-11-30 12:00:{:02},000 {} control.relay number={}\n"


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
async def client(home):
    async with served(LogsApi(home)) as client:
        yield client


def write(home, name, *numbers, level="INFO"):
    with home.log_file(name).open("a") as file:
        file.writelines(LINE.format(number, level, number) for number in numbers)


async def test_the_newest_lines_come_first_and_older_ones_page_by_page(client, home):
    write(home, "engine", *range(5))
    path = wire.LOGS.format(name="engine")

    first = await asked(client, f"{path}?limit=3", wire.LogPage)
    second = await asked(client, f"{path}?limit=3&before={first.older}", wire.LogPage)

    assert [entry.message for entry in first.entries] == ["number=4", "number=3", "number=2"]
    assert [entry.message for entry in second.entries] == ["number=1", "number=0"]
    assert (first.name, second.older) == ("engine", None)
    assert first.size_bytes == home.log_file("engine").stat().st_size


async def test_lines_are_chosen_by_level_and_text(client, home):
    write(home, "control", 1, 2)
    write(home, "control", 3, 4, level="ERROR")

    found = await asked(client, wire.LOGS.format(name="control") + "?level=WARNING&text=NUMBER%3D3", wire.LogPage)

    assert [(entry.level, entry.message) for entry in found.entries] == [("ERROR", "number=3")]


@pytest.mark.parametrize("name", wire.LOG_NAMES)
async def test_a_process_that_has_written_nothing_has_an_empty_log(client, name):
    found = await asked(client, wire.LOGS.format(name=name), wire.LogPage)

    assert (found.entries, found.older, found.size_bytes) == ((), None, 0)


@pytest.mark.parametrize("name", ["admin", "control.log", "..%2Fsecrets%2Fadmin", "%2e%2e", "CONTROL", "engine%00"])
@pytest.mark.parametrize("path", [wire.LOGS, wire.LOG_FILE])
async def test_there_is_no_log_of_another_name(client, home, name, path):
    home.made_admin_secret()

    answer = await client.get(path.format(name=name))

    assert answer.status_code in (400, 404)
    assert home.admin_secret() not in answer.text


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "before=x", "before=", "level=LOUD", "level=", "text=" + "x" * 201]
)
async def test_what_cannot_be_asked_for_is_refused_by_its_name(client, query):
    status, code, message = await refusal(client, f"{wire.LOGS.format(name='control')}?{query}")

    assert (status, code) == (400, "invalid_request")
    assert query.partition("=")[0] in message


async def test_the_whole_log_comes_as_a_file_oldest_first_byte_by_byte(client, home):
    older = b"first \xff\n" * (CHUNK_BYTES // 4)
    home.log_file("webui").with_name("webui.log.1").write_bytes(older)
    home.log_file("webui").write_bytes(b"last\n")

    answer = await client.get(wire.LOG_FILE.format(name="webui"))

    assert answer.content == older + b"last\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="splash-webui.log"'


async def test_a_log_that_cannot_be_read_is_said(client, home, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("control.admin.logs.read_page", refuse)
    monkeypatch.setattr("control.admin.logs.log_files", refuse)

    page = await refusal(client, wire.LOGS.format(name="control"))
    file = await refusal(client, wire.LOG_FILE.format(name="control"))

    assert page == file == (503, "log_unreadable", "The log of control can't be read: Permission denied.")
