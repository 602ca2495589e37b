"""A full disk costs nobody the model that runs, nor those who wait their place: refused in time, or tried again."""

import errno
import os

import httpx
import msgspec
import pytest

from control import wire
from control.admin.errors import HomeFull
from control.command_errors import HomeUnusable
from control.engine_process import EngineProcess
from control.home import Home
from control.lifecycle import BACK_OFF_S, FAILURE_LIMIT, Exit, Wanted
from control.wire import LoadRequest
from tests.unit.control_lifecycle.scene import Hub, Scene
from tests.unit.control_lifecycle.test_admin_api import api, error_of  # noqa: F401  # a fixture
from tests.unit.control_lifecycle.test_load_orders import HUB, downloading, settled

KILLED = Exit("The engine (pid 7) was killed by SIGKILL.")


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_restart_on_a_full_disk_is_refused_and_the_model_runs_on():
    scene = await Scene().ready()
    running = scene.join()
    scene.engine.disk_is_full = True

    with pytest.raises(HomeFull, match="No space left on device"):
        await scene.supervisor.restart()
    await scene.look()

    assert (scene.state, scene.line.is_open, running.interruption) == ("ready", True, None)


async def test_a_switch_on_a_full_disk_is_refused_and_the_model_runs_on():
    scene = await Scene().ready()
    scene.engine.disk_is_full = True

    with pytest.raises(HomeFull, match="No space left on device"):
        await scene.supervisor.load(LoadRequest(model="other"))
    await scene.supervisor.load(LoadRequest(model="demo"))
    await scene.look()

    assert (scene.state, scene.supervisor.wanted_model, scene.line.is_open) == ("ready", "demo", True)


async def test_a_load_on_a_full_disk_leaves_those_who_wait_held():
    scene = await Scene().ready()
    scene.supervisor.unload(force=False)
    await scene.look()
    ticket = scene.join()
    scene.engine.disk_is_full = True

    with pytest.raises(HomeFull):
        await scene.supervisor.load(LoadRequest())

    assert (scene.state, scene.supervisor.availability, ticket.interruption) == ("unloaded", "held", None)


async def test_a_download_that_filled_the_disk_is_told_and_the_model_runs_on():
    scene = await downloading()

    scene.engine.disk_is_full = True
    scene.preview.elsewhere[HUB].end()
    await settled()

    view = scene.supervisor.view()
    assert (view.state, view.model_name, view.wanted_model) == ("ready", "demo", "demo")
    assert "No space left on device" in view.error


async def test_a_short_download_that_filled_the_disk_is_the_answer_to_the_order():
    scene = await Scene().ready()
    hub = scene.preview.elsewhere[HUB] = Hub()
    hub.end()
    scene.engine.disk_is_full = True

    with pytest.raises(HomeFull, match="No space left on device"):
        await scene.supervisor.load(LoadRequest(model=HUB))

    assert (scene.state, scene.supervisor.view().error) == ("ready", None)


async def test_after_a_crash_on_a_full_disk_requests_wait_until_there_is_room():
    scene = await Scene().ready()
    scene.engine.disk_is_full = True
    scene.engine.end = KILLED
    await scene.look()
    held = scene.join("held")
    for _ in range(2 * FAILURE_LIMIT):
        await scene.look(after_s=BACK_OFF_S[-1])
    meanwhile = scene.supervisor.view()

    scene.engine.disk_is_full = False
    await scene.look(after_s=BACK_OFF_S[-1])
    await scene.supervisor.refresh()

    assert (meanwhile.state, meanwhile.holds) == ("crashed", True)
    assert "No space left on device" in meanwhile.error
    assert (scene.state, held.interruption, held.admitted.is_set()) == ("ready", None, True)
    assert (scene.supervisor.view().restarts, scene.supervisor.view().error) == (1, None)


async def test_a_disk_that_fills_while_a_restart_drains_is_waited_for():
    scene = await Scene().ready()
    await scene.supervisor.restart()
    scene.engine.disk_is_full = True
    await scene.look()
    held = scene.join()
    waiting = scene.state

    scene.engine.disk_is_full = False
    await scene.look(after_s=BACK_OFF_S[0])
    await scene.supervisor.refresh()

    assert (waiting, scene.state, held.interruption) == ("crashed", "ready", None)


async def test_a_refused_restart_is_a_503_that_names_the_file_and_the_reason(api):  # noqa: F811
    await api.scene.ready()
    api.scene.engine.disk_is_full = True

    answer: httpx.Response = await api.client.post(wire.RESTART)

    assert (answer.status_code, error_of(answer)) == (
        503,
        wire.AdminError(
            code="home_unusable",
            message="secrets/engine.json can't be written: No space left on device. Nothing was stopped.",
        ),
    )
    overview = msgspec.json.decode((await api.client.get(wire.OVERVIEW)).content, type=wire.Overview)
    assert overview.engine.state == "ready"


def test_trying_to_write_finds_a_full_disk_and_leaves_nothing_behind(home, monkeypatch):
    before = sorted(home.root.rglob("*"))
    home.require_room_for_launch()
    monkeypatch.setattr("control.home.os.fsync", full)

    with pytest.raises(HomeUnusable, match=r"engine\.json can't be written: No space left on device"):
        home.require_room_for_launch()

    assert sorted(home.root.rglob("*")) == before


@pytest.mark.parametrize("folder", ["secrets", "run"])
def test_trying_to_write_finds_a_file_that_cannot_be_replaced(home, folder):
    (home.root / folder / "engine.json").mkdir()

    with pytest.raises(HomeUnusable, match=rf"{folder}/engine\.json can't be written: Is a directory"):
        home.require_room_for_launch()


def test_no_engine_is_begun_without_room_for_what_it_writes_itself(home):
    (home.root / "run" / "engine.json").mkdir()
    engine = EngineProcess(home, port=1, command=["no-such-program"])

    with pytest.raises(HomeUnusable):
        engine.spawn(Wanted("demo"))

    assert not home.launch_file.exists()
