"""The home on disk: private, whole or not at all, one at a time."""

import os
import stat

import pytest

from control.command_errors import HomeUnusable
from control.home import Home
from engine.wire import Launch, ProcessRecord


@pytest.fixture
def home(tmp_path):
    before = os.umask(0o022)
    home = Home(tmp_path / "a" / "home")
    home.create()
    yield home
    os.umask(before)


def record(nonce: str = "n") -> ProcessRecord:
    return ProcessRecord(
        name="engine", pid=1, created_at_s=1.0, nonce=nonce, port=1, manager="control", started_at_s=1.0, version="0"
    )


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_is_readable_by_its_owner_only(home):
    home.admin_secret()
    home.write_launch(Launch(secret="s", nonce="n", port=1, model="demo"))
    home.write_record(record())

    modes = {path.relative_to(home.root): mode(path) for path in home.root.rglob("*")}

    assert mode(home.root) == 0o700
    assert {kind for path, kind in modes.items() if path.suffix or path.name == "admin"} == {0o600}
    assert {modes[path] for path in modes if not path.suffix and path.name != "admin"} == {0o700}


def test_the_admin_secret_is_made_once(home):
    first = home.admin_secret()

    assert home.admin_secret() == first
    assert len(first) >= 43


def test_a_secret_that_another_process_made_meanwhile_stands(home, monkeypatch):
    file = home.root / "secrets" / "admin"
    asked = iter([False])
    monkeypatch.setattr(type(file), "exists", lambda self, **_: next(asked, True))
    file.write_text("theirs")

    assert home.admin_secret() == "theirs"


def test_a_record_is_read_as_it_was_written(home):
    home.write_record(record())

    assert home.read_record("engine") == record()


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": "x"}', b"\xff"])
def test_a_record_that_is_not_understood_is_no_record(home, content, caplog):
    home.record_file("engine").write_bytes(content)

    assert home.read_record("engine") is None
    assert "engine.json" in caplog.text


def test_the_record_of_a_successor_is_not_removed(home):
    home.write_record(record("newer"))

    home.remove_record(record("older"))

    assert home.read_record("engine") == record("newer")


def test_a_write_leaves_nothing_but_the_file(home):
    home.write_record(record())
    home.admin_secret()

    assert [path.name for path in (home.root / "run").iterdir()] == ["engine.json"]
    assert [path.name for path in (home.root / "secrets").iterdir()] == ["admin"]


def test_a_lock_is_held_by_one_at_a_time(home):
    with home.only_one("control", wait=False) as first, home.only_one("control", wait=False) as second:
        assert (first, second) == (True, False)

    with home.only_one("control", wait=False) as third:
        assert third


def test_a_home_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(HomeUnusable, match="can't be used"):
        Home(tmp_path / "file" / "home").create()
