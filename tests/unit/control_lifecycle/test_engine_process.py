"""One engine process, with little real programs in its place: spawn, exits and their reasons, adoption, stop."""

import os
import shlex
import signal
import stat
import sys

import msgspec
import psutil
import pytest

from control.command_errors import HomeUnusable
from control.engine_process import LAST_LINE_LENGTH, NUM_LAST_LINES, Adopted, EngineProcess
from control.errors import EngineLingers
from control.home import Home
from control.identity import live_process
from control.lifecycle import Wanted
from engine.wire import Launch
from tests.story.stack import free_ports, wait_until


@pytest.fixture
def home(tmp_path):
    before = os.umask(0o022)
    home = Home(tmp_path / "home")
    home.create()
    yield home
    os.umask(before)


def program(text: str) -> list[str]:
    return shlex.split(shlex.join([sys.executable, "-c", text]))


def process(home, text: str) -> EngineProcess:
    [port] = free_ports(1)
    return EngineProcess(home, port=port, command=program(text))


def end_of(engine: EngineProcess):
    return wait_until(engine.poll, "the engine to end")


def test_the_launch_file_is_private_and_says_what_is_wanted(home):
    engine = process(home, "pass")

    engine.spawn(Wanted("demo", context=100, budget_bytes=200, kv_bits=8, max_gap_ms=250, decode_share=0.25))

    launch = home.read_launch()
    assert (launch.model, launch.context, launch.budget_bytes) == ("demo", 100, 200)
    assert (launch.kv_bits, launch.max_gap_ms, launch.decode_share) == (8, 250, 0.25)
    assert launch.nonce == engine.record.nonce
    assert stat.S_IMODE(home.launch_file.stat().st_mode) == 0o600
    end_of(engine)


def test_each_launch_has_a_secret_and_a_nonce_of_its_own(home):
    engine, launches = process(home, "pass"), []
    for _ in range(2):
        engine.spawn(Wanted("demo"))
        launches.append(home.read_launch())
        end_of(engine)

    assert launches[0].secret != launches[1].secret
    assert launches[0].nonce != launches[1].nonce


def test_the_engine_leads_a_session_of_its_own_and_its_output_goes_to_the_log(home):
    engine = process(home, "import os; print(os.getsid(0) == os.getpid(), os.getcwd(), flush=True)")

    engine.spawn(Wanted("demo"))
    end_of(engine)

    assert home.log_file("engine").read_text() == f"True {home.root}\n"


