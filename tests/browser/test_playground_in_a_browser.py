"""The page *Try it*: in front of a scripted control, and in front of the real one for what takes time."""

import json
import time

import pytest

from control import wire
from tests.fakes import control as fake
from tests.story.stack import Stack, fake_engine, wait_until
from tests.unit.webui.test_console_playground import chunk, ended, failed

PHONE = {"width": 390, "height": 844}
CODE = "See:\n\n```python\nprint('<i>1</i>')\n```\nand <script>alert(1)</script> that is all"
SCRIPT = [
    {
        "match": "endless",
        "steps": [
            {"prefill": {"total": 4_000, "cached": 1_000, "duration_ms": 4_000}},
            {"tokens": {"text": "hm " * 10, "per_second": 20, "kind": "reasoning"}},
            {"tokens": {"text": "word " * 3_000, "per_second": 20}},
        ],
    }
]


def ask(page, text: str) -> None:
    page.fill("#question", text)
    page.keyboard.press("Enter")


def open_playground(console, pages, **options):
    page = pages.open(console.link(), **options)
    page.goto(f"{console.address}/playground")
    return page


def test_an_answer_is_text_with_code_in_its_own_block_and_thoughts_are_folded(console, control, pages):
    control.order_answers[wire.PLAYGROUND] = chunk(reasoning_content="let me see") + chunk(content=CODE) + ended()
    page = open_playground(console, pages)

    ask(page, "how <b>?")
    page.wait_for_selector(".turn-end >> text=3 tokens")
    is_folded = page.locator(".thought").get_attribute("open") is None
    page.click(".thought summary")

    assert page.inner_text(".turn-question .words") == "how <b>?"
    assert page.inner_text(".turn-answer > .words pre") == "print('<i>1</i>')"
    assert "and <script>alert(1)</script> that is all" in page.inner_text(".turn-answer > .words")
    assert page.locator(".turn script, .turn i, .turn b").count() == 0
    assert is_folded
    assert page.is_visible("text=let me see")
    assert page.inner_text("#talk-phase") == "Complete"


def test_the_whole_conversation_goes_along_until_a_new_one_is_begun(console, control, pages):
    control.order_answers[wire.PLAYGROUND] = chunk(content="four") + ended()
    page = open_playground(console, pages)
    page.fill("#system", "Be brief.")
    page.fill("#temperature", "0.2")
    page.fill("#max-tokens", "50")

    for number, text in enumerate(("two and two?", "sure?"), start=1):
        ask(page, text)
        page.locator(".turn-end:not(:empty)").nth(number - 1).wait_for()
    page.click("#talk-new")
    left = page.locator(".turn").count()
    ask(page, "hello")
    page.wait_for_selector(".turn-end:not(:empty)")

    asked = [body for _, path, body in control.orders if path == wire.PLAYGROUND]
    said = [[(message["role"], message["content"]) for message in body["messages"]] for body in asked]
    brief = ("system", "Be brief.")
    assert said[1] == [brief, ("user", "two and two?"), ("assistant", "four"), ("user", "sure?")]
    assert said[2] == [brief, ("user", "hello")]
    assert (asked[0]["temperature"], asked[0]["max_tokens"]) == (0.2, 50)
    assert left == 0


def test_the_conversation_is_there_again_after_another_page_until_the_log_out(console, control, pages):
    pages.forgives = lambda complaint: "401" in complaint
    control.order_answers[wire.PLAYGROUND] = chunk(reasoning_content="hm") + chunk(content=CODE) + ended()
    page = open_playground(console, pages)
    page.fill("#system", "Be brief.")
    ask(page, "how <b>?")
    page.wait_for_selector(".turn-end >> text=3 tokens")
    page.fill("#question", "not yet sent")

    page.click(".masthead nav >> text=Logs")
    page.click(".masthead nav >> text=Try it")
    page.wait_for_selector(".turn-end >> text=3 tokens")
    seen = page.inner_text(".turn-question .words"), page.input_value("#system"), page.input_value("#question")
    code = page.inner_text(".turn-answer > .words pre")
    ask(page, "sure?")
    page.locator(".turn-end >> text=3 tokens").nth(1).wait_for()
    said = [message["role"] for message in control.orders[-1][2]["messages"]]
    page.click("text=Log out")
    page.wait_for_load_state()
    left = page.evaluate("sessionStorage.length")
    page.goto(console.link())
    page.goto(f"{console.address}/playground")

    assert seen == ("how <b>?", "Be brief.", "not yet sent")
    assert code == "print('<i>1</i>')"
    assert said == ["system", "user", "assistant", "user"]
    assert left == 0
    assert page.locator(".turn").count() == 0


def test_a_new_conversation_forgets_the_old_one_for_good(console, control, pages):
    control.order_answers[wire.PLAYGROUND] = chunk(content="four") + ended()
    page = open_playground(console, pages)
    ask(page, "two and two?")
    page.wait_for_selector(".turn-end:not(:empty)")

    page.click("#talk-new")
    page.reload()

    assert page.locator(".turn").count() == 0
    assert "two and two?" not in page.evaluate("sessionStorage.getItem('splash-conversation')")


def test_what_goes_wrong_is_said_in_words_and_the_question_can_be_sent_again(console, control, pages):
    pages.forgives = lambda complaint: "409" in complaint
    control.refusal = wire.AdminError(code="no_model", message="No model.")
    page = open_playground(console, pages, locale="zh-CN")

    ask(page, "在吗")
    page.wait_for_selector("[role=alert] >> text=没有加载模型")
    kept = page.input_value("#question")
    control.refusal = None
    control.order_answers[wire.PLAYGROUND] = chunk(content="half") + failed("engine_died")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert] >> text=引擎在回答时崩溃")

    assert kept == "在吗"
    assert page.input_value("#question") == ""
    assert page.is_enabled("#talk-send")


