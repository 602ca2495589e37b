"""Any folder may be a home: with blanks, signs and Chinese, very deep, behind a link, or given by no HOME."""

import json
import os
import subprocess

import pytest

from control.config import default_home
from control.identity import live_process
from tests.story.fault_run import Asking, Page
from tests.story.stack import SPLASH, Stack, is_free, wait_until

pytestmark = pytest.mark.story

STRANGE = 'Tom & Jerry\'s "家" <中文> $HOME; `x` %20 #1'
NAMES = ("engine", "control", "webui")
# Longer than the path of a Unix socket may be, shorter than what SQLite takes.
LONG = "a rather long name of a folder, sixty characters and more long"
DEEP = "/".join([LONG] * 5)
TOO_DEEP = "/".join([LONG] * 8)


def test_every_command_works_in_a_home_with_a_strange_name(stack):
    strange = Stack(stack.home.root.parent / STRANGE, engine_command=stack.engine_command)
    backup = strange.home.root.parent / "copy & 份.db"
    try:
        login = strange.up()["login"]
        commands = {
            "load": strange.splash("load", "demo", "--context", "4096"),
            "status": strange.splash("status"),
            "doctor": strange.splash("doctor", "--json"),
            "logs": strange.splash("logs", "engine"),
            "backup": strange.splash("backup", str(backup)),
            "export": strange.splash("requests", "export", "--format", "csv"),
            "open": strange.splash("open", "--json"),
            "keys": strange.splash("keys", "new", "one more"),
            "restart": strange.splash("restart", "--engine-command", strange.engine_command),
            "restart engine": strange.splash("restart", "engine"),
            "quit": strange.quit(),
        }
    finally:
        strange.clean_up()

    failed = {name: (done.returncode, done.stderr) for name, done in commands.items() if done.returncode != 0}
    doctor = json.loads(commands["doctor"].stdout)
    assert failed == {}, failed
    assert doctor["home"] == str(strange.home.root)
    assert login.startswith("http") and backup.stat().st_size > 0
    assert all(is_free(port) for port in strange.ports.values())
    assert sorted(each.name for each in strange.home.root.parent.iterdir()) == sorted(
        [STRANGE, "script.json", "copy & 份.db"]
    )


@pytest.mark.parametrize("folder", [DEEP, "behind a link"])
def test_a_home_that_is_very_deep_or_behind_a_link_is_one_home_by_all_its_names(stack, folder):
    real = stack.home.root.parent / "real place"
    if folder == "behind a link":
        real.mkdir()
        (stack.home.root.parent / folder).symlink_to(real)
    else:
        (stack.home.root.parent / folder).mkdir(parents=True)
    one = Stack(stack.home.root.parent / folder, engine_command=stack.engine_command)
    other = Stack(one.home.root.resolve(), engine_command=stack.engine_command)
    other.ports = one.ports
    try:
        page = Page(one.up()["login"])
        records = [one.record(name) for name in NAMES]
        engine, shown = one.kill("control"), page.state()
        by_its_other_name = other.up()
        kept = other.record("engine")
        done = other.quit()
    finally:
        one.clean_up()

    assert engine.pid == records[1].pid and shown
    assert by_its_other_name["api"] and kept == records[0]
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(live_process(record) for record in records)


def test_a_home_that_is_too_deep_for_sqlite_is_refused_in_one_sentence_and_nothing_runs(stack):
    deep = Stack(stack.home.root.parent / TOO_DEEP, engine_command=stack.engine_command)
    deep.home.root.parent.mkdir(parents=True)

    done = deep.splash("up", "--no-open", "--engine-command", stack.engine_command)

    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1 and "path is too long" in done.stderr
    assert all(is_free(port) for port in deep.ports.values())


def test_without_a_home_of_the_person_the_one_that_is_named_works(stack):
    without = {key: value for key, value in stack.environment.items() if key != "HOME"}
    hidden = ["--engine-command", stack.engine_command]

    codes = [
        run_without(stack, without, "up", "--no-open", *hidden),
        run_without(stack, without, "status"),
        run_without(stack, without, "doctor"),
        run_without(stack, without, "quit"),
    ]

    assert [code for code, _ in codes][::3] == [0, 0], codes
    assert not any("Traceback" in said for _, said in codes)


def run_without(stack, environment, *words) -> tuple[int, str]:
    done = subprocess.run(
        [SPLASH, *words], env=environment, cwd=stack.home.root.parent, capture_output=True, text=True, timeout=90
    )
    return done.returncode, done.stderr


def test_the_home_of_a_person_without_the_variable_home_is_that_of_their_account(monkeypatch):
    monkeypatch.delenv("HOME")

    assert default_home().is_absolute() and os.environ.get("HOME") is None


def test_a_quit_of_one_of_two_homes_leaves_the_streams_of_the_other(stack, tmp_path):
    other = Stack(tmp_path / "other home", engine_command=stack.engine_command)
    try:
        stack.up()
        other.up()
        stream = Asking(other, "slowly")
        wait_until(lambda: stream.lines, "the stream to begin")

        done = stack.quit("--force")
        num_lines = len(stream.lines)
        wait_until(lambda: len(stream.lines) > num_lines, "the stream to go on")

        assert (done.returncode, stream.end) == (0, None)
        assert {entry["identity"] for entry in other.status().values()} == {"ours"}
        assert other.quit("--force").returncode == 0
    finally:
        other.clean_up()
