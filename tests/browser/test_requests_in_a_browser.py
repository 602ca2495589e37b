"""The page *Requests* in a real browser: filter, sort, page, columns, detail, file; on a phone, without JavaScript."""

from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from control import wire
from tests.fakes import control as fake

OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
# What one request shows on a phone: lines are told apart by where they stand.
SEE_LINES = """() => [...document.querySelectorAll("#rows tbody tr")].slice(0, 1).map((row) => {
    const cells = [...row.children].filter((cell) => cell.getClientRects().length);
    const bottoms = cells.map((cell) => Math.round(cell.getBoundingClientRect().bottom));
    return {shown: cells.map((cell) => cell.className.match(/c-(\\w+)/)[1]), lines: new Set(bottoms).size};
})"""


def listed(number: int, **changes: object) -> wire.ListedRequest:
    row = msgspec.structs.replace(fake.finished(number), largest_gap_ms=412.0, first_emission_tokens=1, **changes)
    return fake.listed(row)


def answer(control, *requests: wire.ListedRequest, **more: object) -> None:
    control.answers[wire.REQUESTS] = wire.RequestPage(requests=requests, **more)
    for each in requests:
        control.answers[wire.REQUEST.format(id=each.row.id)] = each


@pytest.fixture
def rows(control):
    control.answers[wire.REQUEST_CHOICES] = wire.RequestChoices(
        keys=("claude", "codex"), models=(fake.MODEL.id,), dialects=("chat", "messages")
    )
    answer(control, *(listed(number) for number in range(4850, 4800, -1)), next="older")


def opened(pages, console, path="/requests", **options):
    page = pages.open(console.link(), **options)
    page.goto(console.address + path)
    return page


def asked(control) -> dict[str, list[str]]:
    return parse_qs([query for path, query in control.questions if path == wire.REQUESTS][-1])


def test_going_back_brings_back_the_filter_of_that_address(console, control, rows, pages):
    page = opened(pages, console)
    page.select_option("select[name=outcome]", "cancelled")
    page.click(".request-filter button")
    page.wait_for_url("**/requests?*outcome=cancelled*")
    # Chromium keeps what was in the fields a little later.
    page.wait_for_timeout(500)

    page.go_back(wait_until="load")
    page.wait_for_timeout(500)

    assert urlsplit(page.url).query == ""
    assert page.input_value("select[name=outcome]") == ""


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_a_filter_is_in_the_address_and_is_what_control_is_asked(console, control, rows, pages, java_script_enabled):
    page = opened(pages, console, java_script_enabled=java_script_enabled)

    page.select_option("select[name=key]", "codex")
    page.select_option("select[name=outcome]", "failed")
    page.select_option("select[name=range]", "week")
    page.click(".request-filter button")
    page.wait_for_url("**/requests?*outcome=failed*")

    given = asked(control)
    assert (given["key"], given["outcome"], given["range"]) == (["codex"], ["failed"], ["week"])
    assert "dialect" not in given
    assert page.input_value("select[name=key]") == "codex"


def test_a_heading_sorts_and_turns_round_and_is_reached_with_the_keyboard(console, control, rows, pages):
    page = opened(pages, console)

    page.focus("th.c-speed a")
    page.keyboard.press("Enter")
    page.wait_for_selector("th.c-speed[aria-sort=descending]")
    page.click("th.c-speed a")
    page.wait_for_selector("th.c-speed[aria-sort=ascending]")

    assert (asked(control)["sort"], asked(control)["direction"]) == (["speed"], ["asc"])
    assert page.locator("th[aria-sort]").count() == 1


def test_older_and_newer_lead_there_and_back_and_a_page_that_was_turned_stands_still(console, control, rows, pages):
    page = opened(pages, console)

    page.click("a[rel=next]")
    page.wait_for_url("**after=older*")
    answer(control, listed(4700), previous="newer")
    page.reload()
    num_questions = len(control.questions)
    page.wait_for_timeout(3_500)
    assert len(control.questions) == num_questions

    page.click("a[rel=prev]")
    page.wait_for_url("**after=newer*")
    assert asked(control)["after"] == ["newer"]


