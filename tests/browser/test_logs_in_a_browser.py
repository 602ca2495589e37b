"""A log as a person follows, reads and searches it."""

import pytest

from control import wire
from tests.fakes import console_answers as answers

CONTROL = wire.LOGS.format(name="control")
SEE = """() => ({
    first: document.querySelector("#log-lines li:not(.day)")?.id,
    scrolled: scrollY,
    isFollowing: !document.querySelector("#log-state .following").hidden,
})"""


@pytest.fixture
def logs(console, control):
    control.answers = answers.everything()
    return console


def write(control, newest: int, **more) -> None:
    control.answers[CONTROL] = answers.log_page(
        *(answers.entry(number, **more) for number in range(newest, newest - 200, -1))
    )


def open_logs(console, pages, **options):
    page = pages.open(console.link(), **options)
    page.goto(f"{console.address}/logs")
    return page


def test_new_lines_come_to_the_top_and_the_others_stay_the_same_nodes(logs, control, pages):
    write(control, 300)
    page = open_logs(logs, pages)
    page.evaluate("window.line = document.getElementById('line-7-30000')")

    write(control, 303)
    page.wait_for_selector("#line-7-30300")

    assert page.evaluate(SEE)["first"] == "line-7-30300"
    assert page.evaluate("window.line === document.getElementById('line-7-30000')")


def test_while_a_person_reads_further_down_nothing_is_put_in_and_at_the_top_it_goes_on(logs, control, pages):
    write(control, 300)
    page = open_logs(logs, pages)

    page.mouse.wheel(0, 1_500)
    page.wait_for_selector("#log-state >> text=Paused while you read")
    before = page.evaluate(SEE)
    write(control, 310)
    page.wait_for_timeout(2_600)
    after = page.evaluate(SEE)
    page.click("#log-state >> text=To the newest")
    page.wait_for_selector("#line-7-31000")

    assert after == before
    assert before["scrolled"] > 1_000
    assert page.evaluate(SEE)["isFollowing"]


def test_what_is_marked_to_be_copied_stays_marked(logs, control, pages):
    write(control, 300)
    page = open_logs(logs, pages)
    page.click("#line-7-30000 .said", click_count=3)
    page.wait_for_selector("#log-state >> text=Paused while you read")
    write(control, 301)

    page.wait_for_timeout(2_600)

    assert "id=r300" in page.evaluate("getSelection().toString()")
    assert page.locator("#line-7-30100").count() == 0


def test_a_filter_is_chosen_and_kept_over_the_tabs_and_older_pages(logs, control, pages):
    page = open_logs(logs, pages)
    page.get_by_label("Which lines").select_option("WARNING")
    page.get_by_label("Find in the lines").fill("disk full")
    page.get_by_role("button", name="Show").click()
    page.click("nav.tabs >> text=Model")
    page.click("text=Older lines")

    assert page.url == f"{logs.address}/logs/engine?level=WARNING&text=disk+full&before=7-100"
    assert page.input_value("[name=text]") == "disk full"
    assert ("/logs/engine", "limit=200&before=7-100&level=WARNING&text=disk+full") in control.questions


def test_it_stands_still_when_told_to(logs, control, pages):
    page = open_logs(logs, pages)
    page.click("text=Stand still")
    page.wait_for_selector("#log-state >> text=New lines are not added")
    asked = len(control.questions)

    page.wait_for_timeout(2_600)

    assert len(control.questions) == asked


def test_a_log_is_downloaded(logs, control, pages):
    control.answers[wire.LOG_FILE.format(name="control")] = b"the whole of it\n"
    page = open_logs(logs, pages)

    with page.expect_download() as download:
        page.click("text=Download")

    assert download.value.suggested_filename == "splash-control.log"
    assert download.value.path().read_bytes() == b"the whole of it\n"


def test_without_javascript_the_newest_lines_and_the_older_ones_are_there(logs, pages):
    page = open_logs(logs, pages, java_script_enabled=False)
    lines = page.locator("#log-lines li:not(.day)").count()
    page.click("text=Older lines")

    assert lines == 200
    assert page.url.endswith("/logs/control?before=7-100")


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("width", [1280, 390])
def test_long_lines_are_wrapped_and_nothing_moves_sideways(logs, control, pages, width, locale):
    write(control, 300, message="x" * 3_000, more="y" * 3_000)
    page = open_logs(logs, pages, viewport={"width": width, "height": 844}, locale=locale)

    assert page.evaluate("document.documentElement.scrollWidth") == width
