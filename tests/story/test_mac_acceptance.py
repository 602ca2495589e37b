"""The program of `make mac-acceptance` against the fake launchd: what can be shown here passes, the rest says why."""

import subprocess
import sys
from dataclasses import replace

import pytest

from control.services.launchctl import Launchctl
from tests.mac_acceptance.__main__ import carried_out
from tests.mac_acceptance.checks import CHECKS, jobs_of_launchd, quit_leaves_nothing
from tests.mac_acceptance.stage import Stage
from tests.story.launchd_stack import FAKES, LaunchdStack
from tests.story.stack import ROOT, fake_engine

pytestmark = pytest.mark.story


@pytest.fixture
def stage(tmp_path, monkeypatch):
    state = tmp_path / "launchd"
    state.mkdir()
    monkeypatch.setenv("FAKE_LAUNCHD", str(state))
    stack = LaunchdStack(tmp_path / "splash", engine_command=fake_engine(), state=state)
    yield Stage(stack, Launchctl(str(FAKES / "launchctl"), "gui/0"))
    stack.clean_up()


@pytest.mark.skipif(sys.platform == "darwin", reason="it is about what another machine can't show")
def test_what_needs_a_mac_is_not_tried_and_everything_else_passes(stage):
    results = {result.name: result for result in carried_out(stage, CHECKS)}

    assert {name for name, result in results.items() if result.verdict == "FAILED"} == set()
    assert {name for name, result in results.items() if result.verdict == "passed"} == {
        "desktop session",
        "jobs of launchd",
        "console alone restarts",
        "killed control is adopted from",
        "bootout ends everything",
        "quit leaves nothing",
    }
    assert all(result.words for result in results.values())


def test_speeds_are_read_from_the_row_of_the_request_that_was_asked(stage):
    stage.up("launchd")

    spoken = stage.spoken(num_words=40, num_tokens=32)

    assert spoken.prefill_speed > 0 and spoken.decode_speed > 0


def test_a_job_that_is_left_behind_fails_the_check_and_the_next_ones_go_on(stage):
    def leave_a_file(stage):
        (stage.stack.home.launchd_folder / "left.plist").touch()
        return "left"

    checks = (jobs_of_launchd, leave_a_file, quit_leaves_nothing, jobs_of_launchd)
    verdicts = [replace(result, seconds=0) for result in carried_out(stage, checks)]

    assert [result.verdict for result in verdicts] == ["passed", "passed", "FAILED", "passed"]
    assert "left.plist" in verdicts[2].words


@pytest.mark.skipif(sys.platform == "darwin", reason="there it would run")
def test_elsewhere_it_says_that_a_mac_is_needed():
    done = subprocess.run(
        [sys.executable, "-m", "tests.mac_acceptance"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "a Mac is needed" in done.stderr
