"""`splash restart` on little processes: who ends, who lives on, what is waited for, and what is said."""

import os
import signal
import socket
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from control.cli import replacing, waiting
from control.cli import restart as restarting
from control.cli.admin_client import AdminClient
from control.cli.restart import Restart, restart, wait_until_loaded_anew, wanted_targets
from control.command_errors import HomeUnusable, NotAnswering, NotRunning, OrderRefused, PortTaken, StartFailed
from control.home import Home
from control.identity import live_process
from control.wire import Accepted, EngineView
from tests.fakes.control import SECRET, FakeControl
from tests.fakes.control_record import record_of_this_process
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
    return Restart(home, shown.append)


@pytest.fixture
def successor(home, listen, monkeypatch):
    """What a start brings up: a little process with a record, as control or the console would write it."""

    def launch(name):
        record = listen(nonce=f"the new {name}").with_(name=name, manager="detached")
        home.write_record(record)
        return SimpleNamespace(log_from_byte=0, ended=lambda: None, wrote=lambda found: found.pid == record.pid)

    monkeypatch.setattr(replacing, "start_control", lambda *_: launch("control"))
    monkeypatch.setattr(replacing, "start_console", lambda *_: launch("webui"))


class Leaving:
    """A control that leaves when the request that runs has ended, after three looks, or at once by force."""

    old = None
    engine_pid = None
    is_quitting = False
    accepted = Accepted(message="Control leaves.")

    def __init__(self, home, record) -> None:
        self.record, self.looks = record, 0

    def leave(self, *, force: bool):
        self.forced = force
        if force or not self.accepted.running:
            self._end()
        return self.accepted

    def overview(self, **_):
        self.looks += 1
        is_old = self.record.pid == self.old.child.pid
        if is_old and self.looks == 3:
            self._end()
        running = [SimpleNamespace(output_tokens=700)] if is_old and self.looks < 3 else [None]
        view = EngineView(state="ready", pid=self.engine_pid, model_name="demo")
        return SimpleNamespace(engine=view, slots=running, quitting=self.is_quitting, leaving=False)

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
    for module, name in ((restarting, "AdminClient"), (restarting, "FollowingClient"), (replacing, "AdminClient")):
        monkeypatch.setattr(module, name, client)
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
    monkeypatch.setattr(replacing, "start_control", lambda *_: pytest.fail("started"))
    stranger, ours = listen(), listen("polite", "n", "--home", str(home.root))
    for each in (stranger, ours):
        os.kill(each.record.pid, signal.SIGSTOP)

    for each, force in ((stranger, True), (ours, False)):
        home.write_record(each.with_(name="control"))
        with pytest.raises(NotAnswering):
            list(restart(order, ("control",), force=force))
    monkeypatch.setattr(replacing, "start_control", lambda *_: (_ for _ in ()).throw(StartFailed("on its way")))
    with pytest.raises(StartFailed, match="on its way"):
        list(restart(order, ("control",), force=True))

    assert live_process(stranger.record) is not None
    assert live_process(ours.record) is None


def test_the_order_to_leave_says_whether_it_is_forced(home):
    fake = FakeControl()
    fake.start()
    try:
        home.admin_secret_file.write_text(SECRET.ljust(40, "x"))
        monkey = AdminClient(home, record_of_this_process(fake.port))
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


@contextmanager
def turn_of_another(home, between=lambda: None):
    """Somebody has the turn until he is waited for; `between` is what he does before he gives it up."""
    is_held, is_waited_for = threading.Event(), threading.Event()

    def hold() -> None:
        with home.only_one("up", wait=True):
            is_held.set()
            assert is_waited_for.wait(10)
            between()

    other = threading.Thread(target=hold)
    other.start()
    assert is_held.wait(10)
    yield is_waited_for
    other.join()


def test_who_comes_second_says_for_whom_it_waits_and_does_not_restart_again(home, control, listen, monkeypatch):
    monkeypatch.setattr(replacing, "start_control", lambda *_: pytest.fail("a second one was started"))
    new = listen(nonce="of the other restart").with_(name="control", manager="detached")
    shown = []

    with turn_of_another(home, lambda: home.write_record(new)) as is_waited_for:
        order = Restart(home, lambda said: (shown.append(said), is_waited_for.set()))
        [said] = restart(order, ("control",), force=False)

    assert shown == [f"Waiting for pid {os.getpid()}, which starts or restarts Splash."]
    assert said == f"control was restarted just now by pid {os.getpid()}; it is pid {new.pid}."


