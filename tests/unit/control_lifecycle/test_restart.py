"""`splash restart` on little processes: who ends, who lives on, what is waited for, and what is said."""

import os
import signal
from types import SimpleNamespace

import pytest

from control.cli import restart as restarting
from control.cli import waiting
from control.cli.restart import Restart, restart, wait_until_loaded_anew, wanted_targets
from control.command_errors import NotAnswering, NotRunning, StartFailed
from control.config import Settings
from control.home import Home
from control.identity import live_process
from control.wire import Accepted, EngineView
from tests.fakes.control import SECRET, FakeControl
from tests.unit.control_services.scripted import Clock


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr("control.identity.HEALTHZ_TIMEOUT_S", 0.5)
    monkeypatch.setattr(waiting, "LOOK_EVERY_S", 0)
    home = Home(tmp_path.resolve() / "home")
    home.create()
    home.made_admin_secret()
    return home


@pytest.fixture
def shown():
    return []


@pytest.fixture
def order(home, shown):
    return Restart(Settings(home.root), home, shown.append)


@pytest.fixture
def successor(home, listen, monkeypatch):
    """What a start brings up: a little process with a record, as control or the console would write it."""

    def launch(name):
        record = listen(nonce=f"the new {name}").with_(name=name, manager="detached")
        home.write_record(record)
        return SimpleNamespace(log_from_byte=0, ended=lambda: None, wrote=lambda found: found.pid == record.pid)

    monkeypatch.setattr(restarting, "start_control", lambda *_: launch("control"))
    monkeypatch.setattr(restarting, "start_console", lambda *_: launch("webui"))


class Leaving:
    """A control that leaves when the request that runs has ended, after three looks, or at once by force."""

    old = None
    engine_pid = None
    accepted = Accepted(message="Control leaves.")

    def __init__(self, home, record) -> None:
        self.record, self.looks = record, 0

    def leave(self, *, force: bool):
        self.forced = force
        if force or not self.accepted.running:
            self._end()
        return self.accepted

    def overview(self):
        self.looks += 1
        is_old = self.record.pid == self.old.child.pid
        if is_old and self.looks == 3:
            self._end()
        running = [SimpleNamespace(output_tokens=700)] if is_old and self.looks < 3 else [None]
        view = EngineView(state="ready", pid=self.engine_pid, model_name="demo")
        return SimpleNamespace(engine=view, slots=running)

    def _end(self) -> None:
        self.old.child.kill()
        self.old.child.wait()


@pytest.fixture
def control(home, listen, monkeypatch):
    """An old control with an engine and a console; it leaves when it is asked."""
    old, engine, console = listen(nonce="old"), listen(nonce="of the engine"), listen(nonce="of the console")
    home.write_record(old.with_(name="control", manager="detached"))
    home.write_record(engine.record)
    home.write_record(console.with_(name="webui", manager="detached"))
    client = type("Client", (Leaving,), {"old": old, "engine_pid": engine.record.pid})
    monkeypatch.setattr(restarting, "AdminClient", client)
    # Little processes take any port: as if the new control had the old one's.
    monkeypatch.setattr(restarting, "_port", lambda home: 18_084)
    return SimpleNamespace(old=old, engine=engine, console=console, client=client)


def test_an_upgrade_restarts_control_and_the_console_and_names_no_engine():
    assert wanted_targets(()) == ("control", "webui")
    assert wanted_targets(("engine", "control")) == ("control", "engine")


def test_control_comes_back_as_another_process_and_the_engine_lives_on(home, order, control, successor, shown):
    [said] = restart(order, ("control",), force=False)

    new = home.read_record("control")
    assert live_process(control.old.record) is None
    assert new.nonce == "the new control"
    assert said == f"control is pid {new.pid}; the engine, pid {control.engine.record.pid}, went on with demo."
    assert live_process(control.engine.record) is not None and live_process(control.console.record) is not None
    assert shown == []


def test_a_console_that_knows_control_by_another_port_is_restarted_with_it(
    home, order, control, successor, monkeypatch
):
    ports = iter((18_084, 18_085))
    monkeypatch.setattr(restarting, "_port", lambda home: next(ports))

    said = list(restart(order, ("control",), force=False))

    assert len(said) == 2 and said[1].startswith("webui is pid ")
    assert home.read_record("webui").nonce == "the new webui"


def test_running_requests_are_waited_for_and_counted(order, control, successor, shown):
    control.client.accepted = Accepted(message="Control leaves.", running=1, waiting=2)

    list(restart(order, ("control",), force=False))

    assert shown == [
        "2 requests wait; they are told to come again.",
        "Waiting for 1 request to finish; `splash restart --force` does not wait.",
    ]


