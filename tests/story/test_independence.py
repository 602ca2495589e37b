"""Any one of the three processes may restart or die without touching the others; and nothing is left after a quit."""

import signal
import sqlite3
import threading
from contextlib import closing, contextmanager

import pytest

from control.identity import live_process
from control.wire import LOAD, QUIT
from tests.story.stack import is_free, wait_until

pytestmark = pytest.mark.story

CHAT = "/chat/completions"


def ask(stack, content: str = "Hello", **more):
    """One answer that is not streamed; asserts that it came."""
    with stack.api() as api:
        answer = api.post(CHAT, json=chat(content, **more))
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat(content: str = "Hello", **more):
    return {"model": "default", "messages": [{"role": "user", "content": content}], "max_tokens": 8} | more


@contextmanager
def streaming(stack, *, max_tokens: int):
    """A stream that has begun to answer; yields the list that its lines go to, which ends with None."""
    lines, begun = [], threading.Event()

    def read():
        with (
            stack.api() as api,
            api.stream("POST", CHAT, json=chat("slowly", stream=True, max_tokens=max_tokens)) as answer,
        ):
            for line in answer.iter_lines():
                lines.append(line)
                if '"content"' in line or '"reasoning' in line:
                    begun.set()
        lines.append(None)
        begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    yield lines
    reader.join(60)
    assert not reader.is_alive()


def test_a_restart_of_control_keeps_the_engine_and_the_next_request_is_served(real_stack):
    real_stack.up()
    engine, control = real_stack.record("engine"), real_stack.leave()
    wait_until(lambda: live_process(control) is None, "control to end")

    real_stack.start_control()

    wait_until(lambda: real_stack.engine_state() == "ready", "the engine to be adopted")
    assert ask(real_stack)["choices"]
    assert real_stack.record("engine") == engine
    assert real_stack.overview().engine.restarts == 0


def test_a_killed_engine_is_reported_restarted_and_the_next_request_is_served(real_stack):
    real_stack.up()
    killed = real_stack.kill("engine")

    wait_until(lambda: real_stack.engine_state() in ("crashed", "loading"), "the crash to be noticed")
    error = real_stack.overview().engine.error
    answer = ask(real_stack)

    assert f"pid {killed.pid}" in error and "SIGKILL" in error
    assert answer["choices"]
    assert real_stack.record("engine").pid != killed.pid
    assert real_stack.overview().engine.restarts == 1


def test_up_after_control_and_console_were_killed_finds_the_same_engine(real_stack):
    real_stack.up()
    engine = real_stack.record("engine")
    killed = [real_stack.kill("control"), real_stack.kill("webui")]
    wait_until(lambda: not any(live_process(each) for each in killed), "both to be gone")

    answer = real_stack.up()

    assert "key" not in answer
    assert real_stack.record("engine") == engine
    assert ask(real_stack)["choices"]


def test_a_stream_goes_on_when_the_console_is_killed(stack):
    stack.up()

    with streaming(stack, max_tokens=100) as lines:
        is_under_way = None not in lines
        stack.kill("webui")
    up_again = stack.up()

    assert is_under_way
    assert "data: [DONE]" in lines
    assert up_again["console"]


def test_a_restart_of_control_tells_the_streams_that_it_cuts(stack):
    stack.up()

    with streaming(stack, max_tokens=100_000) as lines:
        control = stack.leave()
    wait_until(lambda: live_process(control) is None, "control to end")

    assert any("gateway_restarts" in line for line in lines if line)
    assert stack.is_alive("engine")


def test_sigterm_to_control_ends_everything_and_tells_the_streams_that_it_cuts(stack):
    stack.up()
    records = [stack.record(name) for name in ("engine", "control", "webui")]

    with streaming(stack, max_tokens=100_000) as lines:
        stack.kill("control", signal.SIGTERM)
    wait_until(lambda: not any(live_process(record) for record in records), "everything to end")

    assert any('"quitting"' in line for line in lines if line)
    assert list((stack.home.root / "run").glob("*.json")) == []
    assert all(is_free(port) for port in stack.ports.values())


def test_quit_leaves_no_process_and_no_port(stack):
    stack.up()
    records = [stack.record(name) for name in ("engine", "control", "webui")]

    done = stack.quit()

    assert (done.returncode, done.stderr) == (0, "")
    assert not any(live_process(record) for record in records)
    assert all(is_free(port) for port in stack.ports.values())
    assert list((stack.home.root / "run").glob("*.json")) == []
    assert stack.quit().returncode == 3


