"""Keys and settings outlive a database of which nothing can be read: a copy of both is beside it."""

import logging
import shutil
import sqlite3

import msgspec
import pytest

from control.keys import load_keys
from control.metrics import keys_copy
from control.metrics.backup import back_up
from control.metrics.keys_copy import KeptKey, copy_of
from control.metrics.place import open_or_begin_anew
from control.metrics.settings import load_settings
from control.metrics.tables import keys as keys_table
from control.metrics.writer import Writer
from control.wire import DatabaseHealth, KeyChange
from tests.unit.control_metrics.test_damage import overwrite, root_of


class Splash:
    """A start of control, as far as keys and settings go."""

    def __init__(self, path) -> None:
        opened = open_or_begin_anew(path)
        self.set_aside = opened.set_aside
        self.writer = Writer(opened.engine, opened.set_aside, from_copy=opened.from_copy)
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


@pytest.mark.parametrize("companions", ["gone", "left"])
@pytest.mark.parametrize("how", ["empty", "deleted"])
async def test_keys_and_settings_of_an_empty_or_a_deleted_database_come_from_the_copy(path, how, companions, caplog):
    key = await with_two_keys(path)
    right = copy_of(path).read_bytes()
    if companions == "left":
        path.with_name("splash.db-shm").write_bytes(bytes(32_768))
        path.with_name("splash.db-wal").touch()
    path.write_bytes(b"") if how == "empty" else path.unlink()

    splash = Splash(path)

    assert splash.names() == ["laptop"]
    assert splash.keys.verify(key.encode()).limits.requests_per_day == 7
    assert splash.settings.get("concurrency", int) == 3
    assert copy_of(path).read_bytes() == right
    health = splash.writer.health
    assert (health.set_aside is not None, health.from_copy) == (how == "empty", how == "deleted")
    assert ("database damaged" if how == "empty" else "database was not there") in caplog.text
    splash.writer.close()
    again = Splash(path)
    assert again.writer.health == DatabaseHealth()
    again.writer.close()


async def test_a_database_with_nothing_in_it_is_filled_from_the_copy_too(path):
    await with_two_keys(path)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()

    splash = Splash(path)

    assert (splash.names(), splash.writer.health.from_copy) == (["laptop"], True)
    splash.writer.close()


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_first_start_has_no_copy_and_nothing_to_say(path, left):
    if left == "an empty file":
        path.touch()

    splash = Splash(path)

    assert (splash.keys.list(), splash.writer.health) == ((), DatabaseHealth())
    splash.writer.close()


async def test_of_a_crash_after_which_the_file_is_empty_or_gone_what_is_in_its_log_comes_back(tmp_path):
    for how in ("empty", "deleted"):
        path = tmp_path / how / "splash.db"
        path.parent.mkdir()
        splash = Splash(path)
        await splash.keys.create("laptop")
        crashed = tmp_path / f"{how}-crashed" / "splash.db"
        crashed.parent.mkdir()
        for name in ("splash.db", "splash.db-wal"):
            shutil.copy(path.with_name(name), crashed.with_name(name))
        splash.writer.close()
        crashed.write_bytes(b"") if how == "empty" else crashed.unlink()

        again = Splash(crashed)

        assert again.set_aside is not None
        assert again.names() == ["laptop"]
        again.writer.close()


async def test_a_copy_with_keys_that_the_database_lacks_is_kept_beside_the_new_one(path, caplog):
    splash = Splash(path)
    await splash.keys.create("laptop")
    splash.writer.close()
    backup = path.read_bytes()
    splash = Splash(path)
    await splash.keys.create("phone")
    splash.writer.close()
    right = copy_of(path).read_bytes()
    path.write_bytes(backup)

    splash = Splash(path)
    splash.writer.close()

    [former] = path.parent.glob("splash-keys.json.former-*")
    assert former.read_bytes() == right
    assert former.stat().st_mode & 0o777 == 0o600
    assert f"file={former} lost=1" in caplog.text
    Splash(path).writer.close()
    assert len(list(path.parent.glob("splash-keys.json.former-*"))) == 1


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


async def test_a_backup_that_is_put_back_makes_no_revoked_key_valid_again(path, tmp_path, caplog):
    before = Splash(path)
    laptop = await before.keys.create("laptop")
    phone = await before.keys.create("phone")
    backup = tmp_path / "backups" / "earlier.db"
    backup.parent.mkdir()
    back_up(path, backup)
    await before.keys.revoke(laptop.view.id)
    before.writer.close()

    for part in path.parent.glob("splash.db*"):
        part.unlink()
    shutil.copy(backup, path)
    restored = Splash(path)
    names, is_refused = restored.names(), restored.keys.verify(laptop.key.encode()) is None
    restored.writer.close()
    again = Splash(path)
    names_then = again.names()
    again.writer.close()

    assert names == names_then == ["phone"]
    assert is_refused and again.keys.verify(phone.key.encode()) is not None
    assert "keys revoked again, which an earlier database has as valid names=['laptop']" in caplog.text


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
