"""More clients than a process may have files open at its start, and a control that ends while they are under way."""

import contextlib
import json
import socket
import subprocess
import sys
import time

import psutil
import pytest

from control.identity import live_process
from control.wire import LOAD, UNLOAD
from tests.story.stack import wait_until

pytestmark = pytest.mark.story

USUAL_ON_MACOS = 256


@contextlib.contextmanager
def control_with(stack, ulimit: str):
    """Control alone, with an engine that is ready, started by a shell that was told `ulimit`."""
    stack.up()
    control = stack.leave()
    wait_until(lambda: live_process(control) is None, "control to end")
    command = [sys.executable, "-m", "control", "--manager", "detached", "--engine-command", stack.engine_command]
    with stack.home.log_file("control").open("ab") as log:
        child = subprocess.Popen(
            ["/bin/sh", "-c", f'ulimit {ulimit} {USUAL_ON_MACOS} && exec "$@"', "sh", *command],
            env=stack.environment,
            cwd=stack.home.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: stack.engine_state() == "ready", "the engine to be adopted")
        yield child
    finally:
        child.kill()
        child.wait()


class Client:
    """One on a raw socket, which asks for a stream that lasts for minutes."""

    def __init__(self, stack, *, num_missing_bytes=0) -> None:
        body = json.dumps({"model": "default", "stream": True, "messages": [{"role": "user", "content": "slowly"}]})
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{stack.ports['api']}\r\n"
            f"Authorization: Bearer {stack.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.socket = socket.create_connection(("127.0.0.1", stack.ports["api"]), timeout=20)
        self.socket.sendall((head + body)[: -num_missing_bytes or None].encode())

    def answer(self) -> bytes:
        """Until the server closes; nothing when it was cut off."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while chunk := self.socket.recv(65536):
                received += chunk
        return received


def closing(clients):
    stack = contextlib.ExitStack()
    for client in clients:
        stack.callback(client.socket.close)
    return stack


def load_anew(stack) -> None:
    """What needs new files: an engine that is stopped, and another process in its place."""
    before = stack.record("engine").pid
    with stack.admin() as admin:
        admin.post(UNLOAD, json={"force": True}).raise_for_status()
        wait_until(lambda: stack.engine_state() == "unloaded", "the engine to be stopped")
        admin.post(LOAD, json={}).raise_for_status()
    wait_until(lambda: stack.engine_state() == "ready", "the engine to be ready again")
    assert stack.record("engine").pid != before


def num_asked(stack) -> int:
    overview = stack.overview()
    return len(overview.waiting) + sum(slot is not None for slot in overview.slots)


def test_250_streams_leave_the_admin_api_its_files_where_256_are_usual(stack):
    with control_with(stack, "-Sn") as control:
        clients = [Client(stack) for _ in range(250)]
        with closing(clients):
            wait_until(lambda: num_asked(stack) == 250, "all of them to be there")
            num_files = psutil.Process(control.pid).num_fds()

            load_anew(stack)

            assert num_asked(stack) >= 246

    assert num_files > USUAL_ON_MACOS


def test_where_no_more_files_are_to_be_had_the_clients_that_are_too_many_are_told(stack):
    with control_with(stack, "-n") as control:
        clients = [Client(stack) for _ in range(250)]
        with closing(clients):
            wait_until(lambda: num_asked(stack) == 64, "those that there is room for")
            answers = [client.answer() for client in clients[64:]]

            load_anew(stack)
            num_files = psutil.Process(control.pid).num_fds()

    assert {answer[:13] for answer in answers} <= {b"HTTP/1.1 429 ", b""}
    assert sum(b"rate_limit_exceeded" in answer for answer in answers) >= 1
    assert num_files < USUAL_ON_MACOS


@pytest.mark.timed
def test_a_restart_of_control_tells_a_client_that_still_sends_its_body_at_once(stack):
    stack.up()
    client = Client(stack, num_missing_bytes=5)
    # Asked later, on another port: when it is answered, control has seen the client.
    stack.overview()

    with closing([client]):
        control = stack.leave()
        began_at = time.monotonic()
        answer = client.answer()
        took_s = time.monotonic() - began_at
    wait_until(lambda: live_process(control) is None, "control to end", timeout_s=10)

    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"gateway_restarts" in answer
    assert took_s < 2
    assert "Traceback" not in stack.logs()
