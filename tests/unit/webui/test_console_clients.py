"""The page *Clients*: keys with limits and use, the one sight of a new key, and what each client pastes."""

import html
import re
import time

import msgspec
import pytest

from control import wire
from control.wire import AdminError, KeyLimits
from tests.fakes import console_answers as answers
from webui.key_form import read_change, read_new
from webui.text import load_texts
from webui.views.clients import meter

KEY = "sk-splash-AbCdEfGhIjKlMnOpQrStUvWx9xYz"
TEXT = load_texts()["en"]


@pytest.fixture
async def page(console):
    console.control.keys = answers.keys()
    console.control.answers = answers.everything()
    return console


async def shown(console, path="/clients") -> str:
    answer = await console.browser.get(path)
    assert answer.status_code == 200
    return answer.text


def row(page: str, key_id: int) -> str:
    """Of the list, without the sheets."""
    cells = page.split(f'id="key-{key_id}"')[1].split("</tr>")[0].split('class="r c-orders"')[0]
    return " ".join(re.sub(r"<[^>]+>", " ", cells).split())


def blocks(page: str) -> dict[str, str]:
    """What is pasted, by client."""
    found = re.findall(r'<details id="connect-(\w+)".*?<pre[^>]*><code>(.*?)</code></pre>', page, re.DOTALL)
    return {name: html.unescape(text) for name, text in found}


async def test_each_key_is_shown_with_its_use_of_today_against_its_limits_and_of_30_days(page):
    listed = await shown(page)

    assert "1 of 2" in row(listed, 2)
    assert "431 of 500" in row(listed, 2)
    assert "5,120,402 of 5,000,000" in row(listed, 2)
    assert "93,900,000" in row(listed, 2)
    assert "45.0%" in row(listed, 2)
    assert "1,204 51,606,236 31,204 1,213,520,520 93.1%" in row(listed, 1)
    assert re.search("0 0 — not (yet|in 30 days)", row(listed, 3))


@pytest.mark.parametrize(("age_days", "last_used"), [(0, "not yet"), (29, "not yet"), (31, "not in 30 days")])
async def test_a_key_that_was_not_used_is_told_from_one_that_is_just_made(page, age_days, last_used):
    laptop = page.control.keys[2]
    page.control.keys[2] = msgspec.structs.replace(laptop, created_at_s=time.time() - age_days * 86_400)

    listed = await shown(page)

    assert f"0 0 — {last_used}" in row(listed, 3)


@pytest.mark.parametrize(
    ("used", "limit", "percent", "tone", "summary"),
    [
        (0, None, None, "idle", ""),
        (0, 100, 0, "idle", ""),
        (79, 100, 79, "idle", ""),
        (80, 100, 80, "wait", "nearly used up"),
        (100, 100, 100, "bad", "limit reached"),
        (173, 100, 100, "bad", "limit reached"),
    ],
)
def test_a_limit_that_is_near_or_reached_is_told_by_word_and_sign(used, limit, percent, tone, summary):
    shown = meter(used, limit, TEXT)

    assert (shown.percent, shown.tone, shown.summary) == (percent, tone, summary)
    assert bool(shown.sign) is bool(summary)


async def test_without_the_database_the_keys_are_shown_and_their_month_is_unknown_not_zero(page):
    del page.control.answers[wire.KEY_TOTALS]

    listed = await shown(page)

    assert "1,204 51,606,236 — — — —" in row(listed, 1)
    assert "the figures of 30 days are not known" in listed


async def test_revoked_keys_are_folded_away_and_cannot_be_changed(page):
    listed = await shown(page)

    folded = listed.split('<details class="revoked">')[1].split("</details>")[0]
    assert "1 revoked key" in folded
    assert 'id="key-4"' in folded
    assert "/clients/4" not in listed
    assert 'id="key-4"' not in (await shown(page, "/clients/live"))


async def test_revoking_says_first_what_becomes_of_requests_that_run(page):
    listed = " ".join((await shown(page)).split())

    running, idle = listed.split('id="revoke-1"')[1], listed.split('id="revoke-3"')[1]
    assert "refused at once. 2 requests of it run or wait now; they go on to their end. This cannot" in running
    assert "No request of it runs or waits now." in idle


async def test_a_key_is_made_with_its_class_and_limits(page):
    await page.post(
        "/clients",
        name=" night shift ",
        request_class="batch",
        max_in_flight="2",
        requests_per_day="",
        tokens_per_day="5,000,000",
    )

    limits = {"max_in_flight": 2, "requests_per_day": None, "tokens_per_day": 5_000_000}
    assert page.control.orders == [
        ("POST", "/keys", {"name": "night shift", "request_class": "batch", "limits": limits})
    ]


async def test_a_new_key_is_in_every_block_of_the_answer_and_in_nothing_after_it(page):
    created = await page.post("/clients", name="laptop")
    later = await page.browser.get("/clients")

    made = blocks(created.text)
    assert list(made) == ["claude", "codex", "opencode", "openai", "anthropic", "curl"]
    assert all(KEY in text for text in made.values())
    assert created.headers["cache-control"] == "no-store"
    assert KEY not in later.text


