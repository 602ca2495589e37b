"""The command line's own pieces: tables, arguments, and which sentence a control that cannot be asked gets."""

import os
import signal
from types import SimpleNamespace

import pytest

from control.cli.admin_client import AdminClient
from control.cli.app import _load_request
from control.cli.places import Place, running_control
from control.cli.status import is_running, status
from control.cli.tables import print_table
from control.command_errors import CommandFailed, NotAnswering, NotRunning, UsageWrong
from control.config import Settings
from control.home import Home


@pytest.fixture
def place(tmp_path):
    home = Home(tmp_path.resolve() / "home")
    home.create()
    home.made_admin_secret()
    return Place(Settings(home=home.root), home)


@pytest.mark.parametrize("cell", ["[/x]", "[bold]x", "[link=file:///x]y[/link]", "a\\[b"])
def test_a_cell_is_shown_as_it_is(cell, capsys):
    print_table(("name",), [(cell,)])

    assert cell in capsys.readouterr().out


def test_a_cell_cannot_give_orders_to_the_terminal(capsys):
    print_table(("name",), [("a\x1b[31mb\nc",)])

    assert "a�[31mb�c" in capsys.readouterr().out


def test_a_model_that_can_be_no_folder_is_wrong_usage():
    with pytest.raises(UsageWrong, match="can't be a folder") as caught:
        _load_request("~no-such-user/x", None, None)

    assert caught.value.exit_code == 2


def test_an_argument_that_is_not_text_is_wrong_usage(place, listen):
    client = AdminClient(place.home, listen().with_(name="control"))

    with pytest.raises(UsageWrong, match="UTF-8"):
        client.new_key("\udcff", "interactive")


def test_nothing_runs_and_the_command_line_says_so(place):
    with pytest.raises(NotRunning):
        running_control(place)

    assert not is_running(status(place.home))


def test_a_control_that_hangs_is_not_said_to_be_gone(place, listen, monkeypatch):
    monkeypatch.setattr("control.identity.HEALTHZ_TIMEOUT_S", 0.2)
    listener = listen()
    place.home.write_record(listener.with_(name="control"))
    os.kill(listener.record.pid, signal.SIGSTOP)

    with pytest.raises(NotAnswering, match=f"pid {listener.record.pid}") as caught:
        running_control(place)

    assert caught.value.exit_code == 1


def test_a_control_that_dies_while_it_is_asked_is_gone(place, listen):
    listener = listen()
    client = AdminClient(place.home, listener.with_(name="control"))
    listener.child.kill()
    listener.child.wait()

    with pytest.raises(NotRunning):
        client.overview()


def test_a_control_without_a_record_is_shown_by_the_lock_that_it_holds(place):
    with place.home.only_one("control", wait=False):
        with pytest.raises(NotAnswering, match=f"pid {os.getpid()}"):
            running_control(place)
        report = status(place.home)

    assert (report["control"]["pid"], report["control"]["state"]) == (os.getpid(), "not answering")
    assert is_running(report)


def test_an_engine_that_is_loading_is_not_blamed_for_having_no_port_yet(place, listen, monkeypatch):
    place.home.write_record(listen().with_(port=1))
    view = SimpleNamespace(state="loading", model=None, model_name="demo", error=None, restarts=0, memory_actual=None)
    overview = SimpleNamespace(engine=view, slots=(), waiting=(), api_base="", quitting=False)
    monkeypatch.setattr("control.cli.status._overview", lambda home, control: overview)

    report = status(place.home)

    assert report["engine"]["state"] == "loading"
    assert "reason" not in report["engine"]


def test_every_failure_of_a_command_has_an_exit_code_of_the_documentation():
    kinds = [CommandFailed]
    for kind in kinds:
        kinds += kind.__subclasses__()

    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 5}