@pytest.mark.parametrize(
    ("text", "is_final", "reason"),
    [
        ("import sys; sys.stderr.write('It is too big.\\n'); sys.exit(4)", True, "It is too big."),
        ("import sys; sys.stderr.write('Port taken by x.\\n'); sys.exit(5)", True, "Port taken by x."),
        ("import sys; sys.exit(4)", True, "The engine did not start: the model is refused."),
        ("import sys; sys.exit(0)", False, "ended by itself"),
        ("raise ValueError('broken')", False, "ended with exit code 1: ValueError: broken"),
        ("import sys; sys.stderr.write('Metal\\n'); sys.exit(70)", False, "ended after an error of the device: Metal"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", False, "was killed by SIGKILL"),
    ],
)
def test_the_reason_of_an_end_is_a_sentence(home, text, is_final, reason):
    engine = process(home, text)
    engine.spawn(Wanted("demo"))

    end = end_of(engine)

    assert end.is_final is is_final
    assert reason in end.reason
    assert not engine.is_running


def test_the_end_comes_with_the_last_lines_of_what_was_said(home):
    engine = process(home, "import sys; [print(n, file=sys.stderr) for n in range(9)]; print('x' * 999); sys.exit(1)")
    engine.spawn(Wanted("demo"))

    lines = end_of(engine).last_lines

    assert len(lines) == NUM_LAST_LINES and "8" in lines
    assert max(map(len, lines)) == LAST_LINE_LENGTH


async def test_a_child_that_is_stuck_is_killed_at_once(home):
    engine = process(home, "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    engine.spawn(Wanted("demo"))

    ending = await engine.stop(is_forced=lambda: False, is_stuck=True)

    assert (ending.how, ending.is_proven, engine.is_running) == ("SIGKILL", True, False)


async def test_a_stuck_process_that_does_not_look_like_ours_is_not_killed(home, listen):
    listener = listen()
    engine = process(home, "")
    engine.record = listener.with_(nonce="of another launch")

    with pytest.raises(EngineLingers, match="does not look like our engine"):
        await engine.stop(is_forced=lambda: True, is_stuck=True)

    assert listener.child.poll() is None


def test_what_an_earlier_engine_said_is_not_the_reason_of_this_one(home):
    home.log_file("engine").write_text("An old sentence.\n")
    engine = process(home, "import sys; sys.exit(4)")
    engine.spawn(Wanted("demo"))

    assert "old sentence" not in end_of(engine).reason


def test_a_log_that_has_grown_is_turned_over_at_the_next_start(home, monkeypatch):
    monkeypatch.setattr("control.log_files.TURN_OVER_BYTES", 10)
    home.log_file("engine").write_text("x" * 11)
    engine = process(home, "print('new')")

    engine.spawn(Wanted("demo"))
    end_of(engine)

    assert home.log_file("engine").read_text() == "new\n"
    assert home.log_file("engine").with_name("engine.log.1").read_text() == "x" * 11


def test_the_engine_is_on_record_from_its_first_moment(home):
    engine = process(home, "import time; time.sleep(600)")

    engine.spawn(Wanted("demo"))

    record = home.read_record("engine")
    engine._child.kill()
    end_of(engine)
    assert record.pid and record.nonce == home.read_launch().nonce
    assert home.read_record("engine") is None


async def test_an_engine_that_never_says_who_it_is_can_still_be_ended(home):
    engine = process(home, "import time; time.sleep(600)")
    engine.spawn(Wanted("demo"))
    record = engine.record

    is_introduced = await engine.introduce()
    ending = await engine.stop(is_forced=lambda: True)

    assert (is_introduced, ending.is_proven, engine.is_running) == (False, True, False)
    assert live_process(record) is None


def launch_of(record, nonce: str | None = None) -> Launch:
    return Launch(secret="s", nonce=nonce or record.nonce, port=record.port, model="big", context=9)


async def test_an_adopted_engine_is_known_with_the_settings_that_it_runs_with(home, listen):
    listener = listen()
    home.write_record(listener.record)
    settings = {"context": 9, "budget_bytes": 8, "kv_bits": 4, "max_gap_ms": 250.0, "decode_share": 0.25}
    home.write_launch(msgspec.structs.replace(launch_of(listener.record), **settings))

    adopted = await process(home, "pass").adopt()

    assert adopted == Adopted(Wanted("big", **settings))


def test_what_nobody_asks_for_is_what_a_launch_has_by_default():
    launch, wanted = Launch(secret="", nonce="", port=0, model="demo"), Wanted("demo")

    names = ("context", "budget_bytes", "kv_bits", "max_gap_ms", "decode_share")

    assert {name: getattr(launch, name) for name in names} == {name: getattr(wanted, name) for name in names}


async def test_a_live_engine_is_adopted_and_its_end_is_noticed_without_being_its_parent(home, listen):
    listener = listen()
    home.write_record(listener.record)
    home.write_launch(launch_of(listener.record))
    engine = process(home, "pass")

    adopted = await engine.adopt()
    before = engine.poll()
    listener.child.kill()
    listener.child.wait()

    assert (adopted, before) == (Adopted(Wanted("big", 9)), None)
    assert f"pid {listener.record.pid}" in end_of(engine).reason
    assert home.read_record("engine") is None


@pytest.mark.parametrize("change", [{"nonce": "another"}, {"port": 1}])
async def test_an_engine_that_is_not_ours_is_neither_adopted_nor_signalled_nor_started_beside(home, listen, change):
    listener = listen()
    home.write_record(listener.with_(**change))
    engine = process(home, "pass")

    with pytest.raises(EngineLingers, match=f"pid {listener.record.pid}"):
        await engine.adopt()
    with pytest.raises(EngineLingers):
        engine.spawn(Wanted("demo"))

    assert listener.child.poll() is None
    assert home.read_record("engine") is not None


async def test_an_engine_that_is_late_is_taken_by_its_command_and_gets_its_secret_when_it_answers(home, listen):
    listener = listen("polite", "the nonce", "--home", str(home.root))
    home.write_record(listener.record)
    home.write_launch(launch_of(listener.record))
    os.kill(listener.record.pid, signal.SIGSTOP)
    engine = process(home, "pass")

    adopted = await engine.adopt()
    early = (engine.client, await engine.introduce())
    os.kill(listener.record.pid, signal.SIGCONT)
    is_introduced = await engine.introduce()

    assert adopted == Adopted(Wanted("big", 9))
    assert early == (None, False)
    assert (is_introduced, engine.client is not None) == (True, True)
    await engine.aclose()


async def test_an_engine_whose_secret_is_lost_is_taken_to_be_ended_and_never_asked(home, listen):
    listener = listen()
    home.write_record(listener.record)
    home.write_launch(launch_of(listener.record, nonce="of another launch"))
    engine = process(home, "pass")

    adopted = await engine.adopt()
    is_introduced = await engine.introduce()
    ending = await engine.stop(is_forced=lambda: True)

    assert (adopted, is_introduced, engine.is_overdue) == (Adopted(None), False, False)
    assert ending.is_proven
    assert listener.child.wait() == -signal.SIGTERM


async def test_a_stale_record_is_removed_and_nothing_is_adopted(home, listen):
    listener = listen()
    home.write_record(msgspec.structs.replace(listener.record, created_at_s=1.0))

    assert await process(home, "pass").adopt() is None
    assert home.read_record("engine") is None
    assert listener.child.poll() is None


def test_an_engine_that_cannot_be_put_on_record_is_not_left_running(home, monkeypatch):
    # It has become a folder since it was tried.
    monkeypatch.setattr(EngineProcess, "require_startable", lambda _: None)
    home.record_file("engine").mkdir()
    engine = process(home, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")

    with pytest.raises(HomeUnusable, match=r"engine\.json can't be written"):
        engine.spawn(Wanted("demo"))

    assert not engine.is_running
    assert [path.name for path in (home.root / "run").iterdir()] == ["engine.json"]
    said = home.log_file("engine").read_text()
    assert not said or not psutil.pid_exists(int(said))
