"""What other machines may reach when control is dead, leaves or can't be started: one command closes it."""

import json
import socket
import threading
from types import SimpleNamespace

import httpx
import pytest

from control.identity import live_process
from control.lan import local_ipv4
from tests.story.conftest import SLOWLY
from tests.story.stack import Stack, fake_engine, wait_until
from tests.story.test_lan import PASSWORD, can_connect, lan, set_password

pytestmark = [
    pytest.mark.story,
    pytest.mark.skipif(not local_ipv4(), reason="this machine has no address but loopback"),
]


@pytest.fixture(scope="module")
def address():
    return local_ipv4()[0]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A Splash in LAN mode with a password."""
    folder = tmp_path_factory.mktemp("opened")
    (folder / "script.json").write_text(json.dumps([SLOWLY]))
    stack = Stack(folder / "home", engine_command=fake_engine(folder / "script.json"))
    try:
        assert set_password_first(stack).returncode == 0
        lan(stack, "on")
        stack.up()
        yield stack
    finally:
        stack.clean_up()


def set_password_first(stack):
    stack.home.root.parent.mkdir(exist_ok=True)
    return set_password(stack)


def kill_control(stack) -> None:
    record = stack.kill("control")
    wait_until(lambda: live_process(record) is None, "control to be gone")


def stream(stack) -> threading.Thread:
    """A request that runs for some seconds, and has begun."""
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
    return reader


def test_the_console_is_closed_and_its_sessions_end_while_control_is_dead_and_up_leaves_it_so(opened, address):
    port = opened.ports["console"]
    origin = f"http://{address}:{port}"
    with httpx.Client(base_url=origin, trust_env=False, headers={"Origin": origin}) as browser:
        entered = browser.post("/login", data={"password": PASSWORD})
        kill_control(opened)

        changed = set_password(opened, "another one entirely")
        after_change = browser.get("/").status_code
    off = opened.splash("lan", "off")
    closed = not can_connect(address, port)
    looked = opened.splash("lan", "status", "--json")
    opened.up()

    assert entered.status_code == 303
    assert (changed.returncode, after_change) == (0, 401), changed.stderr
    assert (off.returncode, closed) == (0, True), off.stderr
    assert json.loads(looked.stdout)["restart"] == []
    assert [can_connect(address, port), can_connect("127.0.0.1", port)] == [False, True]


def test_what_was_left_open_is_told_without_control_and_up_closes_it(opened, address):
    api, console = opened.ports["api"], opened.ports["console"]
    lan(opened, "on")
    kill_control(opened)
    # As an older version left it: the file alone was changed.
    (opened.home.root / "splash.toml").write_text("SPLASH_LAN = false\n")

    status, told = opened.splash("status"), opened.splash("lan", "status")
    doctor = json.loads(opened.splash("doctor", "--json").stdout)
    was_open = can_connect(address, console)
    opened.up()

    lines = " ".join(status.stdout.split())
    assert "webui listens at 0.0.0.0, and the settings say 127.0.0.1; `splash up` puts that right" in lines
    assert "Still listening as before: webui" in told.stdout
    [finding] = [each for each in doctor["findings"] if each["check"] == "open_address"]
    assert (finding["level"], "splash up" in finding["mend"], was_open) == ("wrong", True, True)
    assert [can_connect(address, port) for port in (api, console)] == [False, False]


def test_a_lan_mode_that_could_not_be_started_after_a_wait_is_taken_back(opened, address):
    lan(opened, "off")
    engine, port = opened.record("engine"), opened.ports["api"]
    reader = stream(opened)
    seen = SimpleNamespace(done=None)

    def turn_on() -> None:
        seen.done = opened.splash("lan", "on", "--engine-command", opened.engine_command)

    command = threading.Thread(target=turn_on)
    command.start()
    wait_until(lambda: opened.overview().leaving, "control to leave")
    with socket.socket() as somebody:
        somebody.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        somebody.bind((address, port))
        somebody.listen()
        command.join(90)
    reader.join(60)

    assert seen.done.returncode == 5
    assert "is taken by pid" in seen.done.stderr
    assert "LAN is off again, and Splash serves this machine as before." in seen.done.stderr
    assert (opened.home.root / "splash.toml").read_text() == "SPLASH_LAN = false\n"
    assert can_connect("127.0.0.1", port)
    assert opened.record("engine") == engine
    with opened.api() as api:
        assert api.get("/models").status_code == 200


def test_a_restart_that_waits_does_not_open_again_what_was_closed_meanwhile(opened, address):
    lan(opened, "on")
    reader = stream(opened)
    seen = SimpleNamespace(done=None)

    def restart() -> None:
        seen.done = opened.splash("restart", "--engine-command", opened.engine_command)

    command = threading.Thread(target=restart)
    command.start()
    wait_until(lambda: opened.overview().leaving, "control to leave")
    off = opened.splash("lan", "off", "--engine-command", opened.engine_command)
    command.join(90)
    reader.join(60)

    assert (off.returncode, seen.done.returncode) == (0, 0), f"{off.stderr}\n{seen.done.stderr}"
    # Within 2 s it says for whom it waits.
    assert "which starts or restarts Splash" in off.stderr
    assert [can_connect(address, opened.ports[name]) for name in ("api", "console")] == [False, False]
    assert opened.splash("doctor", "--json").returncode == 0
