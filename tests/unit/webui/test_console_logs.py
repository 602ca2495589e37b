"""The page *Logs*: lines, newest first, in the viewer's zone; filters; pages; and the file as it is."""

import re
from urllib.parse import parse_qs

import pytest

from control import wire
from tests.fakes import console_answers as answers

CONTROL = wire.LOGS.format(name="control")


@pytest.fixture
async def page(console):
    console.control.answers = answers.everything()
    return console


async def shown(console, path="/logs") -> str:
    answer = await console.browser.get(path)
    assert answer.status_code == 200
    return answer.text


def line(page: str, number: int) -> str:
    cells = page.split(f'id="line-7-{number * 100}"')[1].split("</li>")[0].partition(">")[2]
    return " ".join(re.sub(r"<[^>]+>", " ", cells).split())


def query_of(console, path=CONTROL) -> dict[str, list[str]]:
    return parse_qs([query for asked, query in console.control.questions if asked == path][-1])


async def test_lines_have_time_level_and_message_and_keep_the_order_in_which_they_came(page):
    listed = await shown(page)

    numbers = [int(found) for found in re.findall(r'id="line-7-(\d+)00"', listed)]
    assert numbers == list(range(200, 0, -1))
    assert line(listed, 197).endswith("! warning control.relay rows wait reason=database is locked num_rows=3")
    assert query_of(page) == {"limit": ["200"]}


async def test_a_traceback_stands_with_its_line(page):
    listed = await shown(page)

    assert "ZeroDivisionError: division by zero" in line(listed, 195)
    assert "✕ error" in line(listed, 195)


async def test_what_was_left_out_of_a_long_line_is_counted(page):
    assert "91,204 characters in the middle are left out here" in line(await shown(page), 192)


@pytest.mark.parametrize(("zone", "hour"), [("Asia/Shanghai", "21"), ("UTC", "13"), ("America/New_York", "08")])
async def test_times_are_of_the_zone_of_whoever_looks(page, zone, hour):
    page.browser.cookies.set(page.sessions.zone_cookie, zone)

    assert line(await shown(page), 200).startswith(f"{hour}:41:40")


async def test_the_day_is_named_where_it_changes(page):
    day_s = 86_400
    entries = [answers.entry(number) for number in (3 * day_s // 2, 1)]
    page.control.answers[CONTROL] = answers.log_page(*entries)

    days = re.findall(r'class="day num"[^>]*>([\d-]+)<', await shown(page))

    assert len(days) == 2
    assert days == sorted(days, reverse=True)


async def test_what_is_in_a_log_is_text(page):
    page.control.answers[CONTROL] = answers.log_page(answers.entry(1, message="<script>alert(1)</script>"))

    listed = await shown(page)

    assert "<script>alert" not in listed
    assert "&lt;script&gt;alert(1)" in listed


async def test_filters_go_to_control_and_stay_in_every_link(page):
    listed = await shown(page, "/logs/control?level=WARNING&text=disk+full%26more")

    assert query_of(page) == {"limit": ["200"], "level": ["WARNING"], "text": ["disk full&more"]}
    assert '<option value="WARNING" selected>' in listed
    assert 'value="disk full&amp;more"' in listed
    links = re.findall(r'(?:href|hx-get)="(/logs/[^"]*)"', listed)
    followed = [link for link in links if not link.endswith("/file")]
    assert len(followed) == 6
    assert all("level=WARNING&amp;text=disk+full%26more" in link for link in followed)


@pytest.mark.parametrize("query", ["level=LOUD", "level=", "text=", "text=%20%20"])
async def test_a_filter_that_cannot_be_is_none(page, query):
    await shown(page, f"/logs/control?{query}")

    assert query_of(page) == {"limit": ["200"]}


async def test_older_lines_are_a_page_of_their_own_that_is_not_followed(page):
    newest = await shown(page)
    older = await shown(page, "/logs/control?before=7-100")

    assert 'href="/logs/control?before=7-100">Older lines' in newest
    assert 'hx-get="/logs/control/live"' in newest
    assert query_of(page) == {"limit": ["200"], "before": ["7-100"]}
    assert 'hx-get="/logs' not in older
    assert 'href="/logs/control">To the newest' in older


async def test_a_search_is_repeated_less_often_than_the_newest_lines_are_asked_for(page):
    everything = await shown(page)
    searched = await shown(page, "/logs/control?text=needle")

    assert 'hx-trigger="every 2s, refresh"' in everything
    assert 'hx-trigger="every 10s, refresh"' in searched


async def test_following_can_be_stopped_and_begun(page):
    stopped = await shown(page, "/logs/control?follow=off")

    assert 'hx-get="/logs' not in stopped
    assert 'href="/logs/control?follow=off">Stand still' in await shown(page)
    assert 'href="/logs/control">Follow' in stopped


async def test_where_a_search_ended_early_it_offers_to_go_on_and_does_not_say_that_there_is_nothing(page):
    page.control.answers[CONTROL] = answers.log_page(older="7-40000", is_cut_short=True)

    listed = await shown(page, "/logs/control?text=needle")

    assert "Nothing fits in what was searched so far" in listed
    assert 'href="/logs/control?text=needle&amp;before=7-40000">Search further back' in listed


@pytest.mark.parametrize(
    ("path", "size_bytes", "sentence"),
    [
        ("/logs/control", 0, "Nothing has been written yet"),
        ("/logs/control?text=x", 0, "Nothing has been written yet"),
        ("/logs/control?text=x", 900, "No line fits"),
        ("/logs/control?before=1-1", 900, "There is nothing older"),
    ],
)
async def test_an_empty_page_says_why(page, path, size_bytes, sentence):
    page.control.answers[CONTROL] = wire.LogPage("control", (), None, is_cut_short=False, size_bytes=size_bytes)

    assert sentence in await shown(page, path)


@pytest.mark.parametrize(
    "path", ["/logs/admin", "/logs/control.log", "/logs/..%2Fsecrets", "/logs/admin/file", "/logs/x/live"]
)
async def test_there_is_no_log_of_another_name(page, path):
    answer = await page.browser.get(path)

    assert answer.status_code == 404
    assert page.control.questions == []


async def test_the_live_part_brings_the_lines_alone(page):
    part = (await page.browser.get("/logs/engine/live?level=ERROR")).text

    assert 'id="line-7-20000"' in part
    assert "<html" not in part
    assert query_of(page, wire.LOGS.format(name="engine")) == {"limit": ["200"], "level": ["ERROR"]}


async def test_a_log_is_downloaded_byte_by_byte_under_a_name_of_its_own(page):
    content = b"first \xff\n" * 100_000
    page.control.answers[wire.LOG_FILE.format(name="engine")] = content

    answer = await page.browser.get("/logs/engine/file")

    assert answer.content == content
    assert answer.headers["content-disposition"] == 'attachment; filename="splash-engine.log"'
    assert answer.headers["content-type"].startswith("text/plain")


async def test_without_control_the_page_says_how_to_read_the_log(page):
    page.control.is_silent = True

    listed = await shown(page, "/logs/engine")
    file = await page.browser.get("/logs/engine/file")

    assert "<code>splash logs engine</code>" in listed
    assert (file.status_code, "splash logs" in file.text) == (502, True)


async def test_the_page_is_in_chinese_for_who_reads_it(page):
    listed = (await page.browser.get("/logs", headers={"accept-language": "zh-CN"})).text

    assert "警告" in line(listed, 197)
    assert "新内容写入后会自动出现" in listed
