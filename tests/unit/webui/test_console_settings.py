"""The page *Settings*: each order and its refusal, what the database says of itself, and where things are."""

import html
import re

import msgspec
import pytest

from control import wire
from control.wire import AdminError, Alias, DatabaseHealth
from tests.fakes import console_answers as answers
from tests.fakes import control as fake
from webui.alias_form import moved_up, with_new, without

ALIASES = answers.ALIASES.aliases


@pytest.fixture
async def page(console):
    console.control.answers = answers.everything()
    return console


async def shown(console) -> str:
    answer = await console.browser.get("/settings")
    assert answer.status_code == 200
    return answer.text


def section(page: str, name: str) -> str:
    return " ".join(
        html.unescape(re.sub(r"<[^>]+>", " ", page.split(f'id="{name}"')[1].split("</section>")[0])).split()
    )


async def test_concurrency_is_set_and_the_page_says_so(page):
    answer = await page.post("/settings/concurrency", concurrency="2")

    assert page.control.orders == [("POST", "/settings/concurrency", {"concurrency": 2})]
    assert answer.headers["location"] == "/settings"
    assert "Up to 2 at a time from now on." in await shown(page)


@pytest.mark.parametrize("value", ["0", "5", "", "x"])
async def test_a_concurrency_that_cannot_be_is_no_order(page, value):
    await page.post("/settings/concurrency", concurrency=value)

    assert page.control.orders == []
    assert "concurrency" in await shown(page)


async def test_the_choice_in_force_is_marked(page):
    page.control.overview = fake.overview(concurrency=3)

    assert re.search(r'value="3" aria-pressed="true"', await shown(page))


async def test_each_way_of_keeping_alive_is_in_plain_words_and_the_one_in_force_is_chosen(page):
    listed = await shown(page)

    assert re.search(r'<option value="typed" selected>usual: pings, and an empty piece of text once a minute', listed)
    assert "Claude Code gives up after 5 minutes of waiting" in listed
    assert 'name="heartbeat.chat"' not in listed
    assert section(listed, "heartbeats").count("comment lines, the only way there is") == 2


async def test_heartbeats_are_ordered_by_dialect(page):
    await page.post("/settings/heartbeats", **{"heartbeat.messages": "ping", "heartbeat.responses": "typed"})

    assert page.control.orders == [
        ("PUT", "/settings/heartbeats", {"modes": {"messages": "ping", "responses": "typed"}})
    ]
    assert "The next streams get these signs of life." in await shown(page)


async def test_a_mode_and_a_dialect_that_the_page_does_not_know_are_shown_as_they_are_called(page):
    page.control.answers[wire.HEARTBEATS] = wire.HeartbeatSettings(
        modes={"gemini": "pulse"}, choices={"gemini": ("pulse", "none")}
    )

    assert "gemini" in section(await shown(page), "heartbeats")


async def test_a_name_is_added_at_the_end_with_its_class(page):
    answer = await page.post("/settings/aliases", name=" claude-local ", request_class="batch")

    ((method, path, body),) = page.control.orders
    assert (method, path) == ("PUT", "/settings/aliases")
    assert [each["name"] for each in body["aliases"]] == [*(each.name for each in ALIASES), "claude-local"]
    assert body["aliases"][-1] == {"name": "claude-local", "request_class": "batch"}
    assert answer.headers["location"] == "/settings"
    assert "claude-local stands for the loaded model from now on." in await shown(page)


async def test_a_name_is_removed_and_moved(page):
    await page.post("/settings/aliases/remove", name="gpt-*")
    await page.post("/settings/aliases/up", name="codex-*")

    removed, moved = ([each["name"] for each in body["aliases"]] for _, _, body in page.control.orders)
    assert removed == ["default", "claude-*", "claude-haiku-*", "codex-*"]
    assert moved == ["default", "claude-*", "claude-haiku-*", "codex-*", "gpt-*"]


@pytest.mark.parametrize("name", ["", "   ", "x" * 201, "a\u202eb"])
async def test_a_name_that_cannot_be_comes_back_with_the_reason_at_its_field(page, name):
    answer = await page.post("/settings/aliases", name=name, request_class="batch")

    form = answer.text.split('class="setting new-alias"')[1].split("</form>")[0]
    assert answer.status_code == 422
    assert "Give a name of 1 to 200 characters" in form
    assert '<option value="batch" selected>' in form
    assert page.control.orders == []


async def test_what_control_refuses_about_a_name_is_said_at_its_field_and_the_name_is_kept(page):
    page.control.refusal = AdminError(code="invalid_request", message="aliases: 'x' is there twice.")

    answer = await page.post("/settings/aliases", name="x")

    form = html.unescape(answer.text.split('class="setting new-alias"')[1].split("</form>")[0])
    assert "aliases: 'x' is there twice." in form
    assert 'value="x"' in form


