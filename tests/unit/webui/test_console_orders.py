import re

import msgspec
import pytest

from control.wire import AdminError
from tests.fakes import control as fake
from webui import control_client
from webui.text import load_texts
from webui.views.engine import orders
from webui.watch import Seen


def sheet(html: str, panel: str) -> str:
    return re.sub(r"\s+", " ", html.split(f'id="{panel}"')[1].split("</form>")[0])


async def test_each_button_is_one_order_to_control(console):
    for path in ("/engine/unload", "/engine/stop", "/engine/restart", "/engine/cache/clear", "/requests/r4812/cancel"):
        answer = await console.post(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")

    assert console.control.orders == [
        ("POST", "/engine/unload", {}),
        ("POST", "/engine/unload", {"force": True}),
        ("POST", "/engine/restart", {}),
        ("POST", "/engine/cache/clear", {}),
        ("POST", "/requests/r4812/cancel", {}),
    ]


@pytest.mark.parametrize(
    ("value", "is_ordered"), [("1", True), ("4", True), ("0", False), ("5", False), ("", False), ("1" * 5_000, False)]
)
async def test_concurrency_is_one_to_four(console, value, is_ordered):
    await console.post("/engine/concurrency", concurrency=value)

    assert bool(console.control.orders) is is_ordered


async def test_controls_own_sentence_is_shown_once(console):
    console.control.refusal = AdminError(code="does_not_fit", message="It needs 231.4 GiB; 222.7 GiB are there.")

    answer = await console.post("/model/load", model="big")
    first = await console.browser.get("/")
    second = await console.browser.get("/")

    assert answer.status_code == 303
    assert "It needs 231.4 GiB; 222.7 GiB are there." in first.text
    assert "231.4" not in second.text


async def test_an_order_that_does_not_reach_control_says_so(console):
    console.control.stop()
    try:
        await console.post("/engine/unload")
        page = await console.browser.get("/")
    finally:
        console.control.start(console.control.port)

    assert "the order did not reach it" in page.text


async def test_an_order_that_arrived_and_is_not_answered_in_time_is_not_called_undelivered(console, monkeypatch):
    monkeypatch.setattr(control_client, "ORDER_TIMEOUT_S", 0.1)
    console.control.answers_after_s = 0.3

    await console.post("/engine/unload")
    console.control.answers_after_s = 0.0
    page = (await console.browser.get("/")).text

    assert console.control.orders == [("POST", "/engine/unload", {})]
    assert "The order was sent, but the gateway did not confirm it in time" in page
    assert "did not reach" not in page


async def test_a_load_may_take_longer_than_other_orders(console, monkeypatch):
    monkeypatch.setattr(control_client, "ORDER_TIMEOUT_S", 0.1)
    console.control.answers_after_s = 0.3

    await console.post("/model/load", model="big")
    console.control.answers_after_s = 0.0

    assert 'id="notice"' not in (await console.browser.get("/")).text


async def test_an_id_cannot_leave_its_place_in_controls_path(console):
    await console.post("/requests/a%3Fb%23c/cancel")

    assert console.control.orders == [("POST", "/requests/a?b#c/cancel", {})]


async def test_a_notice_says_when_it_was_and_can_be_dismissed(console):
    await console.post("/engine/concurrency", concurrency="many")

    page = (await console.browser.get("/")).text
    notice = re.sub(r"\s+", " ", page.split('id="notice"')[1].split("</p>")[0])

    assert re.search(r"\d\d:\d\d:\d\d", notice)
    assert '<a href="/">Dismiss</a>' in notice


async def test_every_order_says_beforehand_what_it_does_to_the_requests(console):
    console.control.overview = fake.overview(
        slots=(fake.prefilling(), fake.decoding()), line=tuple(fake.waiting(5000 + n, n) for n in range(1, 6))
    )

    page = (await console.browser.get("/")).text
    effect = (await console.browser.get("/model/load/effect", params={"model": "mine"})).text

    assert "2 running requests finish first. 5 wait and go on afterwards, in order." in effect
    assert "2 running requests finish first. 5 wait and are held until the next load." in sheet(page, "panel-unload")
    assert "2 running requests are cut off and get an error each." in sheet(page, "panel-force")
    assert "2 running requests finish first. 5 wait and go on afterwards" in sheet(page, "panel-restart")
    assert "Request #4809 of codex ends now. The 812 tokens" in sheet(page, "cancel-r4809")
    assert "ends now, before it has an answer" in sheet(page, "cancel-r4812")
    assert "leaves the line and never runs" in sheet(page, "cancel-r5001")
    assert "5 waiting requests are turned away" in (await console.browser.get("/quit")).text


@pytest.mark.parametrize(("language", "then"), [("en", "Then "), ("zh", "随后")])
@pytest.mark.parametrize("state", ["failed", "unloaded"])
async def test_a_load_that_ends_nothing_does_not_begin_with_then(console, state, language, then):
    console.control.overview = fake.overview(view=fake.engine(state, pid=None, model=None))
    console.browser.headers["accept-language"] = language

    effect = (await console.browser.get("/model/load/effect", params={"model": "mine"})).text
    waited = fake.overview(view=fake.engine(state, pid=None, model=None), line=(fake.waiting(5001, 1),))

    assert orders(Seen(waited, (), age_s=0.0, is_current=True), load_texts()["en"]).load_effect == (
        "The chosen model is loaded; requests that arrive meanwhile are held. 1 waits and goes on afterwards."
    )
    assert then not in effect
    assert {"en": "The chosen model is loaded", "zh": "加载所选模型"}[language] in effect


async def test_with_nobody_to_wait_for_nothing_is_said_to_come_then(console):
    console.control.overview = fake.overview()

    page = (await console.browser.get("/")).text
    effects = [sheet(page, panel) for panel in ("panel-unload", "panel-restart")]
    effects.append((await console.browser.get("/model/load/effect", params={"model": "mine"})).text)
    effects.append((await console.browser.get("/quit")).text)

    assert "The weights leave memory at once;" in effects[0]
    assert "takes the place of the loaded one at once" in effects[2]
    assert not any("Then " in effect or "Nothing is running. " in effect for effect in effects)


async def test_what_a_client_waits_for_as_a_whole_is_lost_when_it_is_cancelled(console):
    whole = msgspec.structs.replace(fake.decoding(), stream=False)
    console.control.overview = fake.overview(slots=(whole, fake.decoding(4810, slot=3, output=1)))

    page = (await console.browser.get("/")).text

    assert "the 812 tokens generated so far are lost" in sheet(page, "cancel-r4809")
    assert "The one token that it has generated is already with its client" in sheet(page, "cancel-r4810")


async def test_while_control_is_silent_no_button_pretends_to_cancel(console):
    console.control.overview = fake.overview(slots=(fake.decoding(),), line=(fake.waiting(5001, 1),))
    await console.browser.get("/now/live")
    console.control.is_silent = True
    console.watch.forget()

    html = (await console.browser.get("/now/live")).text

    buttons = re.findall(r'<button[^>]*popovertarget="cancel-[^>]*>', html)
    assert len([button for button in buttons if "data-first" not in button]) == 2
    assert all("disabled" in button for button in buttons if "data-first" not in button)


async def test_every_form_of_every_page_carries_the_token_of_the_session(console):
    token = console.sessions.read(dict(console.browser.cookies)).form_token
    console.control.overview = fake.overview(slots=(fake.decoding(),), line=(fake.waiting(5001, 1),))
    await console.post("/clients", name="one")

    pages = [(await console.browser.get(path)).text for path in ("/", "/clients", "/quit")]

    forms = [form for page in pages for form in re.findall(r"<form.*?</form>", page, re.DOTALL)]
    assert len(forms) > 12
    assert all('method="post"' in form and f'name="form_token" value="{token}"' in form for form in forms)


async def test_a_key_is_revoked_by_its_number(console):
    await console.post("/clients/3/revoke")

    assert console.control.orders == [("DELETE", "/keys/3", {})]


async def test_nothing_on_the_page_of_a_new_key_leads_away_by_one_click_of_a_preference(console):
    created = (await console.post("/clients", name="laptop")).text
    later = (await console.browser.get("/clients")).text

    assert 'action="/preferences"' not in created
    assert created.count('title="Copy the key first: it is shown on this page only."') == 2, "both stay in sight"
    assert 'action="/preferences"' in later


async def test_without_control_the_page_of_keys_says_so(console):
    console.control.is_silent = True

    answer = await console.browser.get("/clients")

    assert answer.status_code == 200
    assert "The gateway does not answer, so the keys are not known" in answer.text


async def test_an_unknown_page_offers_the_way_back(console):
    answer = await console.browser.get("/nowhere")

    assert answer.status_code == 404
    assert 'href="/"' in answer.text


async def test_the_address_of_an_order_says_that_it_takes_no_visits(console):
    answer = await console.browser.get("/engine/unload")

    assert answer.status_code == 405
    assert "This address takes no visits" in answer.text
    assert "There is no such page" not in answer.text
