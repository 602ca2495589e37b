"""What `splash up` does before it starts anything."""

import socket

import msgspec
import pytest
from typer.testing import CliRunner

from control.cli import up
from control.cli.app import app
from control.cli.processes import Found
from control.command_errors import PortTaken, StartRefused
from control.config import PORT_FIELDS, Settings
from control.home import Home
from control.services.detached import Detached
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


def test_a_database_that_was_set_aside_is_said():
    addresses = up.Addresses("http://api", "http://console", "http://login", "demo")

    said = up.remark(up.Ready(addresses, is_demo=True, set_aside="splash.db.damaged-1"))

    assert said is not None and said.startswith("The database was damaged, and is now splash.db.damaged-1.")
    assert up.remark(up.Ready(addresses, is_demo=True)) is None


def test_a_database_that_was_not_there_and_was_begun_with_the_copy_is_said():
    addresses = up.Addresses("http://api", "http://console", "http://login", "demo")

    said = up.remark(up.Ready(addresses, is_demo=True, from_copy=True))

    assert said is not None and said.startswith("There was no database: a new one was begun, with the keys")


def test_it_is_said_beside_the_output_which_stays_what_it_was(settings, monkeypatch):
    addresses = up.Addresses("http://api", "http://console", "http://login", "demo")
    ready = up.Ready(addresses, is_demo=True, set_aside="splash.db.damaged-1")
    monkeypatch.setattr(up, "up", lambda *_: ready)
    monkeypatch.setenv("SPLASH_HOME", str(settings.home))

    done = CliRunner().invoke(app, ["up", "--no-open", "--json"])

    assert msgspec.json.decode(done.stdout, type=up.Addresses) == addresses
    assert done.stderr == f"{up.remark(ready)}\n"


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
    child = Detached(home).start("webui", ["/bin/sh", "-c", f"echo Port 1 is taken by x.; exit {code}"], {})

    with pytest.raises(up.StartFailed, match=r"Port 1 is taken by x\.") as caught:
        up.wait_until_found(home, "webui", child)

    assert caught.value.exit_code == exit_code
    assert isinstance(caught.value, StartRefused) is (exit_code == 5)