@pytest.mark.parametrize("way", ["reload", "another page and back"])
def test_an_answer_that_was_left_is_told_to_have_ended_then_and_not_to_have_broken_off(tmp_path, pages, way):
    pages.forgives = lambda complaint: "ERR_ABORTED" in complaint or "Failed to fetch" in complaint
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    stack = Stack(tmp_path / "home", engine_command=fake_engine(script))
    try:
        page = pages.open(stack.up()["login"])
        page.wait_for_selector("#state-word >> text=ready")
        page.click(".masthead nav >> text=Try it")
        ask(page, "endless")
        page.wait_for_selector(".turn-answer > .words >> text=word word", timeout=60_000)
        if way == "reload":
            page.reload()
        else:
            page.click(".masthead nav >> text=Now")
            page.wait_for_selector("#slots")
            page.go_back()
        page.wait_for_selector(".turn-end:not(:empty)")
        end, alerts = page.inner_text(".turn-end"), page.locator(".turn-end[role=alert]").count()
        words = page.inner_text(".turn-answer > .words")
    finally:
        stack.clean_up()

    assert (end, alerts) == ("Ended when this page was left", 0)
    assert words.startswith("word word")


def test_a_command_in_what_went_wrong_is_shown_as_something_to_type_now_and_later(console, control, pages):
    pages.forgives = lambda complaint: "502" in complaint
    page = open_playground(console, pages)
    control.is_silent = True

    ask(page, "hello")
    page.wait_for_selector(".turn-end code >> text=splash up")
    said = page.inner_text(".turn-end")
    control.is_silent = False
    page.reload()

    assert said.startswith("✕ The gateway does not answer") and "`" not in said
    assert page.inner_text(".turn-end") == said
    assert page.inner_text(".turn-end code") == "splash up"


def test_what_is_asked_while_the_console_is_lost_stays_to_be_asked_again(own_console, control, pages):
    pages.forgives = lambda complaint: "ERR_CONNECTION_REFUSED" in complaint or "Failed to fetch" in complaint
    control.order_answers[wire.PLAYGROUND] = chunk(content="four") + ended()
    page = open_playground(own_console, pages)

    own_console.stop()
    page.wait_for_selector("#lost:visible")
    ask(page, "two and two?")
    kept, num_turns = page.input_value("#question"), page.locator(".turn").count()
    own_console.start()
    page.wait_for_selector("#lost", state="hidden")
    page.press("#question", "Enter")
    page.wait_for_selector(".turn-end >> text=3 tokens")

    assert (kept, num_turns) == ("two and two?", 0)


def test_while_a_word_is_composed_enter_chooses_it_and_shift_enter_begins_a_line(console, control, pages):
    page = open_playground(console, pages)
    page.fill("#question", "ni hao")

    page.dispatch_event("#question", "keydown", {"key": "Enter", "isComposing": True})
    page.press("#question", "Shift+Enter")

    assert page.input_value("#question") == "ni hao\n"
    assert [path for _, path, _ in control.orders if path == wire.PLAYGROUND] == []


def test_on_a_phone_everything_is_there_and_nothing_is_wider_than_it(console, control, pages):
    control.order_answers[wire.PLAYGROUND] = chunk(content="```\n" + "long " * 200 + "\n```\n") + ended()
    page = open_playground(console, pages, viewport=PHONE)

    ask(page, "x" * 300)
    page.wait_for_selector(".turn-end:not(:empty)")

    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.is_visible("#talk-send")


def test_without_a_model_the_page_teaches(console, control, pages):
    control.overview = fake.overview(view=fake.engine("unloaded"))
    page = open_playground(console, pages)

    page.click("#talk-model >> text=Open the page Model")

    assert page.url == f"{console.address}/model"


@pytest.mark.story
def test_an_answer_is_followed_stopped_within_a_second_and_recorded_under_the_key_console(tmp_path, pages):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    stack = Stack(tmp_path / "home", engine_command=fake_engine(script))
    try:
        page = pages.open(stack.up()["login"])
        page.wait_for_selector("#state-word >> text=ready")
        page.click(".masthead nav >> text=Try it")
        ask(page, "endless")
        page.wait_for_selector("#talk-phase >> text=reading the prompt")
        page.wait_for_selector("#talk-phase >> text=generating")
        page.wait_for_selector(".turn-answer > .words >> text=word word")
        with stack.admin() as admin:
            admin.get(wire.OVERVIEW)
            asked_to_stop_at = time.monotonic()
            page.click("#talk-stop")
            wait_until(lambda: not any(admin.get(wire.OVERVIEW).json()["slots"]), "the slot to be free", 5)
            took_s = time.monotonic() - asked_to_stop_at
        words = page.inner_text(".turn-answer > .words")
        page.wait_for_timeout(600)
        with stack.admin() as admin:
            row = json.loads(admin.get(f"{wire.REQUESTS}?limit=1").content)["requests"][0]["row"]
    finally:
        stack.clean_up()

    assert took_s < 1
    assert page.inner_text("#talk-phase") == "Stopped"
    assert page.inner_text(".turn-answer > .words") == words
    assert (row["key"], row["outcome"], row["error_code"]) == ("console", "cancelled", "client_gone")
