"""What doctor says of processes and records, from facts alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from control.doctor.examination import examine, is_well
from control.doctor.facts import LockFacts
from control.doctor.process_table import Other, Part
from tests.unit.control_doctor.scenes import (
    HOME,
    checks,
    engine_of,
    nobody,
    process,
    record,
    record_facts,
    well,
)


def only(facts):
    [finding] = examine(facts)
    return finding


def unrecorded(role, pid, age_s=3600.0):
    return Other(role, process(pid, "python", age_s=age_s), role, is_unrecorded=True)


def test_nothing_is_said_of_a_splash_that_is_well():
    assert examine(well()) == ()
    assert is_well(examine(well()))


def test_nothing_is_said_of_a_splash_that_was_never_started():
    nothing = {name: nobody(name) for name in ("control", "webui", "engine")}

    assert examine(well(records=nothing)) == ()


def test_an_unloaded_model_is_nothing_wrong():
    assert examine(well(records={"engine": nobody("engine")})) == ()


def test_an_engine_that_outlived_its_control_is_wrong_and_up_takes_it_over():
    finding = only(well(records={"control": nobody("control"), "webui": nobody("webui")}))

    assert (finding.check, finding.level) == ("engine_without_control", "wrong")
    assert "splash up" in finding.mend and "splash quit" in finding.mend


def test_a_console_without_control_is_wrong():
    dead = record_facts("control", verdict="gone", pid_is_taken=False, runs_for_home=False)

    assert checks(well(records={"control": dead, "engine": nobody("engine")})) == [
        ("stale_record", "wrong"),
        ("console_without_control", "wrong"),
    ]


def test_control_without_its_console_is_wrong():
    assert checks(well(records={"webui": nobody("webui")})) == [("no_console", "wrong")]


def test_a_record_whose_pid_is_free_is_stale_and_one_whose_pid_is_anothers_says_so():
    stale = record_facts("engine", verdict="gone", pid_is_taken=False, runs_for_home=False)
    reused = replace(stale, pid_is_taken=True)

    assert only(well(records={"engine": stale})).check == "stale_record"
    finding = only(well(records={"engine": reused}))
    assert finding.check == "reused_pid" and "never signals" in finding.why


@pytest.mark.parametrize("verdict", ["closed", "silent", "stranger"])
def test_a_record_that_names_an_innocent_process_is_to_be_removed_and_nobody_to_be_ended(verdict):
    forged = record_facts("engine", verdict=verdict, runs_for_home=False)

    finding = only(well(records={"engine": forged}))

    assert (finding.check, finding.level) == ("foreign_record", "wrong")
    assert finding.mend == f"`rm {HOME}/run/engine.json`"
    assert "kill" not in finding.mend


def test_a_record_that_cannot_be_understood_is_named_with_its_file():
    finding = only(well(records={"engine": replace(nobody("engine"), is_file=True)}))

    assert finding.check == "damaged_record" and f"{HOME}/run/engine.json" in finding.mend


def test_a_control_that_hangs_is_wrong_but_one_that_starts_is_not():
    hangs = record_facts("control", verdict="silent")

    assert checks(well(records={"control": hangs})) == [("not_answering", "wrong")]
    assert checks(well(records={"control": replace(hangs, age_s=3.0)})) == []


def test_a_silent_engine_is_a_warning_while_control_watches_it():
    silent = record_facts("engine", verdict="silent")

    assert checks(well(records={"engine": silent})) == [("not_answering", "warning")]


def test_an_engine_without_a_record_is_an_orphan_with_its_pid_and_port():
    facts = well(records={"engine": nobody("engine")}, others=(unrecorded("engine", 77),), listening={77: (18081,)})

    finding = only(facts)

    assert (finding.check, finding.level, finding.mend) == ("orphan", "wrong", "`kill 77`")
    assert "on port 18081" in finding.what and "no record of it" in finding.what


def test_a_second_engine_beside_the_recorded_one_is_an_orphan():
    assert "names pid 102" in only(well(others=(unrecorded("engine", 77),))).what


def test_a_process_that_has_just_begun_and_has_no_port_yet_is_left_in_peace():
    begins = unrecorded("engine", 77, age_s=2.0)

    assert checks(well(others=(begins,))) == []
    assert checks(well(others=(begins,), listening={77: (18081,)})) == [("orphan", "wrong")]


def test_a_lock_that_is_held_by_nobody_known_is_an_orphan():
    none = {name: nobody(name) for name in ("control", "webui", "engine")}

    assert checks(well(lock=LockFacts(100, 3600.0))) == []
    assert ("orphan", "wrong") in checks(well(records=none, lock=LockFacts(55, 3600.0)))
    assert ("orphan", "wrong") not in checks(well(records=none, lock=LockFacts(55, 1.0)))


def test_an_engine_whose_control_is_just_starting_again_is_not_alone():
    begins = well(records={"control": nobody("control")}, lock=LockFacts(55, 1.0))

    assert checks(begins) == []


def test_a_control_that_lives_without_a_record_is_an_orphan_and_its_engine_and_console_are_none():
    facts = well(records={"control": nobody("control")}, others=(unrecorded("control", 55),))

    assert checks(facts) == [("orphan", "wrong")]


def test_a_download_that_no_control_waits_for_is_a_warning_and_one_of_control_is_not():
    download = Other("engine", process(9, "python"), "engine fetch", is_unrecorded=False)
    none = {name: nobody(name) for name in ("control", "webui", "engine")}

    assert checks(well(others=(download,))) == []
    assert checks(well(records=none, others=(download,))) == [("left_download", "warning")]


def test_an_orphan_of_a_home_that_is_no_more_is_named_and_is_not_our_fault():
    gone = Path("/homes/removed")
    part = Part(engine_of(gone, 66), "engine", gone, None)
    living = Part(engine_of("/homes/other", 67), "engine", Path("/homes/other"), None)

    findings = examine(well(parts=(part, living), gone_homes=frozenset({gone})))

    assert [(finding.check, finding.level) for finding in findings] == [("orphan_of_a_gone_home", "warning")]
    assert "pid 66" in findings[0].what and str(gone) in findings[0].what
    assert is_well(findings)


@pytest.mark.parametrize("name", ["control", "webui", "engine"])
def test_another_version_is_a_warning_and_another_language_is_wrong(name):
    older = record_facts(name, record=record(name, version="0.0.9"))

    assert checks(well(records={name: older})) == [("other_version", "warning")]
    assert "when convenient" in only(well(records={name: older})).mend
    assert checks(well(records={name: replace(older, wire_version=0)})) == [("other_wire", "wrong")]
    assert checks(well(records={name: replace(older, record=record(name, version=""))})) == []


def test_what_is_wrong_comes_before_what_is_worth_knowing():
    older = record_facts("control", record=record("control", version="0.0.9"))

    levels = [level for _, level in checks(well(records={"control": older}, others=(unrecorded("engine", 7),)))]

    assert levels == ["wrong", "warning"]
