"""What `launchctl print` says is read as far as it is understood; and no answer is an answer, too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.services.launchctl import Done, Job, Launchctl, read_job

RUNNING = """gui/501/io.github.splash.control = {
	active count = 1
	path = /Users/ann/launchd/io.github.splash.control.plist
	state = running

	arguments = {
		pid = 1
	}
	environment = {
		PATH => /usr/bin
	}
	runs = 2
	pid = 81045
	last exit code = (never exited)
	resource coalition = {
		pid = 2
		state = active
	}
}
"""


@pytest.mark.parametrize(
    ("text", "job", "has_ended"),
    [
        (RUNNING, Job(pid=81045), False),
        ("x = {\n\tstate = not running\n\truns = 1\n\tlast exit code = 78: EX_CONFIG\n}", Job(last_exit_code=78), True),
        ("x = {\n    state = not running\n    last exit code = 0\n}", Job(last_exit_code=0), True),
        ("x = {\n\tlast terminating signal = Killed: 9\n}", Job(last_signal="Killed: 9"), True),
        ("x = {\n\tstate = spawn scheduled\n\tlast exit code = (never exited)\n}", Job(), False),
        ("x = {\n\tpid = 5\n\tlast terminating signal = Killed: 9\n}", Job(pid=5, last_signal="Killed: 9"), False),
        ("x = {\n    pid = 5\n    a = {\n        pid = 1\n    }\n}", Job(pid=5), False),
        ("in a form of tomorrow", Job(), False),
    ],
)
def test_the_facts_of_a_job_are_its_own_and_what_is_not_understood_is_nothing(text, job, has_ended):
    assert (read_job(text), read_job(text).has_ended) == (job, has_ended)


@given(st.text())
def test_whatever_is_printed_is_read(text):
    read_job(text)


@pytest.mark.parametrize(
    ("code", "is_passing"), [(5, True), (36, True), (37, True), (113, True), (2, False), (None, False)]
)
def test_only_what_a_bootout_in_progress_causes_is_tried_again(code, is_passing):
    assert Done(code, "").is_passing is is_passing


def test_a_launchctl_that_cannot_be_run_or_does_not_answer_is_no_proof_that_a_job_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("control.services.launchctl.TIMEOUT_S", 0.2)
    slow = tmp_path / "launchctl"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)

    hanging, missing = Launchctl(str(slow), "gui/1"), Launchctl(str(tmp_path / "none"), "gui/1")

    assert (hanging.find("x"), missing.find("x")) == (Job(), Job())
    assert "did not answer" in str(hanging.bootout("x"))
    assert "can't be run" in str(missing.bootout("x"))
    assert missing.session() is None
