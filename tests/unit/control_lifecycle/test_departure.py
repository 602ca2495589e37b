"""How control ends: what those who run, wait or still send are told, and when it may go."""

import asyncio

import pytest

from control import departure as departure_module
from control.admin.errors import Quitting
from control.departure import Departure
from control.errors import GatewayRestarts, SplashQuits
from control.fifo import Ticket
from control.reception import Reception
from tests.unit.control_lifecycle.scene import Scene


@pytest.fixture
async def scene():
    scene = Scene()
    await scene.ready()
    scene.line.set_concurrency(1)
    return scene


@pytest.fixture
def departure(scene):
    return Departure(scene.supervisor, scene.line, Reception())


def joined(scene, name):
    ticket = Ticket(name)
    scene.line.join(ticket)
    return ticket


async def test_an_order_to_leave_lets_those_that_run_finish_and_tells_those_that_wait(scene, departure):
    running, waiting = joined(scene, "running"), joined(scene, "waiting")

    accepted = departure.leave(force=False)
    again = departure.leave(force=False)

    assert (accepted.running, accepted.waiting) == (again.running, again.waiting) == (1, 1)
    assert isinstance(scene.line.refusal, GatewayRestarts)
    assert running.interruption is None
    assert isinstance(waiting.interruption, GatewayRestarts)
    assert not departure.left.is_set()
    scene.line.leave(running)
    scene.line.leave(waiting)
    async with asyncio.timeout(5):
        await departure.left.wait()
    assert scene.supervisor.view().state == "ready"


async def test_force_cuts_those_that_run_with_the_reason(scene, departure):
    running = joined(scene, "running")

    departure.leave(force=True)

    assert isinstance(running.interruption, GatewayRestarts)


async def test_whoever_still_sends_a_body_is_told_at_once(scene):
    reception = Reception()
    sending = asyncio.create_task(reception.until_closed(asyncio.sleep(60)))
    await asyncio.sleep(0)

    Departure(scene.supervisor, scene.line, reception).leave(force=False)

    with pytest.raises(GatewayRestarts):
        await sending


async def test_nobody_leaves_while_splash_quits(departure, scene):
    joined(scene, "running")
    departure.quit(force=False)

    with pytest.raises(Quitting):
        departure.leave(force=False)


async def test_a_signal_gives_streams_a_moment_and_then_quits_by_force(scene, departure, monkeypatch):
    monkeypatch.setattr(departure_module, "STREAM_GRACE_S", 0.1)
    running, waiting = joined(scene, "running"), joined(scene, "waiting")

    cut = asyncio.Event()
    quitting = asyncio.create_task(departure.quit_by_signal())
    await asyncio.sleep(0)
    told_at_once = (running.interruption, waiting.interruption)
    running.on_interrupt = cut.set
    async with asyncio.timeout(5):
        await cut.wait()
    scene.line.leave(running)
    scene.line.leave(waiting)

    assert told_at_once[0] is None
    assert isinstance(told_at_once[1], SplashQuits)
    assert isinstance(running.interruption, SplashQuits)
    async with asyncio.timeout(10):
        assert await quitting is True


async def test_an_engine_that_does_not_end_is_said_after_the_limit(scene, departure, monkeypatch):
    monkeypatch.setattr(departure_module, "ENGINE_LIMIT_S", 0.05)
    monkeypatch.setattr(scene.supervisor, "quit", lambda *, force: None)

    assert await departure.quit_by_signal() is False
