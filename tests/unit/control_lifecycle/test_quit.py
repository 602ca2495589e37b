"""`splash quit` on little processes: whose end it brings, whose it leaves, and what it says of it."""

import os
import signal
from types import SimpleNamespace

import pytest

from control.cli import quit as quitting
from control.cli import waiting
from control.cli.quit import quit_splash
from control.command_errors import NotRunning
from control.home import Home
from control.identity import live_process
from control.wire import Accepted, DatabaseHealth


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr("control.identity.HEALTHZ_TIMEOUT_S", 0.2)
    monkeypatch.setattr(quitting, "SETTLE_LIMIT_S", 0.2)
    monkeypatch.setattr(quitting, "RECORD_LIMIT_S", 0.2)
    home = Home(tmp_path.resolve() / "home")
    home.create()
    home.made_admin_secret()
    return home


QUITTING = Accepted(message="Splash is quitting.", running=0, waiting=0)


def quit_(home, *, force: bool):
    return quit_splash(home, force=force, show=lambda text: None)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("behaviour", ["closed", "silent"])
def test_a_process_of_somebody_else_with_a_record_is_never_ended(home, listen, behaviour, force):
    listener = listen()
    home.write_record(listener.with_(port=1) if behaviour == "closed" else listener.record)
    if behaviour == "silent":
        os.kill(listener.record.pid, signal.SIGSTOP)

    [left] = quit_(home, force=force)

    assert (left.name, str(listener.record.pid) in left.reason) == ("engine", True)
    assert live_process(listener.record) is not None


def test_a_process_of_ours_that_hangs_is_ended_by_force_only(home, listen):
    listener = listen("polite", "n", "--home", str(home.root))
    home.write_record(listener.record)
    os.kill(listener.record.pid, signal.SIGSTOP)

    [left] = quit_(home, force=False)
    after_force = quit_(home, force=True)

    assert "it is ours" in left.reason
    assert after_force == ()
    assert live_process(listener.record) is None


def test_a_control_without_a_record_is_what_is_left_and_its_engine_lives(home, listen):
    listener = listen()
    home.write_record(listener.record)

    with home.only_one("control", wait=False):
        [left] = quit_(home, force=True)

    assert left.name == "control" and f"pid {os.getpid()}" in left.reason
    assert live_process(listener.record) is not None


def test_when_control_dies_on_the_way_the_engine_is_ended_without_it(home, listen, monkeypatch):
    engine, control = listen(), listen(nonce="of control")
    home.write_record(engine.record)
    home.write_record(control.with_(name="control"))

    class Client:
        def __init__(self, *_) -> None: ...

        def quit(self, *, force: bool):
            control.child.kill()
            control.child.wait()
            return QUITTING

    monkeypatch.setattr(quitting, "AdminClient", Client)

    assert quit_(home, force=False) == ()
    assert live_process(engine.record) is None


def test_it_waits_for_running_requests_without_a_limit_and_tells_how_they_get_on(home, listen, monkeypatch):
    engine, control, console = listen(), listen(nonce="of control"), listen(nonce="of the console")
    for record in (engine.record, control.with_(name="control"), console.with_(name="webui")):
        home.write_record(record)
    monkeypatch.setattr(quitting, "ENGINE_LIMIT_S", 0)
    monkeypatch.setattr(waiting, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(waiting, "REMIND_EVERY_S", 3600)
    shown = []

    class Client:
        def __init__(self, *_) -> None:
            self.looks = 0

        def quit(self, *, force: bool):
            return Accepted(message="Splash is quitting.", running=2)

        def overview(self, **_):
            self.looks += 1
            if self.looks == 9:
                control.child.kill()
                control.child.wait()
                raise NotRunning
            running = [SimpleNamespace(output_tokens=700)] * (2 if self.looks < 5 else 1)
            return SimpleNamespace(engine=SimpleNamespace(state="draining"), slots=(*running, None))

    monkeypatch.setattr(quitting, "AdminClient", Client)

    left = quit_splash(home, force=False, show=shown.append)

    assert left == ()
    assert shown == [
        "Waiting for 2 requests to finish; `splash quit --force` does not wait.",
        "Still waiting for 1 request, with 700 tokens written so far.",
    ]
    assert not any(live_process(each.record) for each in (engine, control, console))


@pytest.mark.parametrize(
    ("num_waiting", "force", "said"),
    [
        (1, False, ["1 request waits; it is told to come back."]),
        (2, False, ["2 requests wait; they are told to come back."]),
        (2, True, []),
    ],
)
def test_those_that_wait_are_counted_before_all_is_gone(home, listen, monkeypatch, num_waiting, force, said):
    control = listen(nonce="of control")
    home.write_record(control.with_(name="control"))
    shown = []

    class Client:
        def __init__(self, *_) -> None: ...

        def quit(self, *, force: bool):
            control.child.kill()
            control.child.wait()
            return Accepted(message="Splash is quitting.", waiting=num_waiting)

    monkeypatch.setattr(quitting, "AdminClient", Client)

    left = quit_splash(home, force=force, show=shown.append)

    assert (left, shown) == ((), said)


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (DatabaseHealth(), []),
        (
            DatabaseHealth(waiting_rows=1_200, lost_rows=3, problem="database or disk is full"),
            [
                "1,203 rows of requests could not be written to the database (database or disk is full), and are lost; "
                "`splash logs control`."
            ],
        ),
        (
            DatabaseHealth(lost_rows=1),
            ["1 row of requests could not be written to the database, and is lost; `splash logs control`."],
        ),
    ],
)
def test_rows_that_the_database_does_not_take_are_told_when_control_has_ended(home, listen, monkeypatch, health, said):
    control = listen(nonce="of control")
    home.write_record(control.with_(name="control"))
    shown = []

    class Client:
        def __init__(self, *_) -> None: ...

        def quit(self, *, force: bool):
            return QUITTING

        def overview(self):
            assert shown == []
            control.child.kill()
            control.child.wait()
            return SimpleNamespace(database=health)

    monkeypatch.setattr(quitting, "AdminClient", Client)

    left = quit_splash(home, force=False, show=shown.append)

    assert (left, shown) == ((), said)


def test_what_a_new_start_brought_up_meanwhile_is_left_alone(home, listen, monkeypatch):
    before, after = [listen(nonce="old").with_(name="control"), listen(nonce="new").with_(name="control")]
    engine = listen()
    home.write_record(before)

    class Client:
        def __init__(self, *_) -> None: ...

        def quit(self, *, force: bool):
            os.kill(before.pid, signal.SIGKILL)
            home.write_record(after)
            home.write_record(engine.record)
            return QUITTING

    monkeypatch.setattr(quitting, "AdminClient", Client)

    assert quit_(home, force=False) == ()
    assert live_process(after) is not None
    assert live_process(engine.record) is not None


def test_nothing_to_end_is_said(home):
    with pytest.raises(NotRunning):
        quit_(home, force=False)
