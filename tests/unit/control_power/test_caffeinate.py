"""The child that keeps a Mac awake, with another program in its place: at most one, and always reaped."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from control.power.caffeinate import END_LIMIT_S, Caffeinate, installed_caffeinate
from tests.story.stack import ROOT, wait_until

FAKE = str(ROOT / "tests" / "fakes" / "caffeinate.py")
STUBBORN = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


class Diary:
    """What the fake program wrote: all that ever were, in order."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.file.read_text().splitlines()] if self.file.exists() else []

    @property
    def watched(self) -> list[int]:
        return [int(words[-1]) for words in self.lines if words[0] == "+"]

    def most_at_once(self) -> int:
        most = now = 0
        for sign, *_ in self.lines:
            now += 1 if sign == "+" else -1
            most = max(most, now)
        return most


class Scene:
    def __init__(self, folder: Path, *options: str) -> None:
        self.now = 1000.0
        self.diary = Diary(folder / "diary")
        self.command = (sys.executable, FAKE, str(self.diary.file), *options)
        self.caffeinate = Caffeinate(self.command, monotonic=lambda: self.now)

    def follow_until(self, is_wanted: bool, condition, what: str) -> None:
        def is_so() -> bool:
            self.caffeinate.follow(is_wanted=is_wanted)
            return condition()

        wait_until(is_so, what, timeout_s=60)


@pytest.fixture
async def scene(tmp_path):
    scene = Scene(tmp_path)
    yield scene
    await scene.caffeinate.close()


def children() -> list[psutil.Process]:
    """Of the fake program; one that ended and was not reaped is still one."""
    return [each for each in psutil.Process().children() if is_zombie(each) or each.cmdline()[1:2] == [FAKE]]


def is_zombie(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_ZOMBIE


def has_stubborn_child() -> bool:
    return any(is_zombie(each) or STUBBORN in each.cmdline() for each in psutil.Process().children())


async def test_one_lives_and_watches_control_however_often_it_is_asked(scene):
    for _ in range(20):
        scene.caffeinate.follow(is_wanted=True)

    (child,) = children()
    assert child.cmdline()[-3:] == ["-i", "-w", str(os.getpid())]
    assert scene.caffeinate.is_alive


async def test_when_nothing_is_to_be_kept_awake_it_ends_and_is_reaped(scene):
    scene.follow_until(True, lambda: scene.diary.watched, "the start")

    scene.follow_until(False, lambda: not children(), "the end")

    assert not scene.caffeinate.is_alive
    assert scene.diary.most_at_once() == 1


async def test_whatever_is_wanted_in_between_there_are_never_two_at_once(scene):
    for num_started in (1, 2, 3):
        scene.follow_until(True, lambda n=num_started: len(scene.diary.watched) == n, "one that lives")
        scene.caffeinate.follow(is_wanted=False)

    assert scene.diary.watched == [os.getpid()] * 3
    assert scene.diary.most_at_once() == 1


async def test_one_that_dies_is_started_again_after_a_second_and_said_once(scene, caplog):
    for _ in range(3):
        scene.follow_until(True, children, "one that lives")
        os.kill(children()[0].pid, signal.SIGKILL)
        scene.follow_until(True, lambda: not children(), "its end to be seen")
        scene.caffeinate.follow(is_wanted=True)
        assert children() == []  # not at once
        scene.now += 5.0

    assert [record.levelno for record in caplog.records if "ended by itself" in record.message] == [logging.WARNING]


async def test_one_that_never_works_is_tried_a_few_times_a_minute(tmp_path):
    scene = Scene(tmp_path, "--fails")
    for _ in range(63):
        scene.follow_until(True, lambda: not children(), "its end")
        scene.now += 1.0

    assert len(scene.diary.watched) <= 8


def test_one_that_a_killed_control_leaves_ends_by_itself(tmp_path):
    diary = Diary(tmp_path / "diary")
    starts = (
        "import sys, time; from control.power.caffeinate import Caffeinate; "
        "Caffeinate(sys.argv[1:]).follow(is_wanted=True); time.sleep(600)"
    )
    control = subprocess.Popen([sys.executable, "-c", starts, sys.executable, FAKE, str(diary.file)], cwd=ROOT)
    try:
        wait_until(lambda: diary.watched == [control.pid], "one that watches control")
    finally:
        control.kill()
        control.wait()

    wait_until(lambda: [words[0] for words in diary.lines] == ["+", "-"], "its end")


async def test_one_that_does_not_end_when_it_is_told_is_killed():
    now = 0.0
    caffeinate = Caffeinate((sys.executable, "-c", STUBBORN), monotonic=lambda: now)
    caffeinate.follow(is_wanted=True)
    await asyncio.sleep(1.0)

    caffeinate.follow(is_wanted=False)
    await asyncio.sleep(0.2)
    lives_on = has_stubborn_child()
    now = END_LIMIT_S

    def is_gone() -> bool:
        caffeinate.follow(is_wanted=False)
        return not has_stubborn_child()

    wait_until(is_gone, "its end")
    assert lives_on


async def test_a_program_that_is_gone_is_said_once_and_costs_nothing_else(tmp_path, caplog):
    now = 0.0
    caffeinate = Caffeinate((str(tmp_path / "caffeinate"),), monotonic=lambda: now)

    for _ in range(200):
        caffeinate.follow(is_wanted=True)
        now += 1.0

    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert not caffeinate.is_alive


async def test_without_a_command_nothing_is_started():
    caffeinate = Caffeinate(())

    caffeinate.follow(is_wanted=True)

    assert not caffeinate.is_alive


def test_only_a_mac_is_looked_through_for_it_and_one_that_lacks_it_is_told_once(caplog):
    found = installed_caffeinate(platform="darwin", which=lambda name: f"/usr/bin/{name}")
    lacking = installed_caffeinate(platform="darwin", which=lambda name: None)
    elsewhere = installed_caffeinate(platform="linux", which=lambda name: f"/usr/bin/{name}")

    assert (found, lacking, elsewhere) == (("/usr/bin/caffeinate",), (), ())
    assert [record.message for record in caplog.records] == [
        "the machine can't be kept awake reason=caffeinate is not on the PATH"
    ]
