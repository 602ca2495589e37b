"""The wall clock is set by hours while Splash runs: nobody takes anybody for gone, and nothing ends or hangs."""

import pytest

from control.identity import live_process
from tests.story.fault_run import Asking, Page
from tests.story.meddled_stack import MeddledStack
from tests.story.stack import fake_engine, is_free, wait_until

pytestmark = pytest.mark.story

NAMES = ("engine", "control", "webui")


@pytest.fixture
def stack(tmp_path, slow_script):
    stack = MeddledStack(tmp_path / "home", engine_command=fake_engine(slow_script), told=tmp_path / "told")
    stack.set_clock_off(0)
    yield stack
    stack.set_clock_off(0)
    stack.clean_up()


@pytest.mark.parametrize("hours", [-5, 5])
def test_streams_processes_and_commands_go_on_when_the_clock_is_set(stack, hours):
    page = Page(stack.up()["login"])
    records = [stack.record(name) for name in NAMES]
    stream = Asking(stack, "slowly", max_tokens=150)
    wait_until(lambda: stream.lines, "the stream to begin")

    stack.set_clock_off(hours * 3600)
    wait_until(lambda: "wall clock was set" in stack.logs(), "control to see it")
    status = stack.status()
    wait_until(lambda: stream.end, "the stream's end")
    request = Asking(stack, "hello", max_tokens=4)
    wait_until(lambda: request.end, "the request's end")

    assert {entry["identity"] for entry in status.values()} == {"ours"}
    assert status["engine"]["state"] == "ready"
    assert (stream.end, len(stream.lines), request.end) == ("done", 150, "done")
    # A session that seems to be of the future is none: a new link opens the console again.
    assert page.state() == ("ready" if hours > 0 else "no state")
    assert Page(stack.up()["login"]).state() == "ready"
    assert [stack.record(name) for name in NAMES] == records


@pytest.mark.parametrize("hours", [-5, 5])
def test_after_the_clock_was_set_control_is_replaced_and_everything_ends(stack, hours):
    stack.up()
    engine = stack.record("engine")
    stack.set_clock_off(hours * 3600)

    restarted = stack.splash("restart", "control", "--engine-command", stack.engine_command)
    link = stack.up()["login"]
    shown = Page(link).state()
    kept = stack.record("engine")
    records = [stack.record(name) for name in NAMES]
    done = stack.quit()

    assert (restarted.returncode, done.returncode, done.stderr) == (0, 0, ""), restarted.stderr
    assert (kept, shown) == (engine, "ready")
    assert not any(live_process(record) for record in records)
    assert all(is_free(port) for port in stack.ports.values())