def test_a_name_that_is_there_keeps_its_place_and_gets_the_class():
    changed = with_new(ALIASES, {"name": "claude-*", "request_class": "batch"})

    assert changed.aliases == (ALIASES[0], Alias("claude-*", "batch"), *ALIASES[2:])


def test_more_names_than_there_can_be_are_refused_here():
    full = tuple(Alias(f"name-{number}") for number in range(100))

    assert with_new(full, {"name": "one more"}).wrong == "settings.alias_full"
    assert with_new(full, {"name": "name-7"}).aliases is not None


@pytest.mark.parametrize(("name", "expected"), [("a", "abc"), ("b", "bac"), ("c", "acb"), ("not there", "abc")])
def test_moving_up_is_by_one_place(name, expected):
    aliases = tuple(Alias(each) for each in "abc")

    assert "".join(each.name for each in moved_up(aliases, name)) == expected
    assert without(aliases, "not there") == aliases


async def test_the_database_says_what_it_holds_and_how_it_is(page):
    told = section(await shown(page), "database")

    assert "Everything that was measured is written." in told
    assert "size 20.4 MiB requests 36,204" in told
    assert "412.0 GiB" in told


async def test_what_other_machines_use_is_told_or_that_they_can_not(page):
    alone = section(await shown(page), "ports-title")
    opened = msgspec.structs.replace(
        answers.installation(), lan_api=("http://mac.local:8888/v1", "http://192.168.1.7:8888/v1")
    )
    page.control.answers[wire.INSTALLATION] = opened
    told = section(await shown(page), "ports-title")

    assert "API from other machines off" in alone
    assert "API from other machines http://mac.local:8888/v1 · http://192.168.1.7:8888/v1" in told
    assert "SPLASH_LAN" in told
    assert "console from other machines off" in told


async def test_a_database_that_does_not_answer_has_unknown_rows_not_none(page):
    page.control.answers[wire.INSTALLATION] = answers.installation(rows=None)

    told = section(await shown(page), "database")

    assert "requests — since — " in told


@pytest.mark.parametrize(
    ("health", "sentence"),
    [
        (DatabaseHealth(waiting_rows=3, problem="the disk is full"), "3 requests wait to be written: the disk is full"),
        (DatabaseHealth(lost_rows=1), "1 request could not be written and is missing in the figures."),
        (DatabaseHealth(set_aside="splash.db.damaged-1"), "it was put aside as splash.db.damaged-1"),
        (DatabaseHealth(from_copy=True), "a new one was begun with the kept copy of keys and settings"),
    ],
)
async def test_what_is_wrong_with_the_database_is_said(page, health, sentence):
    page.control.overview = msgspec.structs.replace(fake.overview(), database=health)

    told = section(await shown(page), "database")

    assert sentence in told
    assert "Everything that was measured is written." not in told


async def test_a_backup_says_where_it_is_and_how_large(page):
    path = "/Users/me/Splash/backups/splash-20261130-131500.db"
    page.control.order_answers[wire.BACKUP] = wire.Backup(path, 20_971_520, 0.4, 36_204)

    await page.post("/settings/backup")
    told = await shown(page)

    assert page.control.orders == [("POST", wire.BACKUP, {})]
    assert f"The backup is made: {path}, 20.0 MiB, 36,204 requests." in told


async def test_where_everything_is_and_the_settings_of_its_start_are_named(page):
    listed = await shown(page)

    for told in ("/Users/me/Library/Application Support/Splash", "SPLASH_API_PORT", "18084", "3.13.1", "SPLASH_HOME"):
        assert told in listed
    assert 'href="/cost' in listed


async def test_without_control_the_page_says_so_and_offers_nothing_that_would_fail(page):
    page.control.is_silent = True
    page.watch.forget()

    listed = await shown(page)

    assert "The gateway does not answer, so the settings are not known" in listed
    assert re.search(r'name="concurrency" value="1"[^>]* disabled', listed)
    assert 'action="/settings/aliases"' not in listed


async def test_language_and_theme_lead_back_here(page):
    listed = await shown(page)

    answer = await page.post("/preferences", theme="dark", here="/settings")

    assert listed.count('name="here" value="/settings"') >= 2
    assert answer.headers["location"] == "/settings"
    assert re.search(r'value="dark" aria-pressed="true"', await shown(page))


@pytest.mark.parametrize("name", ["*", "**", fake.MODEL.id])
async def test_a_name_that_is_seldom_meant_is_allowed_and_remarked_on(page, name):
    usual = (await page.browser.get("/settings")).text
    page.control.answers[wire.ALIASES] = wire.AliasList(aliases=(*ALIASES, Alias(name)))

    remarked = (await page.browser.get("/settings")).text

    assert "alias-warning" not in usual
    assert remarked.count("alias-warning") == 1
    assert f"{name} fits every name" in remarked or f"{name} is the loaded model" in remarked
