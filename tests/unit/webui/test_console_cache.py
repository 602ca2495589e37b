"""The button that empties the cache: when it can be used, what it says beforehand, and what it freed."""

import re

import msgspec
import pytest

from control.wire import AdminError, CacheCleared, CacheStatus
from tests.fakes import control as fake
from webui import control_client


async def panel(console) -> tuple[bool, str]:
    """Whether its buttons can be used, and the sentence that they stand under."""
    html = (await console.browser.get("/now/live")).text
    opener = re.search(r'<button[^>]*popovertarget="panel-clear"[^>]*>', html)[0]
    sheet = html.split('id="panel-clear"')[1].split("</form>")[0]
    confirm = re.search(r"<button[^>]*>Clear the cache</button>", sheet)[0]
    assert ("disabled" in opener) is ("disabled" in confirm)
    return "disabled" not in opener, re.search(r'class="effect">(.*?)</p>', sheet)[1]


async def notice(console) -> str:
    page = (await console.browser.get("/")).text
    return re.sub(r"\s+", " ", page.split('id="notice"')[1].split("</p>")[0])


async def test_it_says_beforehand_what_goes_and_what_stays(console):
    is_usable, effect = await panel(console)

    assert is_usable
    assert effect.startswith("The cache keeps 8.2 GiB;")
    assert "Running requests go on" in effect


async def test_afterwards_the_page_says_once_and_calmly_what_was_freed(console):
    answer = await console.post("/engine/cache/clear")
    told = await notice(console)
    later = (await console.browser.get("/")).text

    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "The cache gave back 8.2 GiB (blocks: 4,100; snapshots: 58)." in told
    assert 'class="banner tone-good" role="status"' in told
    assert 'id="notice"' not in later


async def test_a_cache_that_held_nothing_says_so(console):
    console.control.cleared = CacheCleared(freed_bytes=0, blocks=0, snapshots=0)

    await console.post("/engine/cache/clear")

    assert "held nothing" in await notice(console)


@pytest.mark.parametrize(
    "view",
    [
        *(fake.engine(state) for state in ("unloaded", "loading", "stopping", "crashed", "failed")),
        msgspec.structs.replace(fake.engine(), cache=CacheStatus(is_on=False, reason="a self-test")),
    ],
)
async def test_without_a_ready_model_or_with_its_cache_off_there_is_nothing_to_press(console, view):
    console.control.overview = fake.overview(view=view)

    is_usable, effect = await panel(console)

    assert not is_usable
    assert effect.startswith("There is no cache to clear")


async def test_what_the_gateway_says_against_it_is_shown_as_trouble(console):
    console.control.refusal = AdminError(code="engine_not_ready", message="No model is ready.")

    await console.post("/engine/cache/clear")
    told = await notice(console)

    assert "No model is ready, so" in told
    assert 'class="banner tone-wait" role="alert"' in told


async def test_it_may_take_as_long_as_a_step_of_the_device(console, monkeypatch):
    monkeypatch.setattr(control_client, "ORDER_TIMEOUT_S", 0.1)
    console.control.answers_after_s = 0.3

    await console.post("/engine/cache/clear")
    console.control.answers_after_s = 0.0

    assert "gave back" in await notice(console)


async def test_a_form_of_another_session_clears_nothing(console):
    answer = await console.post("/engine/cache/clear", form_token="not-ours")

    assert answer.status_code == 403
    assert console.control.orders == []