def test_new_requests_come_in_at_the_top_and_nothing_jumps(console, control, rows, pages):
    page = opened(pages, console)
    page.evaluate("() => { window.watched = document.getElementById('request-r4850'); }")
    height = "() => document.getElementById('rows').getBoundingClientRect().height"
    before = page.evaluate(height)

    answer(control, *(listed(number) for number in range(4852, 4802, -1)), next="older")
    page.wait_for_selector("#request-r4852")

    seen = page.evaluate("() => [...document.querySelectorAll('#rows tbody tr')].map((row) => row.id)")
    assert seen[:3] == ["request-r4852", "request-r4851", "request-r4850"]
    assert page.evaluate("() => window.watched === document.getElementById('request-r4850')")
    assert page.evaluate(height) == before


def test_chosen_columns_stay_chosen(console, control, rows, pages):
    page = opened(pages, console, "/requests?key=codex")

    page.click("button[popovertarget=columns]")
    page.check("input[name=column_model]")
    page.uncheck("input[name=column_queue]")
    page.click("text=Show these")
    page.wait_for_selector("th.c-model")

    assert urlsplit(page.url).query == "key=codex"
    assert page.locator("th.c-queue").count() == 0
    page.goto(console.address + "/requests")
    assert page.locator("th.c-model").count() == 1


def test_a_row_leads_to_its_numbers_and_a_drawing_to_scale(console, control, rows, pages):
    page = opened(pages, console)

    page.click("text=#4850")
    page.wait_for_selector(".timeline-bar")

    shares = page.evaluate(
        """() => {
            const bar = document.querySelector(".timeline-bar").getBoundingClientRect().width;
            return ["queue", "prefill", "decode"].map((name) =>
                document.querySelector(`.timeline-bar .t-${name}`).getBoundingClientRect().width / bar);
        }"""
    )
    assert shares == pytest.approx([12 / 17_142, 2_310 / 17_142, 14_820 / 17_142], abs=0.003)
    assert page.inner_text("h1") == "Request #4850 claude"
    assert "The longest gap between two of them lasted 0.41 s." in page.inner_text(".phases")
    page.click("text=All requests")
    page.wait_for_url("**/requests")


def test_a_file_is_downloaded_under_a_name_of_its_own(console, control, rows, pages):
    page = opened(pages, console, "/requests?key=codex")
    control.answers[wire.REQUEST_EXPORT] = b"number\r\n" + b"1\r\n" * 100_000

    with page.expect_download() as started:
        page.click("text=CSV")

    assert started.value.suggested_filename.startswith("splash-requests-")
    assert started.value.suggested_filename.endswith(".csv")
    assert started.value.path().read_bytes() == control.answers[wire.REQUEST_EXPORT]
    assert control.questions[-1] == (wire.REQUEST_EXPORT, "format=csv&range=all&key=codex")


def test_on_a_phone_a_request_is_two_lines_and_nothing_is_wider_than_the_screen(console, control, rows, pages):
    page = opened(pages, console, viewport={"width": 390, "height": 844})

    (line,) = page.evaluate(SEE_LINES)
    assert line == {"shown": ["number", "key", "started", "ttft", "output", "speed", "outcome"], "lines": 2}
    assert page.evaluate(OVERFLOW) == 0
    page.select_option("select[name=sort]", "cached")
    page.click(".request-filter button")
    page.wait_for_url("**sort=cached*")
    (line,) = page.evaluate(SEE_LINES)
    assert ("cached" in line["shown"], line["lines"]) == (True, 3)
    assert page.evaluate(OVERFLOW) == 0
    page.click("text=#4850")
    page.wait_for_selector(".timeline-bar")
    assert page.evaluate(OVERFLOW) == 0


def test_in_chinese_the_page_is_chinese(console, control, rows, pages):
    page = opened(pages, console, locale="zh-CN")

    assert page.inner_text("h1") == "请求"
    assert page.inner_text("th.c-queue") == "排队"
    assert "完成" in page.inner_text("#request-r4850")
    page.click("text=#4850")
    page.wait_for_selector(".timeline-bar")
    assert "时间花在哪里" in page.inner_text("main")


def test_a_request_that_is_gone_and_one_that_runs_are_told_apart_in_words(console, control, rows, pages):
    control.overview = fake.overview(slots=(fake.decoding(7),))
    pages.forgives = lambda complaint: "404" in complaint
    page = opened(pages, console, "/requests/r7")
    assert "still running" in page.inner_text("main")

    page.goto(console.address + "/requests/gone")

    assert "This request is not known" in page.inner_text("main")
    page.click("text=All requests")
    page.wait_for_url("**/requests")
