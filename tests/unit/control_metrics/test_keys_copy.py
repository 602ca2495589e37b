"""Keys and settings outlive a database of which nothing can be read: a copy of both is beside it."""

import logging

import msgspec
import pytest

from control.keys import load_keys
from control.metrics import keys_copy
from control.metrics.keys_copy import KeptKey, copy_of
from control.metrics.place import open_or_begin_anew
from control.metrics.settings import load_settings
from control.metrics.tables import keys as keys_table
from control.metrics.writer import Writer
from control.wire import KeyChange
from tests.unit.control_metrics.test_damage import overwrite, root_of


class Splash:
    """A start of control, as far as keys and settings go."""

    def __init__(self, path) -> None:
        opened = open_or_begin_anew(path)
        self.set_aside = opened.set_aside
        self.writer = Writer(opened.engine, opened.set_aside)
        self.keys = load_keys(opened.engine, self.writer)
        self.settings = load_settings(opened.engine, self.writer)

    def names(self) -> list[str]:
        """Of the keys that are good."""
        return [key.name for key in self.keys.list() if key.revoked_at_s is None]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "splash.db"


def spoil(path, how: str) -> None:
    was = path.read_bytes()
    if how == "cut to half":
        path.write_bytes(was[: len(was) // 2])
        return
    for each in path.parent.glob("splash.db*"):
        each.write_bytes(b"\xa5" * each.stat().st_size)


async def with_two_keys(path) -> str:
    """One good with a limit, one revoked, and a setting; the text of the good one."""
    splash = Splash(path)
    created = await splash.keys.create("laptop")
    await splash.keys.change(created.view.id, KeyChange(requests_per_day=7))
    lost = await splash.keys.create("lost")
    await splash.keys.revoke(lost.view.id)
    await splash.settings.put("concurrency", 3)
    splash.writer.close()
    return created.key


@pytest.mark.parametrize("how", ["cut to half", "all overwritten"])
async def test_keys_and_settings_come_back_after_nothing_of_the_database_can_be_read(path, how, caplog):
    key = await with_two_keys(path)
    spoil(path, how)

    splash = Splash(path)

    assert splash.set_aside is not None
    assert splash.names() == ["laptop"]
    assert [key.name for key in splash.keys.list()] == ["laptop", "lost"]
    found = splash.keys.verify(key.encode())
    assert found is not None and found.limits.requests_per_day == 7
    assert splash.settings.get("concurrency", int) == 3
    assert "taken from the copy" in caplog.text
    splash.writer.close()


async def test_the_copy_is_private_and_holds_digests_and_no_key(path):
    key = await with_two_keys(path)

    copy = copy_of(path)

    assert copy.name == "splash-keys.json"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert key not in copy.read_text()
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []


async def test_a_key_that_was_revoked_stays_revoked_when_the_database_does_not_know_it_any_more(path):
    splash = Splash(path)
    created = await splash.keys.create("laptop")
    splash.writer.close()
    before = path.read_bytes()
    splash = Splash(path)
    await splash.keys.revoke(created.view.id)
    await splash.keys.create("laptop")
    splash.writer.close()
    path.write_bytes(before)
    overwrite(path, [root_of(path, "stretches")])

    splash = Splash(path)

    assert splash.set_aside is not None
    assert splash.keys.verify(created.key.encode()) is None
    assert splash.names() == ["laptop"]
    splash.writer.close()


async def test_what_the_damaged_file_still_says_counts_more_than_the_copy(path):
    await with_two_keys(path)
    older = msgspec.json.decode(copy_of(path).read_bytes())
    older["settings"]["concurrency"] = "1"
    older["keys"][0]["name"] = "older"
    overwrite(path, [root_of(path, "stretches")])
    copy_of(path).write_bytes(msgspec.json.encode(older))

    splash = Splash(path)

    assert splash.set_aside is not None
    assert splash.names() == ["laptop"]
    assert splash.settings.get("concurrency", int) == 3
    splash.writer.close()


async def test_a_copy_that_is_missing_or_older_is_made_at_the_start(path):
    await with_two_keys(path)
    right = copy_of(path).read_bytes()
    copy_of(path).unlink()

    Splash(path).writer.close()

    assert copy_of(path).read_bytes() == right
    copy_of(path).write_bytes(b'{"keys": [], "settings": {}}')
    Splash(path).writer.close()
    assert copy_of(path).read_bytes() == right


async def test_a_copy_that_can_not_be_written_fails_no_order_and_is_logged(path, caplog):
    copy_of(path).mkdir()
    splash = Splash(path)

    created = await splash.keys.create("laptop")

    assert splash.keys.verify(created.key.encode()) is not None
    assert "copy of keys and settings not written" in caplog.text
    splash.writer.close()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"keys": 5}', b"[" * 5000], ids=["empty", "none", "5", "deep"])
async def test_a_damaged_copy_stops_no_start(path, content, caplog):
    await with_two_keys(path)
    spoil(path, "all overwritten")
    copy_of(path).write_bytes(content)

    splash = Splash(path)

    assert splash.keys.list() == ()
    assert "copy of keys and settings can't be read" in caplog.text
    splash.writer.close()


async def test_what_does_not_change_is_not_written_again(path, monkeypatch):
    await with_two_keys(path)
    written = []
    monkeypatch.setattr(keys_copy, "write_whole", lambda file, content: written.append(file))

    splash = Splash(path)
    await splash.settings.put("concurrency", 3)
    await splash.settings.put("concurrency", 2)
    splash.writer.close()

    assert written == [copy_of(path)]


def test_the_copy_has_every_column_of_the_keys():
    assert KeptKey.__struct_fields__ == tuple(str(column.name) for column in keys_table.columns)


@pytest.fixture(autouse=True)
def _warnings_too(caplog):
    caplog.set_level(logging.WARNING)
