"""What others find Splash by is put back on disk when it is gone or damaged, and only then."""

import pytest

from control.command_errors import HomeUnusable
from control.home import Home
from control.record_keeper import RecordKeeper
from engine.wire import ProcessRecord

SECRET = "s" * 43


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


def record(name: str, nonce: str = "n") -> ProcessRecord:
    return ProcessRecord(
        name=name, pid=1, created_at_s=1.0, nonce=nonce, port=1, manager="control", started_at_s=1.0, version="0"
    )


def keeper(home: Home, *records: ProcessRecord | None) -> RecordKeeper:
    return RecordKeeper(home, secret=SECRET, records=lambda: records)


def test_what_is_missing_is_written(home):
    keeper(home, record("control"), record("engine")).look()

    assert (home.read_record("control"), home.read_record("engine")) == (record("control"), record("engine"))
    assert home.admin_secret() == SECRET


def test_what_is_damaged_is_written_again(home):
    home.record_file("control").write_text("{")
    home.admin_secret_file.write_text("")

    keeper(home, record("control"), None).look()

    assert home.read_record("control") == record("control")
    assert home.read_record("engine") is None
    assert home.admin_secret() == SECRET


def test_a_good_file_of_somebody_else_stands(home):
    home.write_record(record("engine", "of a successor"))
    home.admin_secret_file.write_text("t" * 43)

    keeper(home, record("engine")).look()

    assert home.read_record("engine") == record("engine", "of a successor")
    assert home.admin_secret() == "t" * 43


def test_what_cannot_be_written_is_tried_again(home):
    home.record_file("control").mkdir()
    kept = keeper(home, record("control"))

    with pytest.raises(HomeUnusable, match=r"control\.json can't be written"):
        kept.look()
    home.record_file("control").rmdir()
    kept.look()

    assert home.read_record("control") == record("control")
