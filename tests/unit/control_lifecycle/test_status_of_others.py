"""`splash status`: what it shows beside the three records, how old and of which version each is, at 80 columns."""

import os
import time

import pytest

from control.cli.status import age_text, facts, status, table
from control.doctor.process_table import UserProcess
from control.home import Home


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr("control.identity.HEALTHZ_TIMEOUT_S", 0.5)
    monkeypatch.setenv("COLUMNS", "80")
    home = Home(tmp_path.resolve() / "home")
    home.create()
    home.made_admin_secret()
    return home


def process(pid, *words, parent=1):
    return UserProcess(pid, parent, words[0], words, time.time() - 3700, resident_bytes=5 * 2**20)


def test_an_engine_that_no_record_names_is_shown_with_its_memory_and_age(home, capsys):
    stray = process(77, "python", "-m", "engine", "--home", str(home.root))

    report = status(home, lambda: [stray])
    table(report)

    [other] = report["engine"]["others"]
    assert (other["pid"], other["is_unrecorded"], other["memory_bytes"]) == (77, True, 5 * 2**20)
    said = capsys.readouterr().out
    assert "└ engine" in said and "unrecorded" in said and "1 h 1 min" in said
    assert "splash doctor" in said


def test_helpers_stand_below_the_process_that_started_them(home, listen, capsys):
    engine = listen("polite", "n", "--home", str(home.root))
    home.write_record(engine.record)
    started = process(engine.record.pid, "python")
    helper = process(88, "caffeinate", parent=engine.record.pid)

    report = status(home, lambda: [started, helper])
    table(report)

    assert [(other["name"], other["is_unrecorded"]) for other in report["engine"]["others"]] == [("caffeinate", False)]
    assert (report["control"]["others"], report["webui"]["others"]) == ([], [])
    lines = capsys.readouterr().out.splitlines()
    assert "helper" in next(line for line in lines if "└ caffeinate" in line)
    assert max(map(len, lines)) <= 80


def test_the_children_of_an_innocent_process_that_a_record_names_are_not_shown_as_ours(home, listen):
    innocent = listen()
    home.write_record(innocent.with_(port=1))
    child = process(88, "sh", parent=innocent.record.pid)

    report = status(home, lambda: [process(innocent.record.pid, "python"), child])

    assert report["engine"]["identity"] == "closed"
    assert report["engine"]["others"] == []


def test_who_is_verified_by_whom_it_is_kept_and_its_version_are_told(home, listen):
    engine, console = listen(), listen(nonce="of the console")
    home.write_record(engine.with_(version="0.1.0", manager="control"))
    home.write_record(console.with_(name="webui", version="0.2.0", manager="launchd"))

    said = dict(facts(status(home, list)))

    assert said["verified"] == "webui, engine"
    assert said["managers"] == "launchd (webui), control (engine)"
    assert said["version"] == "0.2.0 (webui), 0.1.0 (engine)"


def test_one_version_of_all_is_told_once(home, listen):
    home.write_record(listen().with_(version="0.1.0"))
    home.write_record(listen(nonce="m").with_(name="webui", version="0.1.0"))

    assert dict(facts(status(home, list)))["version"] == "0.1.0"


def test_a_control_that_is_known_by_its_lock_only_is_not_shown_twice(home):
    me = process(os.getpid(), "python", "-m", "control", "--home", str(home.root))

    with home.only_one("control", wait=False):
        report = status(home, lambda: [me])

    assert report["control"]["pid"] == os.getpid()
    assert report["control"]["others"] == []


@pytest.mark.parametrize(
    ("age_s", "text"),
    [(-1, "0 s"), (59.9, "59 s"), (60, "1 min"), (3_599, "59 min"), (3_700, "1 h 1 min"), (266_400, "3 d 2 h")],
)
def test_an_age_is_told_in_two_units_at_most(age_s, text):
    assert age_text(age_s) == text


def test_the_largest_figures_fit_into_80_columns(home, capsys):
    entry = {"state": "not listening", "pid": 4_194_304, "port": 65_535, "memory_bytes": 500 * 2**30, "uptime_s": 9e6}
    helper = {"name": "engine models", "pid": 4_194_303, "is_unrecorded": True, "memory_bytes": 2**30, "uptime_s": 9e6}

    table({"control": entry, "webui": entry, "engine": entry | {"others": [helper]}})

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("not listening" in line and "512,000 MiB" in line and "104 d 4 h" in line for line in lines)
    assert any("└ engine models" in line and "unrecorded" in line for line in lines)
