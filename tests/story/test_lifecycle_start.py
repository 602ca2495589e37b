"""Starting with something wrong: one sentence, an exit code, and nothing half-started."""

import json
import shlex
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import psutil
import pytest

from control.home import PROCESS_NAMES
from tests.story.stack import PORT_KEYS, Stack, wait_until

pytestmark = pytest.mark.story


def nothing_runs(stack) -> bool:
    return not any(stack.is_alive(name) for name in PROCESS_NAMES)


@pytest.mark.parametrize("command", [("up", "--no-open"), ("status",), ("quit",), ("keys", "list")])
def test_a_malformed_file_of_settings_stops_every_command_with_one_sentence(stack, command):
    stack.home.root.mkdir()
    (stack.home.root / "splash.toml").write_text("SPLASH_API_PORT = = 1")

    done = stack.splash(*command)

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "splash.toml is not valid TOML" in done.stderr
    assert nothing_runs(stack)


def test_an_unknown_variable_stops_the_start_with_one_sentence(stack):
    done = stack.splash("up", "--no-open", SPLASH_APIPORT="1234")

    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [line for line in [done.stderr.strip()] if "SPLASH_APIPORT" in line]
    assert nothing_runs(stack)


def test_control_itself_refuses_an_unknown_variable_too(stack):
    stack.home.create()
    (stack.home.root / "splash.toml").write_text("SPLASH_COLOUR = 'blue'")

    control = stack.start_control()

    assert control.wait(20) == 2
    assert stack.logs().strip().splitlines()[-1].startswith(str(stack.home.root))
    assert "SPLASH_COLOUR" in stack.logs()


@pytest.mark.parametrize("port", ["api", "admin", "console", "engine"])
def test_a_taken_port_is_refused_with_the_pid_and_the_command_of_its_holder(stack, port):
    with socket.create_server(("127.0.0.1", stack.ports[port])):
        done = stack.splash("up", "--no-open")

    me = psutil.Process()
    assert done.returncode == 5
    assert str(stack.ports[port]) in done.stderr and f"pid {me.pid}" in done.stderr
    assert me.cmdline()[0] in done.stderr
    assert PORT_KEYS[port] in done.stderr
    assert processes_of(stack) == []
    assert not stack.home.root.exists()


def test_an_engine_port_that_is_taken_later_fails_the_load_and_names_the_holder(stack):
    stack.up()
    stack.splash("unload")

    with socket.create_server(("127.0.0.1", stack.ports["engine"])):
        done = stack.splash("load", "demo")

    assert done.returncode == 1
    assert f"pid {psutil.Process().pid}" in done.stderr
    assert stack.overview().engine.state == "failed"
    assert stack.is_alive("webui")


def test_an_engine_that_dies_five_times_fails_tells_those_who_wait_and_can_be_loaded_again(stack, tmp_path):
    is_mended = tmp_path / "mended"
    dying = f'[ -e {is_mended} ] && exec {stack.engine_command} "$@"; echo "Traceback:" >&2; echo "no luck" >&2; exit 1'
    stack.engine_command = shlex.join(["sh", "-c", dying, "engine"])
    with ThreadPoolExecutor(2) as beside:
        began_at = time.monotonic()
        starting = beside.submit(
            stack.splash, "up", "--no-open", "--engine-command", stack.engine_command, timeout_s=120
        )
        wait_until(stack.home.admin_secret_file.exists, "control to start")
        wait_until(lambda: stack.engine_state() == "crashed", "the first death")
        stack.key = json.loads(stack.splash("keys", "new", "waits", "--json").stdout)["key"]
        asking = beside.submit(ask, stack)
        started, answer = starting.result(), asking.result()
    took_s = time.monotonic() - began_at
    failed = stack.overview().engine

    is_mended.touch()
    loaded = stack.splash("load", "demo")

    assert took_s >= 1 + 2 + 4 + 8
    assert (failed.state, failed.restarts) == ("failed", 4)
    assert failed.error.splitlines()[0].startswith("The engine ended 5 times in a row and is not started again.")
    assert failed.error.splitlines()[-2:] == ["Traceback:", "no luck"]
    assert started.returncode == 1 and "no luck" in started.stderr
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_model")
    assert loaded.returncode == 0, loaded.stderr
    assert ask(stack).status_code == 200


