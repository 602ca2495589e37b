"""A control that leaves, and one that is replaced, as other commands find it: what they wait for, and what they say."""

import threading

import msgspec
import pytest

from control.cli import settling
from control.cli.places import Place, running_control
from control.cli.restart import client_for_orders, hurry_leaving_control, interrupted
from control.cli.settling import FollowingClient
from control.cli.status import status, table
from control.command_errors import ControlLeaves, NotRunning
from control.config import Settings
from control.home import Home
from tests.fakes import control as fake
from tests.fakes.control import SECRET, FakeControl


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr("control.identity.HEALTHZ_TIMEOUT_S", 0.5)
    monkeypatch.setattr(Home, "admin_secret", lambda self: SECRET)
    home = Home(tmp_path.resolve() / "home")
    home.create()
    return home


@pytest.fixture
def leaving(home, listen, monkeypatch):
    """A control that waits for one request; the little process proves it, the fake one answers for it."""
    control = FakeControl(overview=msgspec.structs.replace(fake.overview(slots=(fake.decoding(),)), leaving=True))
    control.start()
    record = listen().with_(name="control", manager="detached")
    home.write_record(record)
    for each in ("restart", "settling", "status"):
        monkeypatch.setattr(f"control.cli.{each}.AdminClient", lambda *_: client_of(home, record, control.port))
    monkeypatch.setattr("control.cli.restart.FollowingClient", lambda *_: client_of(home, record, control.port))
    yield control
    control.stop()


def client_of(home, record, port):
    return FollowingClient(home, msgspec.structs.replace(record, port=port))


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    """The fake control answers from here, which is not the process of the record."""
    monkeypatch.setattr(FollowingClient, "_is_there", lambda _: True)


def test_the_status_says_that_it_leaves_what_it_waits_for_and_who_starts_the_next(home, leaving, capsys):
    table(status(home, lambda: ()))
    alone = " ".join(capsys.readouterr().out.split())
    with home.only_one("up", wait=True):
        table(status(home, lambda: ()))
    with_another = " ".join(capsys.readouterr().out.split())

    assert "leaving waits for 1 request to finish; `splash up` waits for that and starts the next" in alone
    assert "leaving waits for 1 request to finish; pid" in with_another and "starts the next" in with_another


def test_an_order_to_it_is_refused_with_what_to_do(home, leaving):
    with pytest.raises(ControlLeaves, match=r"waits for 1 request to finish, and nobody starts the next. `splash up`"):
        client_for_orders(home, pytest.fail)

    assert leaving.orders == []


def test_who_has_interrupted_a_restart_reads_what_goes_on_and_what_does_not(home, leaving):
    while_it_leaves = interrupted(home)
    home.remove_record(home.read_record("control"))

    assert while_it_leaves.startswith("Control goes on leaving: it waits for 1 request to finish, and then nobody")
    assert "`splash up` does that" in interrupted(home)


def test_force_cuts_what_it_waits_for_on_somebody_elses_order(home, leaving):
    hurry_leaving_control(home)

    assert leaving.orders == [("POST", "/leave", {"force": True})]


def test_a_command_waits_for_the_control_that_somebody_is_about_to_start(home, listen):
    new = listen().with_(name="control", manager="detached")
    is_held = threading.Event()

    def start() -> None:
        with home.only_one("up", wait=True):
            is_held.set()
            home.write_record(new)

    starting = threading.Thread(target=start)
    with home.only_one("up", wait=True):
        starting.start()
    assert is_held.wait(10)
    client = running_control(Place(Settings(home.root), home))
    starting.join()

    assert client._control == new


def test_without_anybody_at_work_nothing_is_waited_for(home, monkeypatch):
    monkeypatch.setattr("control.cli.processes.time.sleep", lambda _s: pytest.fail("waited"))

    with pytest.raises(NotRunning):
        running_control(Place(Settings(home.root), home))


def test_a_question_goes_on_to_the_next_control(home, listen):
    ended, new = listen(), FakeControl(overview=fake.overview(concurrency=3))
    new.start()
    try:
        client = FollowingClient(home, ended.with_(name="control", nonce="old", port=1))
        ended.child.kill()
        ended.child.wait()
        successor = listen(nonce="new").with_(name="control", manager="detached")
        home.write_record(successor)
        found = settling.find(home, "control")
        answering = msgspec.structs.replace(successor, port=new.port)
        settled = settling.Found("control", answering, found.identity)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(settling, "settled_control", lambda _home: settled)
            overview = client.overview()
    finally:
        new.stop()

    assert overview.concurrency == 3
