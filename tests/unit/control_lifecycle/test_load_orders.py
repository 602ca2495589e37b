"""A load of what is not on this machine: what runs goes on, and stops only for a model that is there."""

import asyncio

import pytest

from control.admin.errors import ModelRefused
from control.lifecycle import Wanted
from control.wire import LoadRequest
from tests.unit.control_lifecycle.scene import Hub, Scene

HUB = "org/name"


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def downloading(**more) -> Scene:
    """The demo runs, and a model of the hub is on its way."""
    scene = await Scene().ready()
    scene.preview.elsewhere[HUB] = Hub(**more)
    await scene.supervisor.load(LoadRequest(model=HUB))
    return scene


async def test_while_a_model_is_downloaded_the_running_one_serves():
    scene = await downloading()

    view = scene.supervisor.view()

    assert (view.state, view.model_name, view.wanted_model, view.error) == ("ready", "demo", HUB, None)
    assert (view.load.bytes_read, view.load.bytes_total) == (3, 10)
    assert scene.line.is_open and scene.supervisor.wanted_model == "demo"


async def test_when_it_is_here_the_running_one_makes_way():
    scene = await downloading()

    scene.preview.elsewhere[HUB].end()
    await settled()
    await scene.look()
    await scene.supervisor.refresh()

    assert scene.engine.spawned == [Wanted("demo"), Wanted(HUB)]
    assert scene.state == "ready"


async def test_a_download_that_soon_fails_is_the_answer_to_the_order():
    scene = await Scene().ready()
    hub = scene.preview.elsewhere[HUB] = Hub(refusal="there is no such model")
    hub.end()

    with pytest.raises(ModelRefused, match="there is no such model"):
        await scene.supervisor.load(LoadRequest(model=HUB))

    view = scene.supervisor.view()
    assert (view.state, view.wanted_model, view.error) == ("ready", "demo", None)


async def test_a_download_that_fails_later_is_told_and_the_running_model_serves_on():
    scene = await downloading(refusal="the disk is full")

    scene.preview.elsewhere[HUB].end()
    await settled()
    told = scene.supervisor.view()
    await scene.supervisor.load(LoadRequest())

    assert (told.state, told.wanted_model, told.error) == ("ready", "demo", "the disk is full")
    assert (len(scene.engine.spawned), scene.line.is_open) == (1, True)
    assert scene.supervisor.view().error is None


async def test_a_model_that_turns_out_not_to_fit_when_it_is_here_is_refused():
    scene = await downloading()

    scene.preview.refused.add(HUB)
    scene.preview.elsewhere[HUB].end()
    await settled()

    view = scene.supervisor.view()
    assert (view.state, view.model_name, view.error) == ("ready", "demo", f"{HUB} does not fit")


@pytest.mark.parametrize("order", ["other", "demo", "unload", "restart", "quit", "control ends"])
async def test_any_other_order_calls_the_download_off(order):
    scene = await downloading()
    hub = scene.preview.elsewhere[HUB]

    match order:
        case "unload":
            scene.supervisor.unload(force=False)
        case "quit":
            scene.supervisor.quit(force=False)
        case "restart":
            await scene.supervisor.restart()
        case "control ends":
            await scene.supervisor.release()
        case model:
            await scene.supervisor.load(LoadRequest(model=model))
    hub.end()
    await settled()

    assert hub.was_called_off
    assert HUB not in [wanted.model for wanted in scene.engine.spawned]


async def test_asking_for_it_again_goes_on_with_the_same_download():
    scene = await downloading()

    await scene.supervisor.load(LoadRequest(model=HUB))
    await scene.supervisor.load(LoadRequest())

    assert not scene.preview.elsewhere[HUB].was_called_off
    assert scene.supervisor.view().wanted_model == HUB


async def test_after_an_unload_a_download_that_fails_leaves_those_who_wait_held():
    scene = await Scene().ready()
    scene.supervisor.unload(force=False)
    await scene.look()
    scene.preview.elsewhere[HUB] = Hub(refusal="nobody is there")
    scene.preview.elsewhere[HUB].end()
    ticket = scene.join()

    with pytest.raises(ModelRefused, match="nobody is there"):
        await scene.supervisor.load(LoadRequest(model=HUB))

    assert (scene.state, scene.supervisor.availability, ticket.interruption) == ("unloaded", "held", None)


async def test_a_restart_of_a_model_that_is_gone_is_refused_and_it_runs_on():
    scene = await Scene().ready()
    scene.preview.refused.add("demo")

    with pytest.raises(ModelRefused, match="demo is gone"):
        await scene.supervisor.restart()

    assert (scene.state, scene.line.is_open) == ("ready", True)


async def test_an_engine_that_dies_during_a_download_is_started_again_and_then_makes_way():
    scene = await downloading()
    await scene.supervisor.refresh()
    scene.engine.is_silent = True
    for _ in range(5):
        scene.now += 6
        await scene.supervisor.refresh()
    scene.engine.is_silent = False
    await scene.look()
    await scene.look(after_s=1)
    await scene.supervisor.refresh()

    scene.preview.elsewhere[HUB].end()
    await settled()
    await scene.look()

    assert scene.engine.spawned == [Wanted("demo"), Wanted("demo"), Wanted(HUB)]