def ask(stack):
    body = {"model": "default", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
    with stack.api() as api:
        return api.post("/chat/completions", json=body)


def test_a_second_control_of_the_same_home_is_refused(stack):
    stack.up()

    second = stack.start_control()

    assert second.wait(20) == 5
    assert f"pid {stack.record('control').pid}" in stack.logs()
    assert stack.engine_state() == "ready"


def test_up_twice_reuses_everything_and_shows_no_second_key(stack):
    first = stack.up()
    records = [stack.record(name) for name in PROCESS_NAMES]

    second = stack.up()

    assert set(first) == {"api", "console", "login", "key", "model"}
    assert set(second) == {"api", "console", "login", "model"}
    assert [stack.record(name) for name in PROCESS_NAMES] == records
    assert second["login"] != first["login"]


def test_status_tells_the_pids_ports_states_and_the_model(stack):
    stack.up()

    status = stack.status()

    assert status["engine"]["state"] == "ready"
    assert status["engine"]["model"]
    assert status["control"]["state"] == status["webui"]["state"] == "running"
    for name, port in (("control", "api"), ("webui", "console"), ("engine", "engine")):
        assert status[name]["pid"] == stack.record(name).pid
        assert status[name]["port"] == stack.ports[port]
        assert status[name]["memory_bytes"] > 0


def test_status_when_nothing_runs_says_so_and_exits_with_three(stack):
    done = stack.splash("status", "--json")

    assert done.returncode == 3
    assert {name: entry["state"] for name, entry in json.loads(done.stdout).items()} == {
        "control": "stopped",
        "webui": "stopped",
        "engine": "stopped",
    }


def test_a_record_with_a_reused_pid_is_shown_as_stale_and_its_process_is_left_alone(stack):
    stack.home.create()
    me = psutil.Process()
    stack.up()
    record = msgspec.structs.replace(stack.record("engine"), pid=me.pid, port=1)
    assert stack.quit().returncode == 0
    stack.home.write_record(record)

    status, quit_answer = stack.splash("status", "--json"), stack.quit()

    assert json.loads(status.stdout)["engine"]["state"] == "stale"
    assert quit_answer.returncode == 3
    assert me.is_running()


def test_two_homes_on_one_machine_do_not_touch_each_other(stack, tmp_path):
    other = Stack(tmp_path / "other", engine_command=stack.engine_command)
    try:
        stack.up()
        other.up()

        assert stack.quit().returncode == 0

        assert other.status()["engine"]["state"] == "ready"
        assert nothing_runs(stack)
    finally:
        other.clean_up()


def test_a_model_that_is_refused_is_one_sentence_and_the_console_stays_up(real_stack):
    done = real_stack.splash("up", "/no/such/folder", "--no-open")

    assert done.returncode == 1
    assert "/no/such/folder" in done.stderr.splitlines()[0]
    assert real_stack.overview().engine.state == "failed"
    assert not real_stack.is_alive("engine")
    assert real_stack.is_alive("webui")


def test_a_switch_to_a_model_that_cannot_be_loaded_leaves_the_old_one_running(real_stack):
    real_stack.up()
    engine = real_stack.record("engine")

    done = real_stack.splash("load", "/no/such/folder")

    assert done.returncode == 1
    assert "/no/such/folder" in done.stderr
    assert real_stack.record("engine") == engine
    assert real_stack.engine_state() == "ready"


def test_the_last_model_and_its_context_come_back_with_the_next_up(real_stack):
    real_stack.up("demo", "--context", "2048")
    assert real_stack.quit().returncode == 0

    real_stack.up()

    model = real_stack.overview().engine.model
    assert model.maximum_context_tokens == 2048


def test_unload_keeps_the_gateway_up_and_requests_wait_for_the_next_model(stack):
    stack.up()

    assert stack.splash("unload").returncode == 0

    wait_until(lambda: not stack.is_alive("engine"), "the engine to be gone")
    assert stack.status()["engine"]["state"] == "unloaded"
    with (
        stack.api() as api,
        api.stream(
            "POST",
            "/chat/completions",
            json={"model": "default", "stream": True, "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]},
        ) as held,
    ):
        assert held.status_code == 200
        wait_until(lambda: stack.overview().waiting, "the request to be held")
        assert stack.overview().waiting[0].phase == "held"
        assert stack.splash("load", "demo").returncode == 0
        assert "data: [DONE]" in list(held.iter_lines())


def processes_of(stack) -> list[str]:
    """Also those that left no record."""
    home = str(stack.home.root)
    found = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [" ".join(words) for words in found if home in words]
