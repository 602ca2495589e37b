"""Forms that a person filled in while the gateway could not take them: nothing that was typed is lost."""

import html
import re

import pytest

from control import wire
from tests.fakes import console_answers as answers
from webui import control_client

FORMS = [
    ("/clients", {"name": "claude <1>", "request_class": "batch", "tokens_per_day": "5,000"}, "claude <1>"),
    ("/clients/3", {"request_class": "interactive", "max_in_flight": "2"}, "2"),
    ("/settings/aliases", {"name": "claude-local", "request_class": ""}, "claude-local"),
    ("/settings/heartbeats", {"heartbeat.messages": "ping"}, None),
    ("/cost/prices?range=week", {"whose": "default", "currency": "USD", "miss": "1", "hit": "0", "output": "3"}, "3"),
    ("/model/load", {"model": "big", "context": "9,000", "shown_context": ""}, "9,000"),
]


def fields_of(page: str) -> dict[str, str]:
    """What the form of the page sends."""
    form = page.split('id="kept"')[1].split("<form")[1].split("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    return {html.unescape(name): html.unescape(value) for name, value in found}


@pytest.fixture
async def page(console):
    console.control.keys = answers.keys()
    console.control.answers = answers.everything() | {wire.PRICES: wire.PriceList()}
    return console


@pytest.mark.parametrize(("path", "typed", "seen"), FORMS)
async def test_what_was_typed_is_kept_while_the_gateway_is_silent_and_is_sent_again(page, path, typed, seen):
    page.control.is_silent = True

    kept = await page.post(path, **typed)
    page.control.is_silent = False
    fields = fields_of(kept.text)
    await page.post(path, **{name: value for name, value in fields.items() if name != "form_token"})

    assert kept.status_code == 502
    assert "The gateway does not answer" in kept.text
    assert "<code>splash up</code>" in kept.text
    assert html.unescape(re.search('<form method="post" action="([^"]*)">', kept.text.split('id="kept"')[1])[1]) == path
    assert {name: value for name, value in fields.items() if name != "form_token"} == typed
    assert seen is None or f'<dd class="num">{html.escape(seen)}</dd>' in kept.text
    assert len(page.control.orders) == 1


async def test_an_order_that_may_have_been_followed_keeps_what_was_typed_too(page, monkeypatch):
    monkeypatch.setattr(control_client, "ORDER_TIMEOUT_S", 0.1)
    page.control.answers_after_s = 0.3

    kept = await page.post("/clients", name="claude")

    assert "did not confirm it in time" in kept.text
    assert fields_of(kept.text)["name"] == "claude"


async def test_a_page_that_keeps_a_form_offers_nothing_that_would_lose_it_by_accident(page):
    page.control.is_silent = True

    kept = (await page.post("/clients", name="claude")).text

    assert 'action="/preferences"' not in kept
    assert kept.count("disabled aria-label") == 2, "the two buttons stay in sight"
    assert 'title="First send or copy what you typed: it is on this page only."' in kept
    assert 'data-address="/clients"' in kept
