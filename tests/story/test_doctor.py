"""`splash doctor` and `splash status` on real processes: what is left, forged, taken, open, or started by hand.

Nothing that doctor finds is signalled or changed by it; the command that it names mends it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from control.doctor.process_checks import START_LIMIT_S
from control.home import PROCESS_NAMES
from control.identity import live_process
from engine.wire import Launch, ProcessRecord
from tests.story.stack import Stack, wait_until

pytestmark = pytest.mark.story

# What this machine has too little of, or of another version, is none of these tests' business.
OF_THE_MACHINE = {"low_memory", "swap", "low_disk", "low_disk_for_models", "wrong_version", "untried_python"}
OF_OTHER_TESTS = {"orphan_of_a_gone_home"}


def examined(stack):
    done = stack.splash("doctor", "--json")
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    return report


def findings(stack):
    found = examined(stack)["findings"]
    return {each["check"]: each for each in found if each["check"] not in OF_THE_MACHINE | OF_OTHER_TESTS}


def files_of(stack):
    """Every file with its content and permissions, but for what a running Splash writes by itself."""
    found = {}
    for path in sorted(stack.home.root.rglob("*")):
        if path.is_file() and path.parent.name in ("run", "secrets"):
            found[path.relative_to(stack.home.root).as_posix()] = (path.read_bytes(), path.stat().st_mode)
    return found


@contextmanager
def asleep(*words):
    """An innocent process, and the record that somebody forged for it."""
    child = subprocess.Popen(["sleep", "600", *words], start_new_session=True)
    try:
        yield child
        assert child.poll() is None, "the innocent process was ended"
    finally:
        child.kill()
        child.wait()


def forged(child, **changes):
    fields = {
        "name": "engine",
        "pid": child.pid,
        "created_at_s": psutil.Process(child.pid).create_time(),
        "nonce": "forged",
        "port": 1,
        "manager": "control",
        "started_at_s": time.time(),
        "version": "0.1.0",
    }
    return ProcessRecord(**(fields | changes))


def test_doctor_finds_nothing_and_makes_nothing_where_no_splash_ever_was(stack):
    assert findings(stack) == {}
    assert not stack.home.root.exists()


def test_doctor_finds_nothing_wrong_with_a_splash_that_runs_and_changes_nothing(stack):
    stack.up()
    records, before = [stack.record(name) for name in PROCESS_NAMES], files_of(stack)

    found = findings(stack)

    assert found == {}
    assert [stack.record(name) for name in PROCESS_NAMES] == records
    assert files_of(stack) == before
    assert all(stack.is_alive(name) for name in PROCESS_NAMES)


def test_an_engine_that_outlived_a_killed_control_is_found_and_up_mends_it(stack):
    stack.up()
    engine = stack.record("engine")
    killed = stack.kill("control")
    wait_until(lambda: live_process(killed) is None, "control to be gone")

    found = findings(stack)

    assert set(found) == {"stale_record", "engine_without_control", "console_without_control"}
    assert all(each["level"] == "wrong" for each in found.values())
    assert "splash up" in found["engine_without_control"]["mend"]
    assert live_process(engine) is not None
    # The engine itself tells what it may use, when nobody else can.
    assert examined(stack)["machine"]["engine_limit_bytes"] > 0
    stack.up()
    assert stack.record("engine").pid == engine.pid
    assert findings(stack) == {}


def test_a_control_that_hangs_is_found_without_waiting_for_it(stack):
    stack.up()
    control = stack.kill("control", signal.SIGSTOP)
    try:
        wait_until(lambda: time.time() - control.created_at_s > START_LIMIT_S, "control to be old enough", 60)

        found = findings(stack)
    finally:
        os.kill(control.pid, signal.SIGCONT)

    assert found["not_answering"]["level"] == "wrong"
    assert f"pid {control.pid}" in found["not_answering"]["what"]


def test_a_forged_record_of_an_innocent_process_is_named_and_the_process_left_alone(stack):
    stack.home.create()
    with asleep() as innocent:
        stack.home.write_record(forged(innocent))

        found, status = findings(stack), stack.splash("status", "--json")

        assert set(found) == {"foreign_record"}
        assert f"pid {innocent.pid}" in found["foreign_record"]["what"]
        assert "rm " in found["foreign_record"]["mend"] and "kill" not in found["foreign_record"]["mend"]
        engine = json.loads(status.stdout)["engine"]
        assert (engine["state"], engine["identity"], engine["others"]) == ("not listening", "closed", [])
    subprocess.run(found["foreign_record"]["mend"].strip("`"), shell=True, check=True)
    assert findings(stack) == {}


def test_a_record_whose_pid_was_reused_is_told_from_one_whose_process_has_ended(stack):
    stack.home.create()
    with asleep() as innocent:
        stack.home.write_record(forged(innocent, created_at_s=1.0))
        reused = findings(stack)
    ended = findings(stack)

    assert set(reused) == {"reused_pid"} and set(ended) == {"stale_record"}
    assert stack.splash("quit").returncode == 3
    assert findings(stack) == {}


@pytest.mark.parametrize("port", ["api", "admin", "console", "engine"])
def test_a_taken_port_is_named_with_its_holder(stack, port):
    with socket.create_server(("127.0.0.1", stack.ports[port])):
        found = findings(stack)

    assert set(found) == {"taken_port"}
    assert f"pid {os.getpid()}" in found["taken_port"]["what"]
    assert str(stack.ports[port]) in found["taken_port"]["what"]
    assert findings(stack) == {}


def test_a_secret_that_others_may_read_is_found_and_its_command_closes_it(stack):
    stack.up()
    stack.home.admin_secret_file.chmod(0o644)

    found = findings(stack)

    assert set(found) == {"open_permissions"} and found["open_permissions"]["level"] == "wrong"
    subprocess.run(found["open_permissions"]["mend"].strip("`"), shell=True, check=True)
    assert stack.home.admin_secret_file.stat().st_mode & 0o777 == 0o600
    assert findings(stack) == {}


def test_an_engine_that_was_started_by_hand_and_has_no_record_is_found_by_both_commands(stack, tmp_path):
    stack.home.create()
    stack.home.write_launch(Launch(secret="s" * 43, nonce="n" * 43, port=stack.ports["engine"], model="demo"))
    words = [sys.executable, *stack.engine_command.split()[1:], "--home", str(stack.home.root)]
    with (tmp_path / "engine.out").open("wb") as out:
        stray = subprocess.Popen(words, stdout=out, stderr=out, cwd=stack.home.root, start_new_session=True)
    try:
        wait_until(lambda: stack.home.read_record("engine"), "the engine to write its record")
        stack.home.record_file("engine").unlink()
        # Until its port is open it counts as one that begins.
        wait_until(lambda: "orphan" in findings(stack), "the orphan to be seen", 60)

        found, status = findings(stack), stack.splash("status", "--json")
        shown = stack.splash("status", COLUMNS="80")

        assert set(found) == {"orphan", "engine_without_control"}
        assert f"pid {stray.pid} on port {stack.ports['engine']}" in found["orphan"]["what"]
        [other] = json.loads(status.stdout)["engine"]["others"]
        assert (other["pid"], other["is_unrecorded"]) == (stray.pid, True)
        assert other["memory_bytes"] > 0
        assert "unrecorded" in shown.stdout and max(map(len, shown.stdout.splitlines())) <= 80
        assert stray.poll() is None
        assert status.returncode == 3
        subprocess.run(found["orphan"]["mend"].strip("`"), shell=True, check=True)
        stray.wait(60)
    finally:
        stray.kill()
        stray.wait()
    assert findings(stack) == {}


def test_an_engine_whose_home_was_deleted_is_named_to_the_other_homes(stack, tmp_path):
    gone = tmp_path / "removed"
    stand_in = [sys.executable, "-c", "import time; time.sleep(600)", "-m", "engine", "--home", str(gone)]
    orphan = subprocess.Popen(stand_in, start_new_session=True)
    try:
        report = examined(stack)
        named = [each for each in report["findings"] if f"pid {orphan.pid} " in each["what"]]
        assert [each["check"] for each in named] == ["orphan_of_a_gone_home"]
        assert str(gone) in named[0]["what"]
        gone.mkdir()
        assert not [each for each in examined(stack)["findings"] if f"pid {orphan.pid} " in each["what"]]
        assert orphan.poll() is None
    finally:
        orphan.kill()
        orphan.wait()


def test_two_homes_do_not_take_each_other_for_orphans_and_name_each_other_at_a_port(stack, tmp_path):
    other = Stack(tmp_path / "other", engine_command=stack.engine_command)
    try:
        stack.up()
        other.up()

        assert findings(stack) == findings(other) == {}
        assert all(entry["others"] == [] for entry in stack.status().values())

        third = Stack(tmp_path / "third", engine_command=stack.engine_command)
        third.ports = third.ports | {"api": other.ports["api"]}
        found = findings(third)
        assert set(found) == {"taken_port"}
        assert f"of another Splash: {other.home.root}" in found["taken_port"]["what"]
    finally:
        other.clean_up()


def test_status_tells_of_each_process_its_age_identity_manager_and_version(stack):
    stack.up()

    status, shown = stack.status(), stack.splash("status", COLUMNS="80").stdout

    for name in PROCESS_NAMES:
        entry = status[name]
        assert entry["identity"] == "ours"
        assert entry["uptime_s"] >= 0 and entry["manager"] and entry["version"]
    assert max(map(len, shown.splitlines())) <= 80
    assert "control, webui, engine" in shown and "detached" in shown


def test_doctor_says_of_a_damaged_file_of_settings_what_every_command_says(stack):
    stack.home.root.mkdir()
    (stack.home.root / "splash.toml").write_text("SPLASH_API_PORT = = 1")

    done = stack.splash("doctor")

    assert done.returncode == 2
    assert "splash.toml is not valid TOML" in done.stderr


def test_a_record_and_secrets_that_were_overwritten_are_found(stack):
    stack.home.create()
    for file in (stack.home.record_file("control"), stack.home.admin_secret_file, stack.home.root / "secrets/console"):
        file.write_bytes(b"\x00damaged")
        Path(file).chmod(0o600)

    found = findings(stack)

    assert set(found) == {"damaged_record", "damaged_secret"}
    stack.up()
    assert findings(stack) == {}
    assert msgspec.json.decode(stack.home.record_file("control").read_bytes())["pid"]
