"""`splash restart` on real processes: what is named comes back as another process, the rest stays."""

import signal
import subprocess
import threading

import pytest

from control.identity import live_process
from tests.story.stack import SPLASH, wait_until

pytestmark = pytest.mark.story


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_the_engine_is_restarted_with_its_model_and_the_others_stay(stack, force):
    stack.up()
    control, engine, console = (stack.record(name) for name in ("control", "engine", "webui"))

    done = stack.splash("restart", "engine", *force)

    assert done.returncode == 0, done.stderr
    assert live_process(engine) is None
    assert f"engine is pid {stack.record('engine').pid}, with " in done.stdout
    assert (stack.record("control"), stack.record("webui"), stack.engine_state()) == (control, console, "ready")


def test_a_detached_console_is_restarted_detached(stack):
    stack.up()
    control, console = stack.record("control"), stack.record("webui")

    done = stack.splash("restart", "webui")

    assert (done.returncode, done.stderr) == (0, "")
    assert (live_process(console), stack.record("webui").manager) == (None, "detached")
    assert stack.record("control") == control


def test_control_is_replaced_only_when_its_stream_has_ended_and_the_engine_keeps_its_model(stack):
    stack.up()
    control, engine, console = (stack.record(name) for name in ("control", "engine", "webui"))
    lines: list[str] = []
    begun = threading.Event()

    def read() -> None:
        body = {
            "model": "default",
            "max_tokens": 150,
            "stream": True,
            "messages": [{"role": "user", "content": "slowly"}],
        }
        with stack.api() as api, api.stream("POST", "/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    done = stack.splash("restart", "control", "--engine-command", stack.engine_command)
    reader.join(60)

    assert done.returncode == 0, done.stderr
    assert "data: [DONE]" in lines
    assert live_process(control) is None
    assert stack.record("control").pid != control.pid
    assert (stack.record("engine"), stack.record("webui")) == (engine, console)
    assert f"the engine, pid {engine.pid}, went on with" in done.stdout
    wait_until(lambda: stack.engine_state() == "ready", "the adopted engine to serve")
    assert stack.overview().engine.restarts == 0


def test_by_force_a_stream_is_cut_with_the_reason_and_control_is_replaced_at_once(stack):
    stack.up()
    engine = stack.record("engine")
    lines: list[str] = []
    begun = threading.Event()

    def read() -> None:
        body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "slowly"}]}
        with stack.api() as api, api.stream("POST", "/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    done = stack.splash("restart", "control", "--force", "--engine-command", stack.engine_command)
    reader.join(60)

    assert done.returncode == 0, done.stderr
    assert any("gateway_restarts" in line for line in lines)
    assert stack.record("engine") == engine


def test_what_an_interrupted_restart_leaves_behind_is_told_and_brought_back_by_up(stack):
    stack.up()
    control, engine = stack.record("control"), stack.record("engine")
    begun = threading.Event()

    def read() -> None:
        body = {
            "model": "default",
            "max_tokens": 200,
            "stream": True,
            "messages": [{"role": "user", "content": "slowly"}],
        }
        with stack.api() as api, api.stream("POST", "/chat/completions", json=body) as answer:
            for _line in answer.iter_lines():
                begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    command = subprocess.Popen(
        [SPLASH, "restart", "control"], env=stack.environment, cwd=stack.home.root, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: stack.overview().leaving, "control to leave")
    command.send_signal(signal.SIGINT)
    said = command.communicate(timeout=30)[1]
    status, load = stack.splash("status"), stack.splash("load", "demo")
    again = stack.splash("up", "--no-open", "--engine-command", stack.engine_command)
    reader.join(60)

    assert (command.returncode, "`splash up` waits for that and does" in said) == (1, True)
    assert "leaving" in status.stdout and "waits for 1 request" in status.stdout
    assert (load.returncode, "Control leaves" in load.stderr) == (1, True)
    assert again.returncode == 0, again.stderr
    assert "a restart was interrupted" in again.stderr
    assert live_process(control) is None
    assert stack.engine_state() == "ready"
    assert stack.record("engine") == engine


def test_restarts_at_the_same_time_all_succeed_and_so_do_those_who_ask_meanwhile(stack):
    stack.up()
    control, engine = stack.record("control"), stack.record("engine")

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SPLASH, *words],
            env=stack.environment,
            cwd=stack.home.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    hidden = ("--engine-command", stack.engine_command)
    commands = [*(start("restart", "control", *hidden) for _ in range(3)), start("keys"), start("lan", "status")]
    said = [(command.communicate(timeout=90)[0], command.returncode) for command in commands]

    assert [code for _, code in said] == [0] * 5, said
    assert live_process(control) is None
    assert (stack.record("engine"), stack.engine_state()) == (engine, "ready")