async def test_a_block_is_what_the_command_prints_with_a_mark_for_the_key(page):
    shown_blocks = blocks(await shown(page))

    printed = {each.name: each.text for each in answers.connections().clients}
    assert shown_blocks == {
        name: text.replace(wire.KEY_PLACEHOLDER, "<key>").replace("'<key>'", "<key>") for name, text in printed.items()
    }
    assert all("<key>" in text for text in shown_blocks.values())
    assert wire.KEY_PLACEHOLDER not in await shown(page)


async def test_a_block_says_where_it_belongs_and_the_command_that_does_it(page):
    listed = await shown(page)

    claude, codex, openai = (
        listed.split(f'id="connect-{name}"')[1].split("</details>")[0] for name in ("claude", "codex", "openai")
    )
    assert "In a terminal, before the client is started there" in claude
    assert "splash connect claude --write" in claude
    assert "<code>/Users/me/.codex/config.toml</code>, beside what is there already" in codex
    assert "splash connect openai</code>" in openai


async def test_without_a_model_a_block_says_what_is_missing_in_it(page):
    page.control.answers[wire.CONNECTIONS] = answers.connections(context_tokens=None)

    listed = await shown(page)

    assert listed.count("how long its context is is missing here") == 3


async def test_when_connections_are_not_known_the_keys_are(page):
    del page.control.answers[wire.CONNECTIONS]

    listed = await shown(page)

    assert "What clients need is not known" in listed
    assert 'id="key-1"' in listed


async def test_the_limits_of_a_key_are_shown_in_its_form_and_changed_as_a_whole(page):
    listed = await shown(page)

    await page.post(
        "/clients/2", request_class="interactive", max_in_flight="", requests_per_day="9", tokens_per_day="1 000"
    )

    assert 'value="5,000,000"' in listed.split('id="edit-2"')[1].split("</form>")[0]
    assert page.control.orders == [
        (
            "PATCH",
            "/keys/2",
            {"request_class": "interactive", "max_in_flight": None, "requests_per_day": 9, "tokens_per_day": 1_000},
        )
    ]


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "many", "9" * 16, "9" * 20, "1e6"])
async def test_a_limit_that_cannot_be_comes_back_as_it_was_typed_with_the_reason_at_its_field(page, limit):
    answer = await page.post("/clients/2", request_class="batch", tokens_per_day=limit, max_in_flight="7")

    form = answer.text.split('id="edit-2"')[1].split("</form>")[0]
    assert answer.status_code == 422
    assert f'value="{limit}"' in form
    assert 'value="7"' in form
    assert 'id="edit-2-tokens_per_day-wrong"' in form
    assert "data-open" in answer.text.split('id="edit-2"')[1].split(">")[0]
    assert answer.text.count("Give a whole number from 1 to 1,000,000,000,000,000") == 1
    assert page.control.orders == []


@pytest.mark.parametrize("limit", ["１２０００", "12,000", "12，000", "12 000"])
async def test_a_number_may_be_typed_with_wide_digits_and_grouped(page, limit):
    await page.post("/clients/2", request_class="batch", tokens_per_day=limit)

    assert page.control.orders[-1][2]["tokens_per_day"] == 12_000


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "two\u202elines"])
async def test_a_name_that_cannot_be_comes_back_with_what_else_was_typed(page, name):
    answer = await page.post("/clients", name=name, request_class="batch", tokens_per_day="70")

    form = answer.text.split('id="make"')[1]
    assert answer.status_code == 422
    assert "Give a name of 1 to 64 characters" in form
    assert 'value="70"' in form
    assert '<option value="batch" selected>' in form
    assert page.control.orders == []


async def test_a_name_that_is_taken_is_said_at_the_name(page):
    page.control.refusal = AdminError(code="key_name_taken", message="There is already a key named 'laptop'.")

    answer = await page.post("/clients", name="laptop")

    form = answer.text.split('id="make"')[1]
    assert answer.status_code == 422
    assert "Another key has this name" in form
    assert 'value="laptop"' in form


async def test_any_other_refusal_is_told_in_controls_words(page):
    page.control.refusal = AdminError(code="database_unusable", message="The database did not take it.")

    answer = await page.post("/clients", name="laptop")

    assert answer.status_code == 303
    assert "The database did not take it." in await shown(page)


async def test_the_live_part_brings_the_list_alone(page):
    part = (await page.browser.get("/clients/live")).text

    assert 'id="key-1"' in part
    assert "<html" not in part
    assert 'id="connect"' not in part
    assert "/connections" not in [path for path, _ in page.control.questions]


async def test_names_are_escaped_wherever_they_stand(page):
    page.control.keys = [msgspec.structs.replace(answers.keys()[0], name='<b onclick="x">')]

    listed = await shown(page)

    assert '<b onclick="x">' not in listed
    assert "&lt;b onclick=" in listed


def test_an_empty_form_makes_no_limit_and_a_form_of_limits_leaves_none_out():
    new, change = read_new({"name": "a"}), read_change({"max_in_flight": " 3 "})

    assert new.order == wire.NewKey(name="a", limits=KeyLimits())
    assert change.order == wire.KeyChange("interactive", max_in_flight=3, requests_per_day=None, tokens_per_day=None)
