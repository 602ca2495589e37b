"""What control does when the machine slept: it says so, counts it, and its engine gets all patience anew."""

import asyncio
import logging

import pytest

from control.errors import WaitedTooLong
from control.fifo import Line, Ticket
from control.metrics.throughput import Throughput
from control.power.awakening import Awakening
from control.power.clocks import Clocks, elapsed_s
from control.power.sleep_watch import SleepWatch
from tests.unit.control_gateway.gateway_stage import eventually
from tests.unit.control_lifecycle.scene import Scene
from tests.unit.control_lifecycle.test_wedge import RUNNING, at
from tests.unit.control_metrics.decoding_engine import DecodingEngine

TWO_HOURS_S = 7200.0


class Machine:
    """Its clocks; time passes only by what it does."""

    def __init__(self) -> None:
        self.clocks = Clocks(awake_s=0.0, elapsed_s=0.0, wall_s=1.8e9)

    def run(self, seconds: float) -> None:
        self._pass(seconds, seconds, seconds)

    def sleep(self, seconds: float) -> None:
        self._pass(0.0, seconds, seconds)

    def set_clock(self, by_s: float) -> None:
        self._pass(0.0, 0.0, by_s)

    def _pass(self, awake_s: float, elapsed_s: float, wall_s: float) -> None:
        now = self.clocks
        self.clocks = Clocks(now.awake_s + awake_s, now.elapsed_s + elapsed_s, now.wall_s + wall_s)


class Listener:
    """Looks at a machine's clocks, and writes down what it is told."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.told: list[str] = []
        self.watch = SleepWatch(
            woke=lambda: self.told.append("woke"), recheck=self._recheck, read=lambda: self.machine.clocks
        )
        self.watch.look()

    async def _recheck(self) -> None:
        self.told.append("recheck")


@pytest.fixture
def listener():
    return Listener()


def test_a_sleep_is_logged_with_its_duration_counted_and_told_at_once(listener, caplog):
    caplog.set_level(logging.INFO)
    listener.machine.sleep(TWO_HOURS_S)
    listener.machine.run(0.1)

    listener.watch.look()
    listener.watch.look()

    assert [record.message for record in caplog.records] == ["machine slept seconds=7200"]
    assert (listener.watch.num_sleeps, listener.watch.slept_s) == (1, pytest.approx(TWO_HOURS_S))
    assert listener.watch.woke_at_s == pytest.approx(1.8e9 + TWO_HOURS_S + 0.1)
    assert listener.told == ["woke"]


def test_a_clock_that_is_set_is_logged_and_nothing_else(listener, caplog):
    caplog.set_level(logging.INFO)
    for by_s in (3600.0, -7200.0):
        listener.machine.set_clock(by_s)
        listener.watch.look()

    assert [record.message for record in caplog.records] == [
        "wall clock was set by_s=+3600",
        "wall clock was set by_s=-7200",
    ]
    assert (listener.watch.num_sleeps, listener.told) == (0, [])


def test_a_standstill_is_no_sleep_but_wakes_everybody_too(listener):
    listener.machine.run(60.0)
    listener.watch.look()

    assert (listener.watch.num_sleeps, listener.told) == (0, ["woke"])


async def test_the_engine_is_looked_at_anew_once_for_each_awakening(listener):
    watching = asyncio.create_task(listener.watch.run())
    await asyncio.sleep(0)
    listener.machine.sleep(TWO_HOURS_S)
    listener.watch.look()  # somebody who judges by time looks first

    await eventually(lambda: "recheck" in listener.told, within_s=30)
    watching.cancel()

    assert listener.told == ["woke", "recheck"]


class Process:
    """What an `EngineProcess` is to an awakening."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def woke(self) -> None:
        self.calls.append("woke")

    async def recheck(self) -> None:
        self.calls.append("recheck")


