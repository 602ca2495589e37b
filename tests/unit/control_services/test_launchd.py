"""How a job is started and removed, when launchd is slow, refuses, or knows it already."""

import stat

import pytest

from control.command_errors import ServiceStays, StartFailed
from control.services.launchctl import Job
from control.services.launchd import Launchd, preparation
from control.services.protocol import Ended
from engine.wire import ProcessRecord
from tests.unit.control_services.scripted import EXITED, RUNNING, ScriptedLaunchctl

COMMAND = ("/bin/python", "-m", "control")


@pytest.fixture
def scripted(clock):
    return ScriptedLaunchctl(clock)


@pytest.fixture
def launchd(home, scripted, clock, monkeypatch):
    # A `plutil` of this machine would be asked about files that are right.
    monkeypatch.setattr("control.services.launchd.shutil.which", lambda name: None)
    return Launchd(home, scripted, now=clock.now, pause=clock.pause)


def record(**changes) -> ProcessRecord:
    facts = {"pid": 77, "nonce": "new", "manager": "launchd", "created_at_s": 1.0, "port": 1, "started_at_s": 1.0}
    return ProcessRecord(name="control", version="0", **(facts | changes))


@pytest.mark.parametrize(
    ("job", "is_same_list", "to_do"),
    [
        (None, True, "load"),
        (None, False, "load"),
        (RUNNING, True, "none"),
        (RUNNING, False, "load anew"),
        (EXITED, True, "load anew"),
        (Job(), True, "load anew"),
    ],
)
def test_a_job_is_loaded_anew_unless_it_runs_as_it_should(job, is_same_list, to_do):
    assert preparation(job, is_same_list=is_same_list) == to_do


def test_a_start_loads_a_private_property_list_and_starts_it_once(launchd, scripted):
    launchd.start("control", COMMAND, {})

    assert scripted.verbs == ["bootstrap", "kickstart"]
    assert stat.S_IMODE(launchd.file("control").stat().st_mode) == 0o600


def test_a_second_start_of_what_runs_starts_nothing(launchd, scripted):
    launchd.start("control", COMMAND, {})
    scripted.verbs.clear()

    launched = launchd.start("control", COMMAND, {})

    assert scripted.verbs == ["kickstart"]
    assert launched.wrote(record())


def test_with_another_property_list_the_old_job_is_gone_before_the_new_one_is_loaded(launchd, scripted, clock):
    launchd.start("control", COMMAND, {})
    scripted.verbs.clear()
    scripted.bootout_s = 4.0

    launchd.start("control", (*COMMAND, "--more"), {})

    assert scripted.verbs == ["bootout", "bootstrap", "kickstart"]
    assert clock.now() >= 4.0
    assert b"--more" in launchd.file("control").read_bytes()


@pytest.mark.parametrize("codes", [[5], [37, 5, 5], [113]])
@pytest.mark.parametrize("verb", ["bootstrap", "kickstart"])
def test_what_a_bootout_in_progress_refuses_is_tried_again(launchd, scripted, verb, codes):
    scripted.refuses[verb] = list(codes)

    launchd.start("control", COMMAND, {})

    assert scripted.loaded == RUNNING
    assert scripted.verbs.count(verb) == len(codes) + 1


def test_a_label_that_is_unknown_at_its_start_is_loaded_again(launchd, scripted):
    scripted.refuses["kickstart"] = [113]

    launchd.start("control", COMMAND, {})

    assert scripted.verbs == ["bootstrap", "kickstart", "bootstrap", "kickstart"]


def test_a_refusal_that_does_not_pass_ends_the_start_at_once_with_the_words_of_launchd(launchd, scripted, clock, home):
    scripted.refuses["bootstrap"] = [122]

    with pytest.raises(StartFailed, match=r"bootstrap failed: 122\. `splash up --manager detached`"):
        launchd.start("control", COMMAND, {})

    assert clock.now() == 0
    assert not home.launchd_folder.exists()


