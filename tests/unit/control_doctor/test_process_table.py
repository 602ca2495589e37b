"""Which processes are of Splash, and of which home: from command lines alone, without any process."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from control.doctor.process_table import others, parts, user_processes
from tests.unit.control_doctor.scenes import HOME, engine_of, process

OTHER_HOME = Path("/homes/other")


def seen(*processes):
    return [(part.process.pid, part.title, part.home) for part in parts(processes, HOME)]


def beside(processes, **recorded):
    return [(each.process.pid, each.title, each.is_unrecorded) for each in others(processes, HOME, recorded)]


def test_the_three_processes_are_known_by_how_they_are_started():
    engine = engine_of(HOME, 1)
    console = process(2, "python3", "-m", "webui", "--home", str(HOME), "--port", "18082")
    control = process(3, "/x/bin/python", "-m", "control", "--manager", "launchd", told_home=str(HOME))

    assert seen(engine, console, control) == [(1, "engine", HOME), (2, "webui", HOME), (3, "control", HOME)]


def test_a_control_is_known_by_the_home_that_it_works_in_too():
    here = process(1, "python", "-m", "control", folder=HOME, works_in_home=True)
    elsewhere = process(2, "python", "-m", "control", folder=Path("/robots"))

    assert seen(here, elsewhere) == [(1, "control", HOME)]


def test_a_program_of_somebody_else_is_none_of_ours():
    innocent = (
        process(1, "sleep", "1000"),
        process(2, "python", "-m", "engine"),
        process(3, "python", "-m", "enginery", "--home", str(OTHER_HOME)),
        process(4, "sh", "-c", f"python -m engine --home {HOME}"),
        process(5, "anything", "--home", str(OTHER_HOME)),
        process(6),
    )

    assert seen(*innocent) == []


def test_any_program_that_is_given_this_home_stands_for_its_engine():
    assert seen(process(1, "python", "fake.py", "--home", str(HOME))) == [(1, "engine", HOME)]


def test_a_home_that_was_given_in_another_form_is_the_same_home():
    joined = process(1, "python", "-m", "engine", f"--home={HOME}")
    relative = process(2, "python", "-m", "engine", "--home", "mine", folder=HOME.parent)
    roundabout = engine_of("/homes/x/../mine/", 3)

    assert [home for _, _, home in seen(joined, relative, roundabout)] == [HOME] * 3


def test_a_download_is_a_helper_and_no_second_engine():
    download = engine_of(HOME, 7, "fetch", "--model", "a/b", parent=100)

    assert beside([download], control=100) == [(7, "engine fetch", False)]


def test_an_engine_that_the_record_does_not_name_is_unrecorded():
    first, second = engine_of(HOME, 10), engine_of(HOME, 11)

    assert beside([first, second], engine=10) == [(11, "engine", True)]
    assert beside([first, second]) == [(10, "engine", True), (11, "engine", True)]


def test_what_a_process_of_ours_has_started_is_its_helper():
    control, awake = process(100, "python"), process(200, "caffeinate", "-i", parent=100)
    grandchild = process(300, "sh", parent=200)

    assert beside([control, awake, grandchild], control=100) == [(200, "caffeinate", False), (300, "sh", False)]


def test_what_keeps_the_mac_awake_for_an_engine_is_its_helper_though_control_was_killed():
    awake = process(200, "caffeinate", "-i", "-w", "102")
    anothers = process(201, "caffeinate", "-i", "-w", "9")
    words = process(202, "caffeinate", "-w", "x")

    assert beside([awake, anothers, words], engine=102) == [(200, "caffeinate", False)]


def test_a_wrapper_around_the_recorded_engine_is_no_second_engine():
    wrapper = process(10, "timeout", "60", "python", "-m", "engine", "--home", str(HOME))
    engine = engine_of(HOME, 11, parent=10)

    assert beside([wrapper, engine], engine=11) == [(10, "engine", False)]
    assert beside([wrapper, engine], engine=10) == [(11, "engine", False)]


def test_another_home_is_none_of_our_business():
    assert beside([engine_of(OTHER_HOME, 1), process(2, "sh", parent=1)], engine=50) == []


@st.composite
def tables(draw):
    """Processes with parents at random (circles too), some of this home and some of another."""
    pids = draw(st.lists(st.integers(2, 40), unique=True, min_size=1, max_size=12))
    kinds = [HOME, OTHER_HOME, None]
    table = []
    for pid in pids:
        parent, home = draw(st.sampled_from([1, *pids])), draw(st.sampled_from(kinds))
        table.append(process(pid, "sh", parent=parent) if home is None else engine_of(home, pid, parent=parent))
    recorded = draw(st.dictionaries(st.sampled_from(["control", "engine"]), st.sampled_from(pids), max_size=2))
    return table, recorded


@given(tables())
def test_every_serving_process_of_this_home_is_recorded_kin_or_shown_and_never_twice(drawn):
    table, recorded = drawn

    shown = others(table, HOME, recorded)

    pids = [each.process.pid for each in shown]
    assert len(pids) == len(set(pids))
    assert not set(pids) & set(recorded.values())
    ours = {part.process.pid for part in parts(table, HOME) if part.home == HOME}
    assert ours <= set(pids) | set(recorded.values())
    if "engine" not in recorded:
        assert {each.process.pid for each in shown if each.is_unrecorded} == ours - set(recorded.values())


def test_this_very_process_is_in_the_table_of_the_machine():
    import os

    me = next(each for each in user_processes() if each.pid == os.getpid())

    assert me.words and me.resident_bytes > 0
    assert me.told_home is None
