"""What `splash up` does before it starts anything."""

import socket

import pytest

from control.cli import up
from control.cli.processes import Found
from control.command_errors import PortTaken, StartRefused
from control.config import PORT_FIELDS, Settings
from control.home import Home
from tests.story.stack import free_ports, is_free


@pytest.fixture
def settings(tmp_path):
    home = Home(tmp_path.resolve() / "home")
    home.create()
    return Settings(home.root, "127.0.0.1", *free_ports(4))


def require_ports(settings: Settings) -> None:
    home = Home(settings.home)
    up._require_ports(settings, home, Found("control", None, None), Found("webui", None, None))


@pytest.mark.parametrize("key", PORT_FIELDS)
def test_each_port_is_looked_at_first_and_named_with_its_setting(settings, key):
    with socket.create_server(("127.0.0.1", getattr(settings, PORT_FIELDS[key]))) as held:
        with pytest.raises(PortTaken) as caught:
            require_ports(settings)
        port = held.getsockname()[1]

    assert f"Port {port} is taken by pid" in str(caught.value)
    assert key in str(caught.value)
    assert caught.value.exit_code == 5


def test_free_ports_are_free_again_afterwards(settings):
    require_ports(settings)

    assert [is_free(port) for port in (settings.api_port, settings.console_port)] == [True, True]
    require_ports(settings)


def test_the_port_of_an_engine_that_outlived_its_control_is_not_taken(settings, listen):
    listener = listen()
    Home(settings.home).write_record(listener.record)

    require_ports(Settings(settings.home, "127.0.0.1", *free_ports(3), listener.record.port))

    assert not is_free(listener.record.port)


@pytest.mark.parametrize(("code", "exit_code"), [(5, 5), (1, 1), (2, 1)])
def test_a_child_that_found_its_port_taken_passes_its_exit_code_on(settings, code, exit_code):
    home = Home(settings.home)
    child = up.start_detached(home, "webui", ["/bin/sh", "-c", f"echo Port 1 is taken by x.; exit {code}"])

    with pytest.raises(up.StartFailed, match=r"Port 1 is taken by x\.") as caught:
        up.wait_until_found(home, "webui", child)

    assert caught.value.exit_code == exit_code
    assert isinstance(caught.value, StartRefused) is (exit_code == 5)
