"""Somebody else listens where one of ours did: while it restarts, or right after its end. Nothing is told there.

A stranger is a socket of this process, as one of another user is: nobody's record names it.
"""

import contextlib
import socket
import threading

import httpx
import msgspec
import pytest

from control.cli.admin_client import AdminClient
from control.command_errors import NotAnswering, NotRunning
from control.engine_client import EngineClient
from control.errors import EngineGone
from control.home import Home
from control.listener import find_listener
from control.wire import ProcessRecord
from engine.wire import STATUS
from tests.fakes.control import SECRET, FakeControl
from tests.fakes.control_record import record_of_this_process, write_record
from tests.unit.control_lifecycle.conftest import listen as listen
from webui.control_client import ControlClient
from webui.errors import ControlGone
from webui.home import Home as ConsoleHome


class Stranger:
    """Takes what is sent, and answers nothing."""

    def __init__(self, port: int = 0) -> None:
        self.heard = b""
        self.num_callers = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        # It comes last, so whoever comes before it is heard.
        self._last = socket.socket()
        self._last.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Once everything that was sent is heard."""
        self._last.connect(("127.0.0.1", self.port))
        self._thread.join()
        self._last.close()
        self._listener.close()

    def _take(self) -> None:
        while True:
            caller, address = self._listener.accept()
            with caller, contextlib.suppress(OSError):
                if address == self._last.getsockname():
                    return
                self.num_callers += 1
                caller.settimeout(5)
                while piece := caller.recv(65_536):
                    self.heard += piece


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.create()
    home.admin_secret_file.write_text(SECRET.ljust(40, "x"))
    return home


@contextlib.contextmanager
def taken_by_a_stranger(port: int = 0):
    stranger = Stranger(port)
    try:
        yield stranger
    finally:
        stranger.close()


def ended(listener) -> ProcessRecord:
    """The record of a process that is no more; its port is free."""
    listener.child.kill()
    listener.child.wait()
    return listener.record


@contextlib.asynccontextmanager
async def console_of(home: Home, port: int):
    client = ControlClient(ConsoleHome(home.root), admin_port=port)
    yield client
    await client.close()


@pytest.mark.parametrize("recorded", ["nobody", "one that ended", "one that lives, elsewhere"])
async def test_the_console_tells_a_stranger_on_the_admin_port_nothing(home, listen, recorded):
    if recorded != "nobody":
        control = listen()
        home.write_record(control.with_(name="control"))
        if recorded == "one that ended":
            ended(control)

    with taken_by_a_stranger() as stranger:
        async with console_of(home, stranger.port) as client:
            with pytest.raises(ControlGone):
                await client.overview()

    assert stranger.heard == b""


async def test_the_console_tells_nothing_to_who_takes_the_port_while_it_connects(home, monkeypatch):
    control = FakeControl()
    control.start()
    write_record(home.root, control.port)

    async with console_of(home, control.port) as client:
        found = client._listener.find()
        control.stop()
        monkeypatch.setattr(client._listener, "find", lambda: found)
        with taken_by_a_stranger(control.port) as stranger, pytest.raises(ControlGone):
            await client.quit(force=True)

    assert (stranger.num_callers, stranger.heard) == (1, b"")


async def test_the_console_finds_the_next_control_by_itself_and_looks_once_for_a_connection(home, monkeypatch):
    (home.root / "secrets" / "admin").write_text(SECRET)
    control = FakeControl()
    control.start()
    write_record(home.root, control.port)
    async with console_of(home, control.port) as client:
        looks = []
        find = client._listener.find
        monkeypatch.setattr(client._listener, "find", lambda: looks.append(1) or find())
        for _ in range(5):
            await client.overview()
        control.stop()
        control.start(control.port)
        write_record(home.root, control.port)
        with contextlib.suppress(ControlGone):
            await client.overview()
        await client.overview()
    control.stop()

    assert 2 <= len(looks) <= 3


def test_a_command_tells_a_stranger_nothing_however_long_it_knew_control(home, listen):
    control = listen()
    before = AdminClient(home, control.with_(name="control"))
    record = msgspec.structs.replace(ended(control), name="control")

    with taken_by_a_stranger(record.port) as stranger:
        for client in (before, AdminClient(home, record)):
            with pytest.raises((NotRunning, NotAnswering)):
                client.overview()
            with pytest.raises((NotRunning, NotAnswering)):
                list(client.export("format=csv"))

    assert stranger.heard == b""


async def test_control_tells_a_stranger_on_the_engines_port_neither_secret_nor_prompt(listen):
    engine = listen()
    listener = find_listener(engine.record, engine.record.port)
    client = EngineClient(port=engine.record.port, secret=SECRET, is_there=listener.is_open)
    was_there = listener.is_open()
    ended(engine)

    with taken_by_a_stranger(engine.record.port) as stranger:
        with pytest.raises(EngineGone) as gone:
            await client.status()
        await client.aclose()

    assert (was_there, gone.value.was_reached) == (True, False)
    assert (stranger.num_callers, stranger.heard) == (1, b"")


def test_a_process_that_closed_its_port_and_lives_on_does_not_listen():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        record = record_of_this_process(port)
        listener = find_listener(record, port)
        was_open = listener.is_open()

    with socket.create_server(("127.0.0.1", 0)):
        assert (was_open, listener.is_open(), find_listener(record, port)) == (True, False, None)


def test_where_the_system_names_no_sockets_they_are_listed_each_time(monkeypatch):
    monkeypatch.setattr("control.listener.psutil.LINUX", False)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        record = record_of_this_process(bound.getsockname()[1])
        listener = find_listener(record, record.port)
        was_open = listener.is_open()

    assert (listener.seen_as, was_open, listener.is_open()) == (None, True, False)


def test_a_running_splash_finds_its_own(splash):
    """Of real processes, whose sockets their servers may have passed on."""
    records = [splash.record("control"), splash.record("engine")]

    listeners = [find_listener(record, record.port) for record in records]
    with splash.api() as client:
        statuses = [client.get(f"{splash.api_base}/models").status_code for _ in range(3)]
    engine = httpx.get(f"http://127.0.0.1:{records[1].port}{STATUS}", trust_env=False)

    assert [each is not None and each.is_open() for each in listeners] == [True, True]
    assert (statuses, engine.status_code) == ([200] * 3, 401)
