"""One word for one thing, wherever it stands; and a sentence for what is not there."""

import msgspec
import pytest

from control.wire import DatabaseHealth
from tests.fakes import control as fake
from webui.text import load_texts
from webui.views.memory import no_plan_words

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])


@LANGUAGES
def test_how_many_requests_may_run_at_once_has_one_name_on_every_page(language):
    text = load_texts()[language]

    assert len({text(key) for key in ("slots.concurrency", "concurrency.title", "settings.concurrency")}) == 1


def test_quit_has_one_word_in_chinese_and_it_is_not_like_the_word_for_logging_out():
    text = load_texts()["zh"]

    assert text("quit.title") == text("quit.button") == f"{text('nav.quit')} Splash"
    assert not {"退", "出"} & set(text("nav.quit"))
    about_splash = {key for key, sentence in text.sentences.items() if "Splash" in sentence and "退出" in sentence}
    assert about_splash == set()


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
    [DatabaseHealth(waiting_rows=1), DatabaseHealth(lost_rows=2), DatabaseHealth(set_aside="splash.db.damaged")],
    ids=["late", "lost", "damaged"],
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
