"""A port that somebody listens on is taken, and named so; one that an outgoing connection has is free again soon."""

import os
import socket
import threading
from contextlib import contextmanager

import pytest

from control import ports
from control.command_errors import PortPassing, PortTaken
from control.ports import bind, require_free
from tests.story.stack import free_ports


@contextmanager
def outgoing_connection():
    """A connection whose near end has the port of a setting; the port, and how the far end ends it."""
    [port] = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as near:
        near.bind(("127.0.0.1", port))
        near.connect(server.getsockname())
        far, _ = server.accept()

        def end() -> None:
            far.close()
            near.close()

        with far:
            yield port, end


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_an_outgoing_connection_is_said_to_be_one_and_its_process_is_named(monkeypatch, host):
    monkeypatch.setattr(ports, "PASSING_LIMIT_S", 0)

    with outgoing_connection() as (port, _end), pytest.raises(PortPassing) as caught:
        require_free(host, port, key="SPLASH_API_PORT")

    assert f"Port {port} is in use by an outgoing connection of pid {os.getpid()}" in str(caught.value)
    assert caught.value.exit_code == 5


def test_it_is_waited_for(monkeypatch):
    tries = threading.Event()
    monkeypatch.setattr(ports.time, "sleep", lambda _s: tries.set())

    with outgoing_connection() as (port, end):
        helper = threading.Thread(target=lambda: (tries.wait(5), end()))
        helper.start()
        bind("127.0.0.1", port, key="SPLASH_API_PORT").close()
        helper.join()

    assert tries.is_set()


def test_a_listener_is_named_and_not_waited_for(monkeypatch):
    monkeypatch.setattr(ports.time, "sleep", lambda _s: pytest.fail("waited"))

    with socket.create_server(("127.0.0.1", 0)) as held, pytest.raises(PortTaken, match=f"pid {os.getpid()}"):
        require_free("127.0.0.1", held.getsockname()[1], key="SPLASH_API_PORT")


def test_a_listener_that_this_user_may_not_see_is_one_all_the_same(monkeypatch):
    monkeypatch.setattr(ports, "port_holder", lambda port: None)

    with (
        socket.create_server(("127.0.0.1", 0)) as held,
        pytest.raises(PortTaken, match="taken by a process of another user"),
    ):
        require_free("0.0.0.0", held.getsockname()[1], key="SPLASH_API_PORT")
