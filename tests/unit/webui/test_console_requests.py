"""The page *Requests*: what control is asked, what is shown of its answer, and where everything leads."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from control import wire
from tests.fakes import control as fake
from webui.text import load_texts
from webui.views.request_columns import COLUMNS, DEFAULT, chosen_columns
from webui.views.request_detail import detail_page
from webui.views.requests_page import Asked
from webui.views.shell import Shell

LISTED = fake.listed(
    msgspec.structs.replace(
        fake.finished(4812), first_emission_tokens=1, largest_gap_ms=412.0, drafted_tokens=1600, accepted_tokens=800
    )
)


@pytest.fixture
def page(control):
    """What control answers about requests; `page(…)` changes it."""

    def set_page(*listed: wire.ListedRequest, **more: object) -> None:
        control.answers[wire.REQUESTS] = wire.RequestPage(requests=listed, **more)
        for each in listed:
            control.answers[wire.REQUEST.format(id=each.row.id)] = each

    control.answers[wire.REQUEST_CHOICES] = wire.RequestChoices(
        keys=("claude", "codex"), models=("big",), dialects=("chat", "messages")
    )
    set_page(LISTED)
    return set_page


def asked_of(control) -> dict[str, list[str]]:
    return parse_qs([query for path, query in control.questions if path == wire.REQUESTS][-1])


def links(html: str) -> list[str]:
    return [unescape(link) for link in re.findall(r'href="(/requests[^"]*)"', html)]


async def test_a_row_shows_its_numbers_and_leads_to_its_detail(console, page):
    html = (await console.browser.get("/requests")).text

    assert 'href="/requests/r4812"' in html
    for shown in ("#4812", "2.31 s", "14.82 s", "61,204", "57,000", "93%", "812", "54.8", "¥0.012", "completed"):
        assert shown in html
    assert "new requests appear by themselves" in html


async def test_control_is_asked_for_exactly_what_the_address_says(console, page, control):
    address = "/requests?range=week&key=codex&outcome=failed&dialect=chat&sort=speed&direction=asc&after=abc&evil=1"
    html = (await console.browser.get(address)).text

    assert asked_of(control) == {
        "limit": ["50"],
        "range": ["week"],
        "key": ["codex"],
        "outcome": ["failed"],
        "dialect": ["chat"],
        "sort": ["speed"],
        "direction": ["asc"],
        "after": ["abc"],
    }
    assert '<option value="codex" selected>' in html
    assert '<option value="failed" selected>' in html


async def test_headings_sort_and_say_how_the_list_is_sorted(console, page):
    html = (await console.browser.get("/requests?key=codex&sort=speed&after=abc")).text

    assert re.findall(r'<th[^>]*c-(\w+)[^>]*aria-sort="(\w+)"', html) == [("speed", "descending")]
    assert "/requests?key=codex&sort=speed&direction=asc" in links(html), "the other way round, from the first page"
    assert "/requests?key=codex&sort=cost" in links(html)
    assert "/requests?key=codex" in links(html), "by time, which goes without saying"


async def test_only_the_newest_page_asks_again_by_itself_and_for_the_same(console, page):
    for address, is_live in (
        ("/requests?key=codex", True),
        ("/requests?sort=speed", False),
        ("/requests?direction=asc", False),
        ("/requests?after=abc", False),
    ):
        html = (await console.browser.get(address)).text
        assert ('hx-get="/requests/live' in html, address) == (is_live, address)
    html = (await console.browser.get("/requests?key=codex")).text
    live = (await console.browser.get("/requests/live?key=codex")).text

    assert 'hx-get="/requests/live?key=codex"' in html
    assert 'id="request-r4812"' in live
    assert "<html" not in live
    assert "<form" not in live


async def test_older_and_newer_keep_the_filter(console, page):
    page(LISTED, next="older+/=", previous="newer")
    html = (await console.browser.get("/requests?key=a%26b&after=x")).text

    targets = [parse_qs(urlsplit(link).query) for link in links(html) if "after=" in link]
    assert targets == [{"key": ["a&b"], "after": ["newer"]}, {"key": ["a&b"], "after": ["older+/="]}]
    assert "/requests?key=a%26b" in links(html), "back to the newest"


async def test_a_file_is_of_exactly_this_filter(console, page, control):
    html = (await console.browser.get("/requests?key=codex&range=week&sort=speed")).text
    export = next(link for link in links(html) if "format=csv" in link)
    control.answers[wire.REQUEST_EXPORT] = b"number,key\r\n1,codex\r\n"

    answer = await console.browser.get(export)

    assert answer.content == b"number,key\r\n1,codex\r\n"
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert re.fullmatch(
        r'attachment; filename="splash-requests-\d{8}-\d{6}Z\.csv"', answer.headers["content-disposition"]
    )
    path, query = control.questions[-1]
    assert (path, parse_qs(query)) == (
        wire.REQUEST_EXPORT,
        {"format": ["csv"], "range": ["week"], "key": ["codex"]},
    )


async def test_a_file_that_cannot_be_is_a_page_in_words(console, page, control):
    wrong = await console.browser.get("/requests/export?format=xlsx")
    refused = await console.browser.get("/requests/export?format=csv")
    control.is_silent = True
    silent = await console.browser.get("/requests/export?format=csv")

    assert (wrong.status_code, refused.status_code, silent.status_code) == (400, 404, 502)
    assert "cannot be exported" in refused.text
    assert "splash up" in silent.text


async def test_chosen_columns_are_kept_by_the_browser_and_lead_back_to_the_list(console, page):
    answer = await console.post("/requests/columns", here="/requests?key=codex", column_model="on", column_cost="on")
    html = (await console.browser.get("/requests")).text

    assert (answer.status_code, answer.headers["location"]) == (303, "/requests?key=codex")
    assert re.findall(r'<th[^>]*class="c-(\w+)', html) == ["number", "model", "cost"]

    await console.post("/requests/columns", here="/requests")
    html = (await console.browser.get("/requests")).text

    assert tuple(re.findall(r'<th[^>]*class="c-(\w+)', html)) == ("number", *DEFAULT)


async def test_the_choice_of_columns_leads_nowhere_else(console, page):
    answer = await console.post("/requests/columns", here="//elsewhere", column_key="on")

    assert answer.headers["location"] == "/requests"


def test_columns_that_do_not_exist_are_left_out():
    assert [column.name for column in chosen_columns(["cost", "nonsense", "key"])] == ["key", "cost"]
    assert chosen_columns(["nonsense"]) == tuple(column for column in COLUMNS if column.is_default)


async def test_a_list_that_is_not_sorted_to_its_end_says_since_when_it_is(console, page):
    page(LISTED, sorted_since_s=1_795_000_000.0)

    html = (await console.browser.get("/requests?sort=speed&range=month")).text

    assert "only those since 2026-11-18" in html


async def test_empty_lists_say_what_to_do(console, page):
    page()
    everything = (await console.browser.get("/requests")).text
    filtered = (await console.browser.get("/requests?outcome=failed")).text
    beyond = (await console.browser.get("/requests?after=x")).text

    assert "OPENAI_BASE_URL=http://127.0.0.1:8888/v1" in everything
    assert "No request matches this filter." in filtered
    assert "nothing further" in beyond


async def test_a_refusal_and_a_silent_gateway_are_said_in_the_place_of_the_rows(console, control):
    control.answers[wire.REQUESTS] = wire.AdminError(code="invalid_request", message="sort must be one of these.")
    refused = (await console.browser.get("/requests?sort=nonsense")).text
    control.is_silent = True
    silent = (await console.browser.get("/requests")).text

    assert "sort must be one of these." in refused
    assert "<tbody" not in refused
    assert "so the requests are not known" in silent
    assert "appear by themselves" not in silent
    assert "request-pages" not in silent
    assert "/requests/export" not in silent
    assert re.search(r'<button type="button" disabled title="No file can be made[^>]*>CSV', silent)


async def test_a_row_without_numbers_shows_dashes_and_no_zero(console, page):
    rejected = msgspec.structs.replace(
        fake.finished(9, "rejected", error_code="rate_limit_exceeded"),
        queue_ms=None,
        ttft_ms=None,
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=0,
    )
    page(wire.ListedRequest(row=rejected, tokens_per_second=None, cost=0.0, currency="CNY"))

    html = (await console.browser.get("/requests")).text
    cells = dict(re.findall(r'<td[^>]*class="c-(\w+)[^>]*>.*?<span class="value">([^<]*)', html, re.DOTALL))

    dashed = ("queue", "prefill", "ttft", "decode", "prompt", "cached", "output", "speed", "cost")
    assert {cells[name] for name in dashed} == {"—"}
    assert "line full" in html


async def test_one_request_shows_where_its_time_went_as_a_drawing_and_as_a_table(console, page):
    html = (await console.browser.get("/requests/r4812")).text

    bars = re.findall(r'<rect class="t-(\w+)" x="([\d.]+)%" y="\d+" width="([\d.]+)', html)
    assert [name for name, _, _ in bars] == ["queue", "prefill", "cached", "decode", "first"]
    (_, prefill_x, prefill_width), (_, cached_x, cached_width) = bars[1], bars[2]
    assert cached_x == prefill_x
    assert float(cached_width) / float(prefill_width) == pytest.approx(57_000 / 61_204, abs=0.01)
    assert float(prefill_width) == pytest.approx(100 * 2310 / 17_142, abs=0.01)
    assert "The longest gap between two of them lasted 0.41 s." in html
    assert "The model ended its answer by itself." in html
    for value in ("4,204 tok", "800 / 1,600 · 50.0%", "r4812", "14.82 s"):
        assert value in html


def shell() -> Shell:
    text = load_texts()["en"]
    return Shell(text=text, theme="system", page="requests", title="", here="/", form_token="", masthead=None)


def test_the_parts_of_a_timeline_fill_it_and_what_is_left_is_the_rest():
    row = msgspec.structs.replace(
        fake.finished(1), queue_ms=1000.0, prefill_ms=2000.0, decode_ms=3000.0, total_ms=8000.0
    )

    timeline = detail_page(shell(), fake.listed(row)).timeline

    assert [(phase.name, phase.start_percent, phase.width_percent) for phase in timeline.phases] == [
        ("queue", 0.0, 12.5),
        ("prefill", 12.5, 25.0),
        ("decode", 37.5, 37.5),
        ("rest", 75.0, 25.0),
    ]
    assert timeline.ticks == ("0.00 s", "2.00 s", "4.00 s", "6.00 s", "8.00 s")


def test_a_request_that_never_ran_has_no_timeline_and_what_is_more_than_the_whole_time_is_not_drawn():
    never = msgspec.structs.replace(
        fake.finished(1, "rejected", error_code="no_model"), queue_ms=None, ttft_ms=None, total_ms=3.0
    )
    early = msgspec.structs.replace(fake.finished(2), queue_ms=1e3, prefill_ms=1e3, decode_ms=2.5e3, total_ms=4e3)

    whole = detail_page(shell(), fake.listed(early)).timeline

    assert detail_page(shell(), fake.listed(never)).timeline is None
    assert [(phase.name, phase.start_percent, phase.width_percent, phase.lasted) for phase in whole.phases] == [
        ("queue", 0.0, 25.0, "1.00 s"),
        ("prefill", 25.0, 25.0, "1.00 s"),
        ("decode", 50.0, 50.0, "2.50 s"),
    ]
    assert whole.ticks[-1] == "4.00 s"


@pytest.mark.parametrize(
    ("outcome", "code", "sentence"),
    [
        ("cancelled", "client_gone", "The client closed the connection"),
        ("failed", "engine_died", "The engine process crashed"),
        ("rejected", "key_limit_reached", "one of its limits"),
        ("failed", "something_new", "It ended with the code something_new."),
    ],
)
async def test_how_it_ended_is_said_in_plain_words(console, page, outcome, code, sentence):
    page(fake.listed(fake.finished(5, outcome, error_code=code)))

    assert sentence in (await console.browser.get("/requests/r5")).text


def test_a_request_that_was_cut_before_its_first_token_is_told_by_what_happened():
    cut = msgspec.structs.replace(
        fake.finished(3, "cancelled", error_code="client_gone"),
        ttft_ms=None,
        decode_ms=None,
        queue_ms=100.0,
        prefill_ms=700.0,
        total_ms=1_000.0,
        prompt_tokens=4_096,
        cached_tokens=1_024,
        completion_tokens=0,
    )
    waited = msgspec.structs.replace(cut, prefill_ms=None)

    page = detail_page(shell(), fake.listed(cut))
    sentences = {phase.name: phase.sentence for phase in page.timeline.phases}
    facts = {fact.label: fact.sentence for fact in page.groups[0].facts}

    assert sentences["prefill"].startswith(
        "The engine was reading the prompt when the request ended: it had computed 3,072"
    )
    assert sentences["rest"].endswith("There was no answer to hand over.")
    assert facts["prompt"].startswith("Tokens of the prompt that were read until the request ended")
    assert facts["computed"].endswith("computed until the request ended.")
    assert (
        detail_page(shell(), fake.listed(waited))
        .timeline.phases[0]
        .sentence.startswith("It stood in the line until it")
    )


def test_a_scale_has_the_same_decimals_at_all_its_ticks_however_long_it_is():
    long = msgspec.structs.replace(fake.finished(4), queue_ms=10.0, total_ms=100_000.0)

    assert detail_page(shell(), fake.listed(long)).timeline.ticks == (
        "0.00 s",
        "25.00 s",
        "50.00 s",
        "75.00 s",
        "100.00 s",
    )


@pytest.mark.parametrize(
    ("cost", "written"), [(0.000077, "<¥0.0001"), (0.00093, "¥0.00093"), (0.0, "¥0.00"), (1.204, "¥1.20")]
)
async def test_a_cost_that_is_next_to_nothing_is_said_to_be_less_with_the_amount_behind_it(
    console, page, cost, written
):
    page(msgspec.structs.replace(LISTED, cost=cost, currency="CNY"))

    html = unescape((await console.browser.get("/requests")).text)

    assert f'<span class="value">{written}</span>' in html
    assert ('title="¥0.000077"' in html) is (cost == 0.000077)


async def test_a_request_that_still_runs_or_waits_says_so_and_leads_to_now(console, control):
    control.overview = fake.overview(slots=(fake.decoding(7),), line=(fake.waiting(8, 1),))

    running, waiting = await console.browser.get("/requests/r7"), await console.browser.get("/requests/r8")

    assert (running.status_code, waiting.status_code) == (200, 200)
    assert "still running" in running.text
    assert "still waits" in waiting.text
    assert 'class="button" href="/"' in running.text


async def test_a_request_that_is_not_known_is_a_page_in_words(console, control):
    answer = await console.browser.get("/requests/gone")
    control.is_silent = True
    silent = await console.browser.get("/requests/gone")

    assert (answer.status_code, silent.status_code) == (404, 502)
    assert "ended more than 30 days ago" in answer.text
    assert "splash up" in silent.text


def test_an_address_says_only_what_does_not_go_without_saying():
    asked = Asked.of({"key": "a b&c", "sort": "started", "direction": "desc", "range": "all", "outcome": ""})

    assert asked.path() == "/requests?key=a+b%26c"
    assert asked.is_newest
    assert asked.is_filtered
    assert not Asked.of({"sort": "speed"}).is_filtered
