"""LAN mode on real processes: who gets in from another address of this machine, under which name, and with what."""

import http.client
import json
import socket
import subprocess
import threading
from types import SimpleNamespace

import httpx
import pytest

from control.identity import live_process
from control.lan import local_ipv4, machine_label
from tests.story.conftest import SLOWLY
from tests.story.stack import SPLASH, Stack, fake_engine, wait_until

pytestmark = [
    pytest.mark.story,
    pytest.mark.skipif(not local_ipv4(), reason="this machine has no address but loopback"),
]

PASSWORD = "correct horse battery"
LABEL = machine_label()


@pytest.fixture(scope="module")
def address():
    return local_ipv4()[0]


def lan(stack, order: str) -> dict:
    done = stack.splash("lan", order, "--json", "--engine-command", stack.engine_command)
    assert done.returncode == 0, f"{done.stderr}\n{stack.logs()}"
    return json.loads(done.stdout)


def set_password(stack, text: str = PASSWORD, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SPLASH, "password", *options],
        env=stack.environment,
        input=f"{text}\n",
        capture_output=True,
        text=True,
        timeout=60,
    )


def can_connect(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def status_of(address: str, port: int, path: str, host: str, **headers: str) -> int:
    """Of a GET to that address that claims to be for `host`."""
    connection = http.client.HTTPConnection(address, port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def opened(tmp_path_factory, address):
    """A Splash in LAN mode with a password; what was seen before each of the two is kept beside it."""
    folder = tmp_path_factory.mktemp("opened")
    (folder / "script.json").write_text(json.dumps([SLOWLY]))
    stack = Stack(folder / "home", engine_command=fake_engine(folder / "script.json"))
    try:
        stack.up()
        api, console = stack.ports["api"], stack.ports["console"]
        before = can_connect(address, api), can_connect(address, console)
        engine = stack.record("engine")
        report = lan(stack, "on")
        without_password = can_connect(address, api), can_connect(address, console)
        kept = set_password(stack)
        yield SimpleNamespace(
            stack=stack, before=before, report=report, without=without_password, kept=kept, engine=engine
        )
    finally:
        stack.clean_up()


def test_the_api_opens_by_the_switch_alone_and_the_console_only_with_a_password(opened, address):
    stack = opened.stack

    assert opened.before == (False, False)
    assert opened.without == (True, False)
    assert (opened.kept.returncode, can_connect(address, stack.ports["console"])) == (0, True), opened.kept.stderr
    assert f"http://{address}:{stack.ports['console']}" in opened.kept.stdout
    assert stack.record("engine") == opened.engine


def test_the_engine_and_the_admin_api_stay_on_loopback(opened, address):
    ports = opened.stack.ports

    assert [can_connect(address, ports[name]) for name in ("admin", "engine")] == [False, False]


def test_what_is_printed_is_what_other_machines_use(opened, address):
    report, api = opened.report, opened.stack.ports["api"]

    assert report["api"] == [f"http://{LABEL}.local:{api}/v1", f"http://{address}:{api}/v1"]
    assert (report["console"], report["has_password"], report["has_key"], report["restart"]) == ([], False, True, [])


@pytest.mark.parametrize("port_of", ["api", "console"])
def test_the_name_and_the_address_of_this_machine_are_served_and_no_other(opened, address, port_of):
    port = opened.stack.ports[port_of]
    good = [f"{address}:{port}", f"{LABEL}.local:{port}", f"{LABEL.upper()}.LOCAL:{port}", f"{LABEL}:{port}"]
    good += [f"127.0.0.1:{port}", f"localhost:{port}"]
    evil = ["evil.example", f"evil.example:{port}", f"{address}.evil.example:{port}", ""]
    evil += [f"{LABEL}.local.evil.example:{port}", f"x{LABEL}.local:{port}", f"10.255.255.1:{port}"]
    evil += [address, f"{LABEL}.local", f"{address}:{port + 1}"]
    forwarded = {"X-Forwarded-Host": f"{address}:{port}", "X-Forwarded-For": "127.0.0.1", "Forwarded": "host=localhost"}

    assert {status_of(address, port, "/healthz", host) for host in good} == {200}
    assert {host: status_of(address, port, "/healthz", host, **forwarded) for host in evil} == dict.fromkeys(evil, 403)


def test_the_address_of_another_connection_is_a_foreign_name(opened, address):
    """A page that was rebound to 127.0.0.1 can't borrow the address by which other machines come."""
    port = opened.stack.ports["api"]

    assert status_of("127.0.0.1", port, "/healthz", f"{address}:{port}") == 403


def test_from_another_address_the_api_takes_a_key_and_nothing_else(opened, address):
    stack = opened.stack
    url = f"http://{address}:{stack.ports['api']}/v1/models"
    tokens = {"key": stack.key, "admin": stack.home.admin_secret(), "password": PASSWORD}

    with httpx.Client(trust_env=False) as client:
        nothing = client.get(url).status_code
        answers = {
            name: client.get(url, headers={"Authorization": f"Bearer {token}"}).status_code
            for name, token in tokens.items()
        }

    assert (nothing, answers) == (401, {"key": 200, "admin": 401, "password": 401})


def test_a_key_opens_neither_the_admin_api_nor_the_console(opened, address):
    stack = opened.stack
    headers = {"Authorization": f"Bearer {stack.key}", "X-Api-Key": stack.key}

    with httpx.Client(trust_env=False, headers=headers) as client:
        admin = client.get(f"http://127.0.0.1:{stack.ports['admin']}/overview")
        console = client.get(f"http://{address}:{stack.ports['console']}/")
        login = client.post(f"http://{address}:{stack.ports['console']}/login", data={"password": stack.key})

    assert (admin.status_code, console.status_code, login.status_code) == (401, 401, 403)


def test_the_password_logs_in_and_leads_to_the_page_that_was_asked_for(opened, address):
    origin = f"http://{address}:{opened.stack.ports['console']}"

    with httpx.Client(base_url=origin, trust_env=False, headers={"Origin": origin}) as client:
        asked = client.get("/clients")
        entered = client.post("/login", data={"password": PASSWORD, "next": "/clients"})
        page = client.get(entered.headers["location"])

    assert (asked.status_code, 'value="/clients"' in asked.text) == (401, True)
    assert (entered.status_code, entered.headers["location"], page.status_code) == (303, "/clients", 200)
    assert "HttpOnly" in entered.headers["set-cookie"] and "SameSite=strict" in entered.headers["set-cookie"]


def test_a_form_of_another_page_is_refused_there_too(opened, address):
    port = opened.stack.ports["console"]
    origin = f"http://{address}:{port}"
    others = ["http://evil.example", f"{origin}.evil.example", f"http://127.0.0.1:{port}", "null"]

    with httpx.Client(base_url=origin, trust_env=False) as client:
        answers = [client.post("/login", data={"password": PASSWORD}, headers={"Origin": each}) for each in others]

    assert [answer.status_code for answer in answers] == [403] * 4
    assert [answer.headers.get("set-cookie") for answer in answers] == [None] * 4


def test_the_password_is_in_no_log_and_no_file_and_its_hash_is_private(opened):
    root = opened.stack.home.root
    files = [file for file in root.rglob("*") if file.is_file()]

    kept = root / "secrets" / "console-password"
    assert [file for file in files if PASSWORD.encode() in file.read_bytes()] == []
    assert kept.stat().st_mode & 0o777 == 0o600


def test_status_and_the_settings_of_the_console_tell_of_it(opened, address):
    stack = opened.stack
    shown = stack.splash("status").stdout
    with stack.admin() as admin:
        installation = admin.get("/installation").json()

    lan_line = next(line for line in shown.splitlines() if line.startswith("LAN"))
    assert f"on: http://{LABEL}.local:{stack.ports['api']}/v1" in " ".join(lan_line.split())
    assert installation["lan_api"][-1] == f"http://{address}:{stack.ports['api']}/v1"
    assert installation["lan_console"][-1] == f"http://{address}:{stack.ports['console']}"
    assert (stack.status()["webui"]["identity"], stack.splash("doctor").returncode) == ("ours", 0)


def test_turning_it_on_again_restarts_nobody(opened):
    before = [opened.stack.record(name) for name in ("control", "webui")]

    lan(opened.stack, "on")

    assert [opened.stack.record(name) for name in ("control", "webui")] == before


def test_a_new_password_ends_every_session_and_removing_it_closes_the_console(opened, address):
    stack = opened.stack
    origin = f"http://{address}:{stack.ports['console']}"
    with httpx.Client(base_url=origin, trust_env=False) as client:
        client.post("/login", data={"password": PASSWORD})
        before = client.get("/").status_code
        changed = set_password(stack, "another one entirely")
        after = client.get("/").status_code

    removed = set_password(stack, "", "--remove")

    assert (before, after) == (200, 401)
    assert (changed.returncode, removed.returncode) == (0, 0)
    assert (can_connect(address, stack.ports["console"]), can_connect(address, stack.ports["api"])) == (False, True)
    assert set_password(stack).returncode == 0
    assert can_connect(address, stack.ports["console"])


def test_a_running_stream_ends_whole_before_the_switch_and_off_closes_everything_again(opened, address):
    stack = opened.stack
    lines: list[str] = []
    begun = threading.Event()

    def read() -> None:
        body = {
            "model": "default",
            "max_tokens": 250,
            "stream": True,
            "messages": [{"role": "user", "content": "slowly"}],
        }
        base = f"http://{address}:{stack.ports['api']}/v1"
        headers = {"Authorization": f"Bearer {stack.key}"}
        with (
            httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=60) as api,
            api.stream("POST", "/chat/completions", json=body) as answer,
        ):
            for line in answer.iter_lines():
                lines.append(line)
                begun.set()

    control = stack.record("control")
    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    done = stack.splash("lan", "off", "--json", "--engine-command", stack.engine_command)
    reader.join(60)
    report = json.loads(done.stdout)

    assert "data: [DONE]" in lines
    # The console does not wait for streams.
    said = [done.stderr.index(each) for each in ("webui is pid", "Waiting for 1 request", "control is pid")]
    assert said == sorted(said)
    assert (report["lan"], report["api"], report["restart"]) == (False, [], [])
    assert [can_connect(address, stack.ports[name]) for name in ("api", "console")] == [False, False]
    assert live_process(control) is None
    assert stack.record("engine") == opened.engine
    wait_until(lambda: stack.engine_state() == "ready", "the adopted engine to serve")
    with stack.api() as api:
        assert api.get("/models").status_code == 200


def test_what_is_started_in_lan_mode_is_open_at_once_and_takes_five_wrong_passwords_a_minute(tmp_path, address):
    stack = Stack(tmp_path / "home", engine_command=fake_engine())
    try:
        lan(stack, "on")
        assert set_password(stack).returncode == 0
        answer = stack.up()
        origin = f"http://{address}:{stack.ports['console']}"

        with httpx.Client(base_url=origin, trust_env=False) as client:
            wrong = [client.post("/login", data={"password": f"wrong {number}"}) for number in range(5)]
            right = client.post("/login", data={"password": PASSWORD})
        with httpx.Client(base_url=f"http://127.0.0.1:{stack.ports['console']}", trust_env=False) as client:
            elsewhere = client.post("/login", data={"password": PASSWORD})

        # What is printed is for this machine.
        assert (answer["api"], answer["console"]) == (stack.api_base, f"http://127.0.0.1:{stack.ports['console']}")
        assert can_connect(address, stack.ports["api"])
        assert [answer.status_code for answer in wrong] == [403] * 5
        assert right.status_code == 429
        assert 0 < int(right.headers["retry-after"]) <= 60
        assert "set-cookie" not in right.headers
        assert elsewhere.status_code == 303
        assert "wrong 0" not in stack.logs()
    finally:
        stack.clean_up()