def test_quit_ends_an_orphan_engine_when_control_is_dead(stack):
    stack.up()
    engine, control = stack.record("engine"), stack.kill("control")
    wait_until(lambda: live_process(control) is None, "control to be gone")

    done = stack.quit()

    assert done.returncode == 0, done.stderr
    assert live_process(engine) is None
    assert all(is_free(port) for port in stack.ports.values())


def test_quit_waits_for_a_running_stream_and_force_cuts_it_with_a_typed_error(stack):
    stack.up()

    with streaming(stack, max_tokens=100_000) as lines:
        done = stack.quit("--force")

    assert done.returncode == 0, done.stderr
    assert any("quitting" in line for line in lines if line)
    assert all(is_free(port) for port in stack.ports.values())


def test_one_quit_waits_for_a_running_stream_says_so_and_leaves_nothing(stack):
    stack.up()

    with streaming(stack, max_tokens=200) as lines:
        is_under_way = None not in lines
        done = stack.quit()

    assert is_under_way
    assert (done.returncode, "data: [DONE]" in lines) == (0, True)
    assert "Waiting for 1 request to finish" in done.stderr and "splash quit --force" in done.stderr
    assert not any(stack.is_alive(name) for name in ("engine", "control", "webui"))
    assert all(is_free(port) for port in stack.ports.values())


def test_an_engine_that_hangs_is_killed_by_a_quit_and_proven_gone(stack):
    stack.up()
    hanging = stack.kill("engine", signal.SIGSTOP)

    done = stack.quit("--force")

    assert done.returncode == 0, done.stderr
    assert live_process(hanging) is None
    assert is_free(stack.ports["engine"])


def test_an_engine_that_was_still_loading_when_control_died_is_adopted_too(real_stack):
    real_stack.up()
    real_stack.splash("unload")
    with real_stack.admin() as admin:
        admin.post(LOAD, json={}).raise_for_status()
    control, engine = real_stack.kill("control"), real_stack.record("engine")
    wait_until(lambda: live_process(control) is None, "control to be gone")

    real_stack.start_control()

    wait_until(lambda: real_stack.engine_state() == "ready", "the engine to be adopted")
    assert real_stack.record("engine").pid == engine.pid


def test_an_engine_that_does_not_answer_when_control_comes_back_is_adopted_when_it_does(stack):
    stack.up()
    engine = stack.kill("engine", signal.SIGSTOP)
    control = stack.kill("control")
    wait_until(lambda: live_process(control) is None, "control to be gone")

    stack.start_control()
    wait_until(lambda: stack.engine_state() == "loading", "the engine to be waited for")
    stack.kill("engine", signal.SIGCONT)

    stack.up()
    assert stack.record("engine").pid == engine.pid
    assert ask(stack)["choices"]


def test_a_database_that_another_program_locks_does_not_end_control(stack):
    stack.up()
    control = stack.record("control")

    with closing(sqlite3.connect(stack.home.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        loaded = stack.splash("load", "demo", "--context", "777")
        wait_until(lambda: "load not remembered" in stack.logs(), "the write to be given up")
        other.execute("ROLLBACK")

    assert loaded.returncode == 0, loaded.stderr
    assert stack.record("control") == control and live_process(control) is not None
    assert ask(stack)["choices"]


def test_records_that_are_lost_are_written_again_and_quit_finds_everything(stack):
    stack.up()
    engine, control = stack.record("engine"), stack.record("control")
    stack.home.record_file("control").unlink()
    stack.home.record_file("engine").write_text("{")

    done = stack.quit()

    assert (done.returncode, done.stderr) == (0, "")
    assert (live_process(engine), live_process(control)) == (None, None)
    assert all(is_free(port) for port in stack.ports.values())


def test_up_during_a_quit_waits_for_its_end_and_starts_anew(stack):
    stack.up()
    control = stack.record("control")

    with streaming(stack, max_tokens=100):
        with stack.admin() as admin:
            admin.post(QUIT, json={"force": False}).raise_for_status()
        stack.up()

    assert live_process(control) is None
    assert stack.record("control").pid != control.pid
    assert ask(stack)["choices"]
