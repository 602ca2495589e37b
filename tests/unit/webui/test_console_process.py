import signal
import socket
import stat
import subprocess
import sys
import time

import httpx
import msgspec
import psutil
import pytest

from control.wire import Health, ProcessRecord


@pytest.fixture
def start(home):
    """`python -m webui` on a free port; whatever was started is gone afterwards."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "webui", "--home", str(home.root), "--admin-port", "1", *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=home.root)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for_record(home, process) -> ProcessRecord:
    path = home.root / "run" / "webui.json"
    deadline = time.monotonic() + 20
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return msgspec.json.decode(path.read_bytes(), type=ProcessRecord)


def ask_health(record: ProcessRecord) -> Health:
    with httpx.Client(trust_env=False) as client:
        answer = client.get(f"http://127.0.0.1:{record.port}/healthz")
    return msgspec.json.decode(answer.content, type=Health)


def test_the_record_and_healthz_tell_the_same_identity(start, home):
    process = start("--port", "0", "--manager", "foreground")

    record = wait_for_record(home, process)
    health = ask_health(record)

    assert (record.name, record.pid, record.manager) == ("webui", process.pid, "foreground")
    assert record.created_at_s == pytest.approx(psutil.Process(process.pid).create_time(), abs=0.01)
    assert (health.name, health.pid, health.nonce) == ("webui", process.pid, record.nonce)
    assert stat.S_IMODE((home.root / "run" / "webui.json").stat().st_mode) == 0o600


@pytest.mark.timed
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_with_0_although_connections_are_open(start, home, number):
    process = start("--port", "0")
    record = wait_for_record(home, process)
    with httpx.Client(trust_env=False) as kept_alive, socket.create_connection(("127.0.0.1", record.port)):
        kept_alive.get(f"http://127.0.0.1:{record.port}/healthz")
        began_at = time.monotonic()

        process.send_signal(number)
        exit_code = process.wait(10)

    assert exit_code == 0
    assert time.monotonic() - began_at < 3
    assert not (home.root / "run" / "webui.json").exists()


def test_a_taken_port_is_one_sentence_that_names_the_holder(start, home):
    first = start("--port", "0")
    port = wait_for_record(home, first).port

    second = start("--port", str(port))
    _, said = second.communicate(timeout=20)

    assert second.returncode == 5
    assert said.count("\n") == 1
    assert f"port {port} on 127.0.0.1 is taken by pid {first.pid}" in said
    assert "-m webui" in said
    assert ask_health(wait_for_record(home, first)).pid == first.pid


def test_wrong_usage_is_exit_code_2(start):
    process = start("--port", "many")

    process.communicate(timeout=20)

    assert process.returncode == 2
