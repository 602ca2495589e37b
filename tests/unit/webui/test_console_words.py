"""One word for one thing, wherever it stands; and a sentence for what is not there."""

import re

import msgspec
import pytest

from control.wire import DatabaseHealth
from tests.browser.furnished import furnish
from tests.fakes import control as fake
from webui.text import load_texts
from webui.views.memory import no_plan_words
from webui.views.shell import NAVIGATION

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])


@LANGUAGES
def test_how_many_requests_may_run_at_once_has_one_name_on_every_page(language):
    text = load_texts()[language]

    assert len({text(key) for key in ("slots.concurrency", "concurrency.title", "settings.concurrency")}) == 1


def test_in_chinese_splash_quits_a_model_stops_and_a_session_ends_by_three_words_that_share_nothing():
    text = load_texts()["zh"]
    named = [(key, sentence) for key, sentence in text.sentences.items() if "Splash" in sentence]

    assert text("quit.title") == text("quit.button") == f"{text('nav.quit')} Splash" == "退出 Splash"
    assert not set("退出停止") & set(text("shell.log_out"))
    assert [key for key, sentence in named if re.search("Splash ?(正在|已|被)?(强制)?停止|停止 Splash", sentence)] == []
    quits = {key for key, sentence in text.sentences.items() if "退出" in sentence and "Splash" not in sentence}
    assert {
        key for key in quits if not key.startswith(("quit.", "nav.quit", "state.quitting", "state.stopped"))
    } == set()
    assert [key for key in ("force.button", "talk.stop", "quit.gone") if "停止" not in text(key)] == []


@LANGUAGES
@pytest.mark.parametrize("is_silent", [False, True], ids=["all is well", "nobody answers"])
async def test_what_is_to_be_typed_is_shown_as_code_and_no_page_has_a_bare_backtick(console, language, is_silent):
    furnish(console.control)
    broken = fake.engine("failed", error="The model is not here: `splash load MODEL` loads another.")
    console.control.overview = fake.overview(view=broken)
    console.control.is_silent = is_silent
    paths = [*(link.path for link in NAVIGATION), "/model/list", "/model/machine", "/now/hour"]
    language_of = {"Accept-Language": language}

    pages = {path: (await console.browser.get(path, headers=language_of)).text for path in paths}

    assert f"<code>{'splash up' if is_silent else 'splash load MODEL'}</code>" in pages["/model"]
    assert {path: re.findall(".{30}`.{30}", page) for path, page in pages.items() if "`" in page} == {}


@LANGUAGES
def test_nothing_is_said_to_be_below_by_a_banner_that_may_stand_anywhere(language):
    sentences = load_texts()[language].sentences
    banners = [
        sentence for key, sentence in sentences.items() if key.startswith(("stale.", "shell.lost", "state.over"))
    ]

    assert banners
    assert not any(word in sentence for sentence in banners for word in ("elow", "bove", "以下", "上方", "下方"))


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (fake.engine("unloaded"), "as soon as a model is chosen"),
        (fake.engine("loading", memory_plan=None), "as soon as the engine has looked at the model"),
        (fake.engine("crashed", memory_plan=None), "as soon as the engine has looked at the model"),
        (fake.engine("unloaded", is_downloading=True), "as soon as the engine has looked at the model"),
        (fake.engine("failed", memory_plan=None), "the engine failed, and no model is loaded"),
    ],
    ids=lambda value: value.state if hasattr(value, "state") else "",
)
async def test_where_memory_has_no_plan_the_page_says_why(console, view, expected):
    console.control.overview = fake.overview(view=view)

    pages = [(await console.browser.get(path)).text for path in ("/", "/model")]

    assert all(expected in page for page in pages)


def test_of_a_silent_gateway_no_plan_is_promised():
    assert no_plan_words(None, load_texts()["en"]) == "Nothing is known of it yet."


async def test_several_prompts_that_are_not_read_yet_are_not_all_the_next_one(console):
    unread = [
        msgspec.structs.replace(
            fake.prefilling(4813 + slot, slot=slot, prefilled=0, cached=0, eta_s=None), tokens_per_second=None
        )
        for slot in (2, 3)
    ]
    console.control.overview = fake.overview(slots=(fake.prefilling(slot=1), *unread))

    html = (await console.browser.get("/now/live")).text

    assert html.count("waiting to be read") == 2
    assert "next to be read" not in html


@pytest.mark.parametrize(
    "trouble",
    [
        DatabaseHealth(waiting_rows=1),
        DatabaseHealth(lost_rows=2),
        DatabaseHealth(set_aside="splash.db.damaged"),
        DatabaseHealth(from_copy=True),
    ],
    ids=["late", "lost", "damaged", "begun with the copy"],
)
async def test_missing_numbers_are_said_at_the_top_of_every_page(console, trouble):
    before = (await console.browser.get("/state")).text
    console.control.overview = msgspec.structs.replace(fake.overview(), database=trouble)
    console.watch.forget()

    assert "numbers incomplete" not in before
    assert "numbers incomplete, see Now" in (await console.browser.get("/state")).text


async def test_the_whole_reason_of_a_failed_model_is_behind_the_state_and_its_first_line_beside_it(console):
    reason = "The model does not fit: it needs 270.4 GiB, and 222.7 GiB may be used.\nTraceback (most recent call last)"
    console.control.overview = fake.overview(view=fake.engine("failed", error=reason))

    html = (await console.browser.get("/state")).text

    assert f'data-hint="{reason}"' in html
    assert 'title="The model does not fit: it needs 270.4 GiB, and 222.7 GiB may be used."' in html


async def test_a_database_that_was_missing_is_said_on_now(console):
    console.control.overview = msgspec.structs.replace(fake.overview(), database=DatabaseHealth(from_copy=True))

    page = (await console.browser.get("/")).text

    assert "The database was missing. A new one was begun with the kept copy of keys and settings" in page
