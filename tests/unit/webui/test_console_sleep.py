"""Sleep on the page *Settings*: the choice, whether the Mac is kept awake now and for what, and how often it slept."""

import html
import re

import msgspec
import pytest

from control.wire import Power
from tests.fakes import console_answers as answers
from tests.fakes import control as fake


@pytest.fixture
async def page(console):
    console.control.answers = answers.everything()
    return console


def with_power(page, **power) -> None:
    page.control.overview = msgspec.structs.replace(fake.overview(), power=Power(**{"can_keep_awake": True} | power))


async def panel(page) -> str:
    text = (await page.browser.get("/settings")).text.split('id="sleep"')[1].split("</section>")[0]
    return html.unescape(text)


async def words(page) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", await panel(page)).split())


async def test_the_choice_in_force_is_marked_and_another_is_one_click(page):
    with_power(page, keep_awake="loaded")
    shown = await panel(page)

    await page.post("/settings/keep-awake", keep_awake="never")

    assert re.search(r'value="loaded" aria-pressed="true"', shown)
    assert page.control.orders == [("POST", "/settings/keep-awake", {"keep_awake": "never"})]
    assert "This is when the Mac is kept awake from now on." in (await page.browser.get("/settings")).text


async def test_what_is_no_choice_is_no_order(page):
    await page.post("/settings/keep-awake", keep_awake="sometimes")

    assert page.control.orders == []


@pytest.mark.parametrize(
    ("power", "sentence"),
    [
        ({"awake_reason": "requests", "is_kept_awake": True}, "Kept awake now: requests run or wait."),
        ({"awake_reason": "linger", "is_kept_awake": True}, "Kept awake for half a minute more"),
        ({"awake_reason": "loaded", "is_kept_awake": True}, "Kept awake now: a model is loaded."),
        ({"awake_reason": "requests"}, "It should be kept awake now, but caffeinate does not run."),
        ({}, "Not kept awake now: there is nothing to do."),
        ({"keep_awake": "never"}, "requests stand still while the Mac sleeps"),
        ({"can_keep_awake": False}, "This machine can't be kept awake from here"),
    ],
)
async def test_it_says_whether_the_mac_is_kept_awake_and_why(page, power, sentence):
    with_power(page, **power)

    assert sentence in await words(page)


async def test_sleeps_are_told_once_there_are_any(page):
    with_power(page)
    before = await words(page)
    with_power(page, sleeps=2, slept_s=7500.0, woke_at_s=answers.NOW_S)
    page.watch.forget()

    after = await words(page)

    assert "slept" not in before
    assert "It slept 2 times since the gateway was started, 2 h 5 min together" in after


async def test_without_control_nothing_can_be_chosen(page):
    page.control.is_silent = True
    page.watch.forget()

    shown = await panel(page)

    assert shown.count(" disabled") == 3
    assert 'aria-pressed="true"' not in shown