def test_who_comes_second_restarts_what_the_first_has_not(home, control, successor):
    with turn_of_another(home) as is_waited_for:
        [said] = restart(Restart(home, lambda _: is_waited_for.set()), ("control",), force=False)

    assert said.startswith(f"control is pid {home.read_record('control').pid};")
    assert live_process(control.old.record) is None


def test_the_turn_is_kept_while_requests_are_waited_for(home, control, successor):
    control.client.accepted = Accepted(message="Control leaves.", running=1)
    holders = []

    list(restart(Restart(home, lambda _: holders.append(home.holder_of("up"))), ("control",), force=False))

    assert [holder.pid for holder in holders] == [os.getpid()]


def test_what_is_started_follows_the_settings_of_that_moment(home, order, control, successor, monkeypatch):
    started, launch = [], replacing.start_console
    monkeypatch.setattr(
        replacing, "start_console", lambda manager, settings, *_: (started.append(settings.is_lan_on), launch())[1]
    )
    file = home.root / "splash.toml"
    file.write_text("SPLASH_LAN = true\n")
    control.client.leave = lambda client, force: (file.unlink(), client._end(), Leaving.accepted)[2]

    list(restart(order, ("control", "webui"), force=False))

    assert started == [False]


@pytest.mark.parametrize("obstacle", ["the home is full", "somebody has the port"])
def test_control_serves_on_when_no_other_could_be_started(home, order, control, monkeypatch, obstacle):
    control.client.leave = lambda *_, **__: pytest.fail("told to leave")
    with socket.socket() as somebody:
        if obstacle == "the home is full":
            full = HomeUnusable("control.json can't be written: No space left on device.")
            monkeypatch.setattr(Home, "require_room_for_record", lambda *_: (_ for _ in ()).throw(full))
        else:
            somebody.bind(("127.0.0.1", 0))
            somebody.listen()
            # A process of this home may have it; this one is none.
            monkeypatch.setenv("SPLASH_API_PORT", str(somebody.getsockname()[1]))

        with pytest.raises((HomeUnusable, PortTaken), match=r"can't be written|SPLASH_API_PORT"):
            list(restart(order, ("control",), force=False))

    assert live_process(control.old.record) is not None


def test_an_engine_that_was_replaced_meanwhile_is_no_failure(home, order, control, successor):
    another = control.engine.record.pid + 1

    def leave(client, force):
        control.engine.child.kill()
        control.engine.child.wait()
        client._end()
        return Leaving.accepted

    control.client.leave, control.client.engine_pid = leave, another

    [said] = restart(order, ("control",), force=False)

    assert said.endswith(
        f"; the engine that ran before (pid {control.engine.record.pid}) has ended meanwhile, and pid {another} is in "
        "its place."
    )


def test_nothing_is_started_for_somebody_who_quits_meanwhile(order, control, monkeypatch):
    monkeypatch.setattr(replacing, "start_control", lambda *_: pytest.fail("started"))
    control.client.accepted = Accepted(message="Control leaves.", running=1)
    control.client.is_quitting = True

    with pytest.raises(OrderRefused, match="Splash quits"):
        list(restart(order, ("control",), force=False))


def test_a_control_that_does_not_even_answer_the_order_to_leave_hangs(order, control):
    def leave(_client, force):
        raise NotAnswering("pid 1 on port 1 said nothing to /leave")

    control.client.leave = leave

    with pytest.raises(StartFailed, match=r"hangs.*`splash restart control --force`"):
        list(restart(order, ("control",), force=False))


def test_a_control_that_hangs_while_it_leaves_is_not_waited_for_without_end(order, control, monkeypatch):
    monkeypatch.setattr(replacing, "HANG_LIMIT_S", 0)
    control.client._end = lambda _: os.kill(control.old.record.pid, signal.SIGSTOP)

    with pytest.raises(StartFailed, match=r"hangs.*`splash restart control --force`"):
        list(restart(order, ("control",), force=False))
