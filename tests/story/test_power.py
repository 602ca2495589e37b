"""A whole control with a stand-in for caffeinate: when one lives, what it watches, when it goes; and a standstill."""

import os
import shlex
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress

import httpx
import psutil
import pytest

from control.identity import live_process
from tests.story.meddled_stack import MeddledStack
from tests.story.stack import ROOT, fake_engine, wait_until
from tests.unit.control_power.test_caffeinate import Diary

pytestmark = pytest.mark.story

FAKE = ROOT / "tests" / "fakes" / "caffeinate.py"
# Control looks once a second, and this machine is slow.
SOON_S = 60.0
# Half a minute and 30 s in the product, which the units hold it to; here as short as can be told from none.
LINGER_S = 4.0
SILENCE_S = 7.0
# Control tells a standstill by a pause of more than 15 s.
STANDSTILL_S = 17.0


class Awake:
    """A stack whose control has the stand-in, a loaded model, and a key."""

    def __init__(self, stack, folder) -> None:
        self.stack = stack
        self.diary = Diary(folder / "diary")
        self.command = [sys.executable, str(FAKE), str(self.diary.file)]

    def start(self) -> None:
        """Control alone."""
        words = ["--engine-command", self.stack.engine_command, "--caffeinate-command", shlex.join(self.command)]
        self.stack.start("control", "--manager", "detached", *words)
        wait_until(lambda: self.stack.is_alive("control"), "control's record", SOON_S)
        wait_until(self.stack.home.admin_secret_file.exists, "the admin secret", SOON_S)
        wait_until(lambda: self.stack.engine_state() is not None, "control to answer", SOON_S)

    def load(self) -> None:
        with self.stack.admin() as admin:
            assert admin.post("/engine/load", json={"model": "demo"}).status_code == 202
            self.stack.key = admin.post("/keys", json={"name": "test"}).json()["key"]
        wait_until(lambda: self.stack.engine_state() == "ready", "the model", SOON_S)

    def keep_awake(self, mode: str) -> None:
        with self.stack.admin() as admin:
            assert admin.post("/settings/keep-awake", json={"keep_awake": mode}).status_code == 200

    @property
    def control_pid(self) -> int:
        return self.stack.record("control").pid

    def alive(self) -> list[list[str]]:
        """The arguments of each that lives now, whoever started it."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = process.info["cmdline"] or []
            if process.info["status"] != psutil.STATUS_ZOMBIE and words[: len(self.command)] == self.command:
                found.append(words[len(self.command) :])
        return found

    def watches_control(self) -> bool:
        return self.alive() == [["-i", "-w", str(self.control_pid)]]

    @contextmanager
    def asking(self):
        """A request that runs until the end of the block."""
        over, first = threading.Event(), threading.Event()

        def ask() -> None:
            body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "slowly"}]}
            # Control may be killed in the middle.
            with (
                suppress(httpx.HTTPError),
                self.stack.api() as api,
                api.stream("POST", "/chat/completions", json=body) as answer,
            ):
                for _ in answer.iter_lines():
                    first.set()
                    if over.is_set():
                        return

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            assert first.wait(SOON_S)
            yield
        finally:
            over.set()
            thread.join(SOON_S)


@pytest.fixture
def awake(tmp_path, slow_script):
    limits = {"linger": LINGER_S, "silence": SILENCE_S}
    stack = MeddledStack(tmp_path / "home", engine_command=fake_engine(slow_script), told=tmp_path / "told", **limits)
    stack.home.create()
    awake = Awake(stack, tmp_path)
    awake.start()
    awake.load()
    yield awake
    stack.clean_up()
    wait_until(lambda: not awake.alive(), "no stand-in to be left", SOON_S)


def power(awake):
    return awake.stack.overview().power


def test_one_lives_while_a_request_runs_and_lingers_after_the_last_for_the_agents_next_turn(awake):
    before = awake.alive()
    with awake.asking():
        wait_until(awake.watches_control, "one that watches control", SOON_S)
        during = power(awake)
    with awake.asking():  # the agent's next turn
        assert awake.watches_control()

    ended_at = time.monotonic()
    wait_until(lambda: not awake.alive(), "its end", LINGER_S + SOON_S)

    assert before == []
    assert (during.awake_reason, during.is_kept_awake) == ("requests", True)
    assert time.monotonic() - ended_at >= LINGER_S - 1
    assert awake.diary.watched == [awake.control_pid]
    assert power(awake).awake_reason is None


def test_never_is_never_until_another_is_chosen(awake):
    awake.keep_awake("never")
    with awake.asking():
        time.sleep(4)
        never = awake.alive()
        awake.keep_awake("busy")
        wait_until(awake.watches_control, "one that watches control", SOON_S)
        awake.keep_awake("never")
        wait_until(lambda: not awake.alive(), "its end", SOON_S)

    assert never == []


def test_loaded_is_as_long_as_the_engine_lives(awake):
    awake.keep_awake("loaded")
    wait_until(awake.watches_control, "one that watches control", SOON_S)

    with awake.stack.admin() as admin:
        admin.post("/engine/unload", json={})

    wait_until(lambda: not awake.alive(), "its end", SOON_S)


def test_one_that_dies_while_requests_run_is_replaced(awake):
    with awake.asking():
        wait_until(awake.watches_control, "the first", SOON_S)
        wait_until(lambda: len(awake.diary.lines) == 1, "its entry", SOON_S)
        os.kill(int(awake.diary.lines[0][1]), signal.SIGKILL)

        wait_until(lambda: len(awake.diary.watched) == 2 and awake.watches_control(), "the second", SOON_S)


def test_when_splash_quits_it_is_gone_before_control_is(awake):
    control = awake.stack.record("control")
    with awake.asking():
        wait_until(awake.watches_control, "one that watches control", SOON_S)

        with awake.stack.admin() as admin:
            assert admin.post("/quit", json={"force": True}).status_code == 202
        wait_until(lambda: live_process(control) is None, "control to end", SOON_S)
        left = awake.alive()

    assert left == []


def test_when_control_is_killed_it_ends_by_itself_while_the_engine_lives_on(awake):
    with awake.asking():
        wait_until(awake.watches_control, "one that watches control", SOON_S)
        awake.stack.kill("control")

        wait_until(lambda: not awake.alive(), "its end", SOON_S)

    assert awake.stack.is_alive("engine")


def test_when_everything_stood_still_the_same_engine_goes_on_with_the_same_request(awake):
    engine, control = awake.stack.record("engine"), awake.stack.record("control")
    with awake.asking():
        # Silent before and after, together for longer than it may be, if its time did not begin anew.
        os.kill(engine.pid, signal.SIGSTOP)
        time.sleep(SILENCE_S - 2)
        os.kill(control.pid, signal.SIGSTOP)
        time.sleep(STANDSTILL_S)
        os.kill(control.pid, signal.SIGCONT)
        time.sleep(SILENCE_S - 2)
        os.kill(engine.pid, signal.SIGCONT)
        wait_until(lambda: (awake.stack.overview().engine.status_age_s or 99) < 3, "a fresh status", SOON_S)
        now = awake.stack.overview()

    assert "control stood still seconds=" in awake.stack.home.log_file("control").read_text()
    assert (awake.stack.record("engine").pid, now.engine.restarts, now.engine.state) == (engine.pid, 0, "ready")
    assert sum(slot is not None for slot in now.slots) == 1
    assert now.power.sleeps == 0
