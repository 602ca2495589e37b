"""The supervisor and an engine that is stuck: held at once, killed, counted as a failure, started again."""

import asyncio

from control.lifecycle import FAILURE_LIMIT, Exit, Wanted
from control.wire import LoadRequest
from tests.unit.control_lifecycle.scene import Scene
from tests.unit.control_lifecycle.test_wedge import RUNNING, at


async def pass_time(scene: Scene, seconds: int, *, every_s: int = 6) -> None:
    """Attempts to get a status, as they come while an engine is silent."""
    for _ in range(0, seconds, every_s):
        scene.now += every_s
        await scene.supervisor.refresh()


async def test_a_silent_engine_is_killed_counted_and_started_again():
    scene = await Scene().ready()
    scene.engine.is_silent = True

    await pass_time(scene, 30)
    await scene.look()
    crashed = scene.supervisor.view()
    scene.engine.is_silent = False
    await scene.look(after_s=1)
    await scene.supervisor.refresh()

    assert scene.engine.was_stuck
    assert (crashed.state, crashed.holds) == ("crashed", True)
    assert crashed.error == "The engine did not answer for 30 s, though it lived, and was killed."
    assert (scene.state, scene.supervisor.view().restarts) == ("ready", 1)


async def test_a_stalled_engine_is_killed_and_nobody_is_sent_to_it_meanwhile():
    scene = await Scene().ready()
    scene.join("the one that hangs")
    scene.engine.holds_its_end = asyncio.Event()
    for _ in range(62):
        scene.now += 1
        scene.engine.says = at(scene.now, RUNNING, steps=9)
        await scene.supervisor.refresh()
    await scene.look()
    late = scene.join("late")
    meanwhile = (scene.supervisor.availability, scene.supervisor.engine, late.admitted.is_set())

    scene.engine.holds_its_end.set()
    await scene.look()

    assert meanwhile == ("held", None, False)
    assert scene.state == "crashed"
    assert "made no step for 60 s" in scene.supervisor.view().error


async def test_an_engine_that_hangs_while_it_drains_does_not_hold_up_the_next_model():
    scene = await Scene().ready()
    scene.join("the one that hangs")
    await scene.supervisor.load(LoadRequest(model="other"))
    scene.engine.is_silent = True

    await pass_time(scene, 36)
    await scene.look()

    assert scene.engine.spawned == [Wanted("demo"), Wanted("other")]


async def test_a_machine_that_slept_finds_its_engine_again():
    scene = await Scene().ready()
    scene.engine.is_silent = True

    await pass_time(scene, 10 * 3600, every_s=3600)
    scene.engine.is_silent = False
    await scene.supervisor.refresh()

    assert (scene.state, scene.engine.was_stuck) == ("ready", False)


async def test_five_crashes_in_two_minutes_are_the_end_with_the_last_lines_and_the_waiting_are_told():
    scene = await Scene().ready()
    for _ in range(FAILURE_LIMIT - 1):
        scene.engine.end = Exit("It ended.", last_lines=("Traceback:", "MemoryError"))
        await scene.look()
        await scene.look(after_s=16)
        await scene.supervisor.refresh()
    running, waiting = [scene.join(name) for name in "ab"], scene.join("waits")

    scene.engine.end = Exit("It ended.", last_lines=("Traceback:", "MemoryError"))
    await scene.look()
    failed = scene.supervisor.view()
    await scene.supervisor.load(LoadRequest())
    await scene.supervisor.refresh()

    assert failed.error == (
        "The engine ended 5 times in a row and is not started again. Last: It ended.\nTraceback:\nMemoryError"
    )
    assert (failed.state, failed.holds) == ("failed", False)
    assert (waiting.interruption.code, [each.interruption for each in running]) == ("no_model", [None, None])
    assert scene.state == "ready"
