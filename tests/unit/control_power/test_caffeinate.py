"""The child that keeps a Mac awake, with another program in its place: at most one, and always reaped."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from control.power.caffeinate import END_LIMIT_S, Caffeinate, end_left_over, installed_caffeinate
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

    def follow_until(self, pid: int | None, condition, what: str) -> None:
        def is_so() -> bool:
            self.caffeinate.follow(pid)
            return condition()

        wait_until(is_so, what, timeout_s=60)


@pytest.fixture
async def scene(tmp_path):
    scene = Scene(tmp_path)
    yield scene
    await scene.caffeinate.close()


@pytest.fixture
def watched():
    """A process to watch."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield child
    child.kill()
    child.wait()


def children() -> list[psutil.Process]:
    """Of the fake program; one that ended and was not reaped is still one."""
    return [each for each in psutil.Process().children() if is_zombie(each) or each.cmdline()[1:2] == [FAKE]]


def is_zombie(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_ZOMBIE


def has_stubborn_child() -> bool:
    return any(is_zombie(each) or STUBBORN in each.cmdline() for each in psutil.Process().children())


@contextlib.contextmanager
def left_behind(command, *pids):
    """One that watches each of `pids`, started by a process that is not this one."""
    starts = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(600)"
    words = [sys.executable, "-c", starts, *command, "-i", "-w"]
    parents = [subprocess.Popen([*words, str(pid)]) for pid in pids]
    try:
        yield lambda: [each for parent in parents for each in psutil.Process(parent.pid).children()]
    finally:
        for parent in parents:
            for child in psutil.Process(parent.pid).children():
                child.kill()
            parent.kill()
            parent.wait()


async def test_one_lives_with_the_process_to_watch_on_its_command_line_however_often_it_is_asked(scene, watched):
    for _ in range(20):
        scene.caffeinate.follow(watched.pid)

    (child,) = children()
    assert child.cmdline()[-3:] == ["-i", "-w", str(watched.pid)]
    assert scene.caffeinate.is_alive


async def test_when_nothing_is_to_be_kept_awake_it_ends_and_is_reaped(scene, watched):
    scene.follow_until(watched.pid, lambda: scene.diary.watched, "the start")

    scene.follow_until(None, lambda: not children(), "the end")

    assert not scene.caffeinate.is_alive
    assert scene.diary.most_at_once() == 1


async def test_another_process_to_watch_is_another_one_and_never_two_at_once(scene, watched):
    for pid in (watched.pid, os.getpid(), watched.pid, os.getpid()):
        scene.follow_until(pid, lambda pid=pid: scene.diary.watched[-1:] == [pid], f"one that watches {pid}")

    assert scene.diary.watched == [watched.pid, os.getpid()] * 2
    assert scene.diary.most_at_once() == 1


async def test_one_that_dies_is_started_again_after_a_second_and_said_once(scene, watched, caplog):
    for _ in range(3):
        scene.follow_until(watched.pid, children, "one that lives")
        os.kill(children()[0].pid, signal.SIGKILL)
        scene.follow_until(watched.pid, lambda: not children(), "its end to be seen")
        scene.caffeinate.follow(watched.pid)
        assert children() == []  # not at once
        scene.now += 5.0

    assert [record.levelno for record in caplog.records if "ended by itself" in record.message] == [logging.WARNING]


async def test_one_that_never_works_is_tried_a_few_times_a_minute(tmp_path):
    scene = Scene(tmp_path, "--fails")
    for _ in range(63):
        scene.follow_until(1, lambda: not children(), "its end")
        scene.now += 1.0

    assert len(scene.diary.watched) <= 8


async def test_the_end_of_the_watched_process_is_no_failure(scene, watched, caplog):
    scene.follow_until(watched.pid, lambda: scene.diary.watched, "the start")
    watched.kill()
    watched.wait()

    scene.follow_until(os.getpid(), lambda: scene.diary.watched[-1] == os.getpid(), "the next, without a wait")

    assert scene.diary.most_at_once() == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_one_that_does_not_end_when_it_is_told_is_killed(watched):
    now = 0.0
    caffeinate = Caffeinate((sys.executable, "-c", STUBBORN), monotonic=lambda: now)
    caffeinate.follow(watched.pid)
    await asyncio.sleep(1.0)

    caffeinate.follow(None)
    await asyncio.sleep(0.2)
    lives_on = has_stubborn_child()
    now = END_LIMIT_S

    def is_gone() -> bool:
        caffeinate.follow(None)
        return not has_stubborn_child()

    wait_until(is_gone, "its end")
    assert lives_on


async def test_a_program_that_is_gone_is_said_once_and_costs_nothing_else(tmp_path, caplog):
    now = 0.0
    caffeinate = Caffeinate((str(tmp_path / "caffeinate"),), monotonic=lambda: now)

    for _ in range(200):
        caffeinate.follow(1)
        now += 1.0

    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert not caffeinate.is_alive


async def test_without_a_command_nothing_is_started(watched):
    caffeinate = Caffeinate(())

    caffeinate.follow(watched.pid)

    assert not caffeinate.is_alive


async def test_one_that_an_earlier_control_left_is_ended_and_nobody_elses(scene, watched):
    with left_behind(scene.command, watched.pid, os.getpid()) as left:
        wait_until(lambda: len(scene.diary.watched) == 2, "both to live")
        scene.follow_until(watched.pid, lambda: len(scene.diary.watched) == 3, "our own")

        num_ended = await asyncio.to_thread(end_left_over, scene.command, watched.pid)

        assert num_ended == 1
        assert [each.cmdline()[-1] for each in left() if not is_zombie(each)] == [str(os.getpid())]
        assert len(children()) == 1


def test_only_a_mac_is_looked_through_for_it_and_one_that_lacks_it_is_told_once(caplog):
    found = installed_caffeinate(platform="darwin", which=lambda name: f"/usr/bin/{name}")
    lacking = installed_caffeinate(platform="darwin", which=lambda name: None)
    elsewhere = installed_caffeinate(platform="linux", which=lambda name: f"/usr/bin/{name}")

    assert (found, lacking, elsewhere) == (("/usr/bin/caffeinate",), (), ())
    assert [record.message for record in caplog.records] == [
        "the machine can't be kept awake reason=caffeinate is not on the PATH"
    ]
