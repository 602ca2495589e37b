"""The home on disk: private, whole or not at all, one at a time."""

import os
import stat
from pathlib import Path

import msgspec
import pytest

from control.command_errors import HomeUnusable
from control.home import Home
from control.log_files import open_log
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
    home.made_admin_secret()
    home.write_launch(Launch(secret="s", nonce="n", port=1, model="demo"))
    home.write_record(record())

    modes = {path.relative_to(home.root): mode(path) for path in home.root.rglob("*")}

    assert mode(home.root) == 0o700
    assert {kind for path, kind in modes.items() if path.suffix or path.name == "admin"} == {0o600}
    assert {modes[path] for path in modes if not path.suffix and path.name != "admin"} == {0o700}


def test_the_admin_secret_is_made_once(home):
    first = home.made_admin_secret()

    assert home.made_admin_secret() == home.admin_secret() == first
    assert len(first) >= 43


def test_a_renewed_admin_secret_is_another_one_and_private(home):
    first = home.made_admin_secret()

    home.renew_admin_secret()

    assert home.made_admin_secret() == home.admin_secret() != first
    assert len(home.admin_secret()) >= 43
    assert mode(home.admin_secret_file) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"short", b"x" * 31, b"\xff" * 43, "é".encode() * 43, b"x" * 20 + b"\0" * 20]
)
def test_a_damaged_secret_is_no_secret_and_control_makes_another(home, content):
    home.admin_secret_file.write_bytes(content)

    with pytest.raises(HomeUnusable, match="holds no secret"):
        home.admin_secret()
    made = home.made_admin_secret()

    assert len(made) >= 43
    assert home.admin_secret() == made


def test_a_missing_secret_is_made_by_control_alone(home):
    with pytest.raises(HomeUnusable):
        home.admin_secret()

    assert not home.admin_secret_file.exists()


def test_a_file_that_cannot_be_read_or_written_is_named_in_one_sentence(home):
    home.admin_secret_file.mkdir()
    home.record_file("engine").mkdir()
    home.log_file("engine").mkdir()
    (home.root / "run" / "up.lock").mkdir()

    for use in (
        home.admin_secret,
        home.made_admin_secret,
        lambda: home.write_record(record()),
        lambda: open_log(home.log_file("engine")),
        lambda: home.holder_of("up"),
        lambda: home.only_one("up", wait=True).__enter__(),
    ):
        with pytest.raises(HomeUnusable, match=r"can't be .*: Is a directory\.$"):
            use()
    assert [path.name for path in (home.root / "run").iterdir() if path.is_file()] == []


def test_a_record_that_cannot_be_removed_stays(home, monkeypatch, caplog):
    home.write_record(record())
    monkeypatch.setattr(Path, "unlink", refuse)

    home.remove_record(record())

    assert home.read_record("engine") == record()
    assert "record not removed" in caplog.text


def refuse(*_, **__):
    raise OSError(30, "Read-only file system")


def test_a_record_is_read_as_it_was_written(home):
    home.write_record(record())

    assert home.read_record("engine") == record()


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": "x"}', b"\xff", b"[" * 100_000])
def test_a_record_that_is_not_understood_is_no_record(home, content, caplog):
    home.record_file("engine").write_bytes(content)

    assert home.read_record("engine") is None
    assert "engine.json" in caplog.text


@pytest.mark.parametrize(
    "change", [{"pid": -1}, {"pid": 0}, {"pid": 2**40}, {"port": 0}, {"port": 70_000}, {"name": "webui"}]
)
def test_a_record_that_no_process_can_have_written_is_no_record(home, change, caplog):
    home.record_file("engine").write_bytes(msgspec.json.encode(msgspec.structs.replace(record(), **change)))

    assert home.read_record("engine") is None
    assert "impossible values" in caplog.text


def test_the_record_of_a_successor_is_not_removed(home):
    home.write_record(record("newer"))

    home.remove_record(record("older"))

    assert home.read_record("engine") == record("newer")


def test_a_write_leaves_nothing_but_the_file(home):
    home.write_record(record())
    home.made_admin_secret()

    assert [path.name for path in (home.root / "run").iterdir()] == ["engine.json"]
    assert [path.name for path in (home.root / "secrets").iterdir()] == ["admin"]


def test_a_lock_is_held_by_one_at_a_time(home):
    with home.only_one("control", wait=False) as first, home.only_one("control", wait=False) as second:
        assert (first, second) == (True, False)

    with home.only_one("control", wait=False) as third:
        assert third


def test_who_holds_a_lock_is_told_and_asking_takes_nothing(home):
    nobody = home.holder_of("control")
    with home.only_one("control", wait=False) as is_held:
        holder = home.holder_of("control")

    assert (nobody, is_held) == (None, True)
    assert (holder.pid, str(holder)) == (os.getpid(), f"pid {os.getpid()}")
    assert home.holder_of("control") is None


def test_a_home_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(HomeUnusable, match="can't be used"):
        Home(tmp_path / "file" / "home").create()