def test_a_refusal_that_goes_on_ends_the_start_after_15_seconds(launchd, scripted, clock, home):
    scripted.refuses["bootstrap"] = [5] * 100

    with pytest.raises(StartFailed, match="launchd does not start control"):
        launchd.start("control", COMMAND, {})

    assert 15 <= clock.now() <= 17
    assert not home.launchd_folder.exists()


def test_a_removal_waits_until_launchd_has_forgotten_the_job_and_leaves_no_file(launchd, scripted, clock, home):
    launchd.start("control", COMMAND, {})
    scripted.bootout_s = 44.0

    launchd.remove("control")

    assert scripted.loaded is None and clock.now() >= 44.0
    assert not home.launchd_folder.exists()


def test_a_job_that_launchd_keeps_is_said_and_its_file_stays_for_the_next_try(launchd, scripted):
    launchd.start("control", COMMAND, {})
    scripted.bootout_s = 1e9

    with pytest.raises(ServiceStays, match=r"launchd still has .* after 60 s"):
        launchd.remove("control")

    assert launchd.file("control").exists()


def test_removing_what_is_not_there_asks_for_nothing(launchd, scripted):
    launchd.remove("webui")
    launchd.remove("webui")

    assert scripted.verbs == []


def test_how_a_job_ended_before_it_was_found_is_told_in_its_own_exit_code(launchd, scripted, clock):
    launched = launchd.start("control", COMMAND, {})
    told = []
    for job in (RUNNING, Job(last_exit_code=5), Job(last_signal="Killed: 9"), None):
        scripted.loaded = job
        clock.pause(1)
        told.append(launched.ended())

    assert told == [
        None,
        Ended(5, "it ended with exit code 5"),
        Ended(None, "a signal ended it (Killed: 9)"),
        Ended(None, "launchd does not know it any more"),
    ]


@pytest.mark.parametrize(
    ("written", "is_it"),
    [
        (record(), True),
        (record(pid=78), False),
        (record(nonce="old"), False),
        (record(manager="detached"), False),
    ],
)
def test_only_the_record_of_the_new_process_tells_that_it_is_there(launchd, home, written, is_it):
    home.write_record(record(nonce="old"))

    launched = launchd.start("control", COMMAND, {})

    assert launched.wrote(written) is is_it


def test_a_pid_that_launchd_does_not_tell_is_taken_from_the_record(launchd, scripted):
    launched = launchd.start("control", COMMAND, {})
    scripted.loaded = Job()

    assert launched.wrote(record(pid=12345))


def test_a_half_started_job_is_ended_and_nothing_of_it_is_left(launchd, scripted, home):
    launched = launchd.start("control", COMMAND, {})
    home.write_record(record())

    launched.end()

    assert scripted.loaded is None
    assert home.read_record("control") is None
    assert not home.launchd_folder.exists()


def test_a_list_that_plutil_refuses_is_never_loaded(launchd, scripted, tmp_path, monkeypatch):
    plutil = tmp_path / "plutil"
    plutil.write_text("#!/bin/sh\necho wrong in line 3; exit 1\n")
    plutil.chmod(0o755)
    monkeypatch.setattr("control.services.launchd.shutil.which", lambda name: str(plutil))

    with pytest.raises(StartFailed, match="is not a property list: wrong in line 3"):
        launchd.start("control", COMMAND, {})

    assert scripted.verbs == []
    assert not launchd.file("control").exists()


@pytest.mark.parametrize(
    ("job", "end"),
    [
        (None, None),
        (RUNNING, None),
        (Job(), None),
        (Job(last_exit_code=1), Ended(1, "it ended with exit code 1")),
        (Job(last_signal="Killed: 9"), Ended(None, "a signal ended it (Killed: 9)")),
    ],
)
def test_how_a_job_ended_that_nobody_told_to_is_what_launchd_knows(launchd, scripted, job, end):
    scripted.loaded = job

    assert launchd.last_end("control") == end