class Night:
    """A supervisor with a puppet of an engine on a machine that can sleep. Its monotonic clock is the machine's."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.scene = Scene()
        self.process = Process()
        awakening = Awakening(self.scene.supervisor, self.process, monotonic=lambda: self.scene.now)
        self.watch = SleepWatch(woke=awakening.woke, recheck=awakening.recheck, read=lambda: self.machine.clocks)
        self.scene.supervisor.look_at_clocks = self.watch.look

    async def run(self, seconds: int, *, every_s: int = 6) -> None:
        """Attempts to get a status, as they come while an engine is silent."""
        for _ in range(0, seconds, every_s):
            self.machine.run(every_s)
            self.scene.now += every_s
            await self.scene.supervisor.refresh()
        await self.scene.look()

    def sleep(self, seconds: float) -> None:
        """And wake up: the supervisor looks ten times a second."""
        self.machine.sleep(seconds)
        self.scene.supervisor.look()


@pytest.fixture
async def night():
    night = Night()
    await night.scene.ready()
    await night.run(1, every_s=1)
    return night


async def test_an_engine_that_was_silent_before_the_sleep_has_its_whole_patience_after_it(night):
    night.scene.engine.is_silent = True
    await night.run(24)
    night.sleep(TWO_HOURS_S)

    await night.run(24)
    patient = (night.scene.state, night.scene.engine.was_stuck)
    await night.run(6)

    assert patient == ("ready", False)
    assert night.scene.engine.was_stuck
    assert "did not answer for 30 s" in night.scene.supervisor.view().error


async def test_an_attempt_that_was_under_way_when_the_machine_fell_asleep_is_not_the_last_straw(night):
    night.scene.engine.is_silent = True
    await night.run(24)
    night.scene.now += 6  # of them it slept most: its time limit ends on waking, before anybody looked
    night.machine.run(6)
    night.machine.sleep(TWO_HOURS_S)

    await night.scene.supervisor.refresh()

    assert (night.scene.state, night.scene.engine.was_stuck) == ("ready", False)


async def test_an_engine_that_makes_no_step_after_the_sleep_is_ended_a_minute_after_the_awakening(night):
    night.scene.engine.says = at(0, RUNNING, steps=9)
    await night.run(55, every_s=1)
    night.sleep(TWO_HOURS_S)

    await night.run(59, every_s=1)
    patient = night.scene.engine.was_stuck
    await night.run(2, every_s=1)

    assert (patient, night.scene.engine.was_stuck) == (False, True)


async def test_an_engine_that_answers_again_is_the_same_one(night):
    night.scene.engine.is_silent = True
    await night.run(24)
    night.sleep(TWO_HOURS_S)
    night.scene.engine.is_silent = False

    await night.run(60)

    assert (night.scene.state, night.scene.supervisor.view().restarts) == ("ready", 0)


@pytest.mark.parametrize("by_s", [TWO_HOURS_S, -TWO_HOURS_S, 400 * 86_400.0])
async def test_a_clock_that_is_set_gives_a_silent_engine_no_more_time_and_no_less(night, by_s):
    night.scene.engine.is_silent = True
    await night.run(24)
    night.machine.set_clock(by_s)
    before = night.scene.engine.was_stuck

    await night.run(6)

    assert (before, night.scene.engine.was_stuck) == (False, True)


async def test_after_the_sleep_the_engines_identity_is_checked_before_it_is_asked(night):
    night.sleep(TWO_HOURS_S)
    night.watch.look()

    await night.watch._recheck()

    assert night.process.calls == ["woke", "recheck"]


def waiting_line(machine: Machine) -> tuple[Line, Ticket]:
    line = Line(monotonic=lambda: machine.clocks.awake_s, elapsed=lambda: machine.clocks.elapsed_s, clock_check_s=0.005)
    ticket = Ticket("a")
    line.join(ticket)
    return line, ticket


@pytest.mark.parametrize("by_s", [30 * 86_400.0, -30 * 86_400.0])
async def test_a_clock_that_is_set_turns_no_waiting_request_away_and_keeps_none_longer(by_s):
    machine = Machine()
    line, ticket = waiting_line(machine)
    waiting = asyncio.create_task(line.wait(ticket))
    machine.set_clock(by_s)
    await asyncio.sleep(0.05)
    waited_on = not waiting.done()

    machine.run(24 * 3600)

    with pytest.raises(WaitedTooLong):
        await waiting
    assert waited_on


async def test_a_request_that_waits_through_two_hours_of_sleep_has_waited_two_hours():
    machine = Machine()
    line, ticket = waiting_line(machine)
    waiting = asyncio.create_task(line.wait(ticket))
    machine.sleep(TWO_HOURS_S)
    machine.run(22 * 3600 - 60)
    await asyncio.sleep(0.05)
    waited_on = not waiting.done()

    machine.run(61)

    with pytest.raises(WaitedTooLong):
        await waiting
    assert waited_on


def test_the_line_measures_waiting_by_a_clock_that_nobody_can_set():
    line, ticket = Line(), Ticket("a")

    line.join(ticket)

    assert abs(ticket.joined_elapsed_s - elapsed_s()) < 60


def test_a_sleep_and_the_windows_of_throughput_mean_the_same_seconds():
    # Both sides of the one limit: what the watch calls a sleep is a gap, and what it lets pass is none.
    for slept_s, expected in ((4.5, 0), (5.5, 1)):
        listener = Listener()
        throughput = Throughput(lambda stretch: None)
        engine = DecodingEngine(throughput)
        engine.join("a")
        for _ in range(3):
            engine.decode(1.0, 50)
            engine.sample()
        engine.sleep(slept_s)
        engine.decode(1.0, 50)
        engine.sample()
        listener.machine.sleep(slept_s)
        listener.watch.look()

        assert (listener.watch.num_sleeps, throughput.discarded.get("gap", 0)) == (expected, expected)