def test_by_force_nothing_is_waited_for(order, control, successor, shown):
    control.client.accepted = Accepted(message="Control leaves.", running=1)

    list(restart(order, ("control",), force=True))

    assert shown == []
    assert live_process(control.old.record) is None


def test_an_engine_that_was_not_adopted_is_a_failure(order, control, successor, monkeypatch):
    monkeypatch.setattr(restarting, "ADOPTION_LIMIT_S", 0)
    control.client.engine_pid = control.engine.record.pid + 1

    with pytest.raises(StartFailed, match=f"has not adopted the engine .pid {control.engine.record.pid}."):
        list(restart(order, ("control",), force=False))


def test_a_control_that_was_started_meanwhile_is_taken_and_no_other_is_started(
    home, order, control, listen, monkeypatch
):
    quicker = listen(nonce="quicker")

    def end(client) -> None:
        Leaving._end(client)
        home.write_record(quicker.with_(name="control"))

    control.client._end = end
    monkeypatch.setattr(restarting, "start_control", lambda *_: pytest.fail("a second one was started"))

    [said] = restart(order, ("control",), force=False)

    assert said.startswith(f"control is pid {quicker.record.pid};")


def test_the_console_alone_is_ended_and_started_again(home, order, control, successor):
    [said] = restart(order, ("webui",), force=False)

    new = home.read_record("webui")
    assert (new.nonce, said) == ("the new webui", f"webui is pid {new.pid}.")
    assert live_process(control.console.record) is None
    assert live_process(control.old.record) is not None


def test_a_console_that_is_not_ours_is_never_signalled(home, order, control, listen, successor):
    stranger = listen("foreign")
    home.write_record(stranger.with_(name="webui"))

    with pytest.raises(StartFailed, match="not ours to end"):
        list(restart(order, ("webui",), force=False))

    assert live_process(stranger.record) is not None


@pytest.mark.parametrize("names", [("control",), ("webui",), ("engine",)])
def test_without_control_there_is_nothing_to_restart(order, names):
    with pytest.raises(NotRunning):
        list(restart(order, names, force=False))


def test_a_control_that_hangs_is_restarted_by_force_only_and_only_when_it_is_ours(home, order, listen, monkeypatch):
    monkeypatch.setattr(restarting, "start_control", lambda *_: pytest.fail("started"))
    stranger, ours = listen(), listen("polite", "n", "--home", str(home.root))
    for each in (stranger, ours):
        os.kill(each.record.pid, signal.SIGSTOP)

    for each, force in ((stranger, True), (ours, False)):
        home.write_record(each.with_(name="control"))
        with pytest.raises(NotAnswering):
            list(restart(order, ("control",), force=force))
    monkeypatch.setattr(restarting, "start_control", lambda *_: (_ for _ in ()).throw(StartFailed("on its way")))
    with pytest.raises(StartFailed, match="on its way"):
        list(restart(order, ("control",), force=True))

    assert live_process(stranger.record) is not None
    assert live_process(ours.record) is None


def test_the_order_to_leave_says_whether_it_is_forced(home, listen):
    fake = FakeControl()
    fake.start()
    try:
        home.admin_secret_file.write_text(SECRET.ljust(40, "x"))
        monkey = restarting.AdminClient(home, listen().with_(name="control", port=fake.port))
        monkey._secret = SECRET

        answer = monkey.leave(force=True)
        monkey.restart_engine()
    finally:
        fake.stop()

    assert answer.message == "begun"
    assert fake.orders == [("POST", "/leave", {"force": True}), ("POST", "/engine/restart", {})]


def test_an_engine_is_there_again_when_another_process_is_ready(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(restarting.time, "sleep", clock.pause)
    states = [("ready", 1), ("draining", 1), ("stopping", 1), ("loading", 2), ("ready", 2)]
    views = iter([EngineView(state=state, pid=pid) for state, pid in states])
    client = SimpleNamespace(overview=lambda: SimpleNamespace(engine=next(views)))
    seen = []

    overview = wait_until_loaded_anew(client, EngineView(state="ready", pid=1), seen.append)

    assert (overview.engine.pid, len(seen)) == (2, 5)


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (EngineView(state="failed", error="It does not fit."), "It does not fit."),
        (EngineView(state="unloaded"), "called off by somebody else"),
    ],
)
def test_an_engine_that_does_not_come_back_says_why(view, sentence):
    client = SimpleNamespace(overview=lambda: SimpleNamespace(engine=view))

    with pytest.raises(StartFailed, match=sentence):
        wait_until_loaded_anew(client, EngineView(state="ready", pid=1), lambda _: None)
