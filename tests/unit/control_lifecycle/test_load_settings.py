"""The settings of a load on their way through the supervisor, and what its view tells of the engine that has them."""

import pytest

from control.lifecycle import Wanted
from control.wire import LoadRequest
from engine import wire
from tests.unit.control_lifecycle.scene import Scene, status


@pytest.fixture
def scene():
    return Scene()


async def test_a_setting_that_is_left_out_stays_and_one_can_go_back_to_its_default(scene):
    await scene.ready("other", context=4096, kv_bits=8, max_gap_ms=250, decode_share=0.25)

    await scene.supervisor.load(LoadRequest(context=8192))
    await scene.look()
    await scene.supervisor.load(LoadRequest(model="other", kv_bits="default", max_gap_ms="default"))
    await scene.look()

    assert scene.engine.spawned[1:] == [
        Wanted("other", 8192, kv_bits=8, max_gap_ms=250, decode_share=0.25),
        Wanted("other", 8192, decode_share=0.25),
    ]


async def test_the_same_settings_said_in_full_are_not_loaded_again(scene):
    await scene.ready("other", kv_bits=8)

    await scene.supervisor.load(LoadRequest(model="other", kv_bits=8, max_gap_ms=500, decode_share=0.5))
    await scene.look()

    assert (scene.state, len(scene.engine.spawned)) == ("ready", 1)


async def test_the_view_has_what_the_engine_says_of_its_cache_but_for_the_list_of_misses(scene):
    miss = wire.MissExplanation(
        id="r",
        sampled_at_s=1.0,
        cause="cold",
        prompt_tokens=9,
        restored_tokens=0,
        matched_tokens=0,
        first_difference=None,
        distance_tokens=0,
    )
    promises, governor = wire.PromiseStatus(max_gap_ms=500, decode_share=0.5), wire.GovernorStatus(is_pressed=True)
    scene.engine.says = status(
        cache=wire.CacheStatus(is_on=True, used_bytes=5, misses=(miss,)), promises=promises, governor=governor
    )
    await scene.ready()

    view = scene.supervisor.view()

    assert view.cache == wire.CacheStatus(is_on=True, used_bytes=5)
    assert (view.promises, view.governor) == (promises, governor)
