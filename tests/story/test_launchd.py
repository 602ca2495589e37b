"""Splash under launchd: real processes as jobs of a fake launchd that misbehaves as the real one does."""

import os
import plistlib
import signal
import stat
import subprocess
import sys

import psutil
import pytest

from control.identity import live_process
from tests.story.launchd_stack import LaunchdStack
from tests.story.stack import fake_engine, is_free, wait_until

pytestmark = pytest.mark.story


@pytest.fixture
def scripted_engine():
    return fake_engine()


@pytest.fixture
def stack(tmp_path, scripted_engine):
    stack = LaunchdStack(tmp_path / "home", engine_command=scripted_engine, state=tmp_path / "launchd")
    yield stack
    stack.clean_up()


def names(stack) -> list[str]:
    return sorted(stack.jobs)


def still_known(stack) -> list[str]:
    return [label for label in names(stack) if launchctl(stack, "print", label) == 0]


def launchctl(stack, verb: str, label: str) -> int:
    return subprocess.run(
        ["launchctl", verb, f"gui/{os.getuid()}/{label}"], env=stack.environment, capture_output=True
    ).returncode


def test_up_makes_two_jobs_and_a_second_up_changes_nothing(stack):
    stack.up()
    control, console, jobs = stack.record("control"), stack.record("webui"), stack.jobs

    stack.up()

    assert (control.manager, console.manager) == ("launchd", "launchd")
    assert sorted(job["pid"] for job in jobs.values()) == sorted((control.pid, console.pid))
    assert (stack.record("control"), stack.record("webui"), stack.jobs) == (control, console, jobs)
    assert stack.status()["control"]["manager"] == "launchd"


def test_a_job_has_a_clean_environment_private_files_and_the_settings_of_its_start(stack):
    stack.up()

    control = psutil.Process(stack.record("control").pid)
    environment = control.environ()
    assert environment["PATH"].startswith(f"{sys.prefix}/bin:") and environment["PYTHONUNBUFFERED"] == "1"
    assert environment["SPLASH_HOME"] == str(stack.home.root)
    assert environment["SPLASH_API_PORT"] == str(stack.ports["api"])
    assert not any(key.startswith("PYTEST") for key in environment)
    assert control.cwd() == str(stack.home.root)
    assert [stat.S_IMODE(file.stat().st_mode) for file in stack.property_lists] == [0o600, 0o600]
    assert stat.S_IMODE(stack.home.log_file("control").stat().st_mode) == 0o600


def test_quit_leaves_no_job_no_property_list_and_no_process(stack):
    stack.up()
    records = [stack.record(name) for name in ("engine", "control", "webui")]

    done = stack.quit()

    assert (done.returncode, done.stderr) == (0, "")
    assert not any(live_process(record) for record in records)
    assert (stack.property_lists, still_known(stack)) == ([], [])
    assert all(is_free(port) for port in stack.ports.values())


def test_up_right_after_a_quit_starts_anew(stack):
    stack.up()
    before = stack.record("control")
    stack.quit()

    stack.up()

    assert stack.record("control").pid != before.pid
    assert len(still_known(stack)) == 2


def test_up_outlasts_a_bootout_that_still_goes_on(stack):
    stack.up()
    before = stack.record("control"), stack.record("webui")
    booted_out = [launchctl(stack, "bootout", label) for label in names(stack)]

    stack.up()

    assert booted_out == [0, 0]
    assert not any(live_process(record) for record in before)
    assert stack.status()["control"]["state"] == "running"
    assert len(still_known(stack)) == 2


def test_a_job_that_dies_by_itself_stays_down_is_shown_and_comes_back_with_up(stack):
    stack.up()
    engine, console = stack.record("engine"), stack.record("webui")
    control = stack.kill("control")
    wait_until(lambda: live_process(control) is None, "control to be gone")

    status = stack.splash("status")
    stack.up()

    assert status.returncode == 3
    assert f"pid {control.pid} has ended: a signal ended it (Killed: 9), as launchd says" in " ".join(
        status.stdout.split()
    )
    assert stack.record("control").pid != control.pid
    assert (stack.record("engine"), stack.record("webui")) == (engine, console)


def test_a_start_that_fails_says_why_and_leaves_no_job(stack):
    stack.home.create()
    (stack.home.root / "splash.db").mkdir()

    done = stack.splash("up", "--no-open", "--manager", "launchd")

    assert done.returncode == 1
    assert "control did not start: " in done.stderr and "launchd" not in done.stderr
    assert (stack.property_lists, still_known(stack)) == ([], [])


def test_two_homes_run_side_by_side_and_the_end_of_one_leaves_the_other(tmp_path, scripted_engine):
    first, second = (
        LaunchdStack(tmp_path / name, engine_command=scripted_engine, state=tmp_path / "launchd")
        for name in ("first", "second")
    )
    try:
        first.up()
        second.up()
        kept = second.record("control")
        four = names(first)

        done = first.quit()

        assert (len(four), done.returncode) == (4, 0)
        assert live_process(kept) is not None and len(still_known(second)) == 2
        assert (len(first.property_lists), len(second.property_lists)) == (0, 2)
        assert second.quit().returncode == 0
    finally:
        first.clean_up()
        second.clean_up()


def test_a_home_with_spaces_an_ampersand_and_chinese_in_its_name_works(tmp_path, scripted_engine):
    folder = tmp_path / "Tom & Jerry's <家> 中文"
    stack = LaunchdStack(folder, engine_command=scripted_engine, state=tmp_path / "launchd")
    try:
        stack.up()
        homes = {plistlib.loads(file.read_bytes())["WorkingDirectory"] for file in stack.property_lists}
        done = stack.quit()
    finally:
        stack.clean_up()

    assert homes == {str(folder)}
    assert (done.returncode, stack.property_lists) == (0, [])


def test_detached_in_place_of_launchd_takes_what_launchd_left_away(stack):
    stack.up()
    for name in ("control", "webui"):
        killed = stack.kill(name)
        wait_until(lambda killed=killed: live_process(killed) is None, "it to be gone")

    stack.up("--manager", "detached")

    assert stack.record("control").manager == "detached"
    assert (stack.property_lists, still_known(stack)) == ([], [])


def test_the_console_is_restarted_by_launchd_and_nothing_else_is(stack):
    stack.up()
    control, engine, console = (stack.record(name) for name in ("control", "engine", "webui"))

    done = stack.splash("restart", "webui")

    assert (done.returncode, done.stderr) == (0, "")
    assert live_process(console) is None
    assert (stack.record("control"), stack.record("engine")) == (control, engine)
    assert (stack.record("webui").manager, len(still_known(stack))) == ("launchd", 2)


def test_the_last_act_of_a_console_removes_the_jobs_once_it_is_gone(stack):
    stack.up()
    console = stack.record("webui")
    for name in ("control", "engine"):
        killed = stack.kill(name)
        wait_until(lambda killed=killed: live_process(killed) is None, "it to be gone")

    remover = subprocess.Popen(
        [sys.executable, "-m", "control.services.removal", "--home", stack.home.root, "--after", str(console.pid)],
        env=stack.environment,
        cwd=stack.home.root,
        start_new_session=True,
    )
    stack.kill("webui", signal.SIGTERM)

    assert remover.wait(60) == 0
    assert (stack.property_lists, still_known(stack)) == ([], [])
