"""Since when the engine is what it is, as control tells it after it came back and found the engine at work."""

import time

import pytest

from control.engine_process import Adopted
from control.lifecycle import Wanted
from engine import wire
from tests.unit.control_lifecycle.scene import Scene, status


@pytest.fixture
def scene():
    return Scene()


async def test_an_adopted_model_is_ready_since_it_became_ready_and_not_since_control_came_back(scene):
    scene.engine.adoptable = Adopted(Wanted("other", 100))
    scene.engine.started_at_s = time.time() - 800.0
    scene.engine.says = status(load=wire.LoadProgress(seconds=60.0))

    await scene.supervisor.adopt()

    assert scene.state == "ready"
    assert time.time() - scene.supervisor.view().since_s == pytest.approx(740.0, abs=30.0)


async def test_a_model_that_loads_since_before_control_came_says_since_when(scene):
    scene.engine.adoptable = Adopted(Wanted("other", 100))
    scene.engine.started_at_s = time.time() - 800.0
    scene.engine.answers_at_once = False

    await scene.supervisor.adopt()

    assert scene.state == "loading"
    assert time.time() - scene.supervisor.view().since_s == pytest.approx(800.0, abs=30.0)
