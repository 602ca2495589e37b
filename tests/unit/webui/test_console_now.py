import re

import msgspec
import pytest

from control.wire import PERFORMANCE, DatabaseHealth, LoadProgress, Money, Today
from tests.fakes import control as fake
from tests.fakes.performance import performance


def money(currency: str, total: float) -> Money:
    return Money(currency=currency, miss=0.0, hit=0.0, output=total, total=total, cache_saving=0.0)


async def live(console) -> str:
    """The live part as the page asks for it, on one line."""
    answer = await console.browser.get("/now/live", headers={"HX-Request": "true"})
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.text)


async def state(console) -> str:
    return re.sub(r"<[^>]+>|\s+", " ", (await console.browser.get("/state")).text)


def row(html: str, slot: int) -> str:
    return html.split(f'id="slot-{slot}"')[1].split("</tr>")[0].split('class="sheet"')[0]


async def test_a_prefilling_request_has_a_bar_of_two_tones(console):
    console.control.overview = fake.overview(slots=(fake.prefilling(prefilled=75_000, cached=50_000, prompt=100_000),))

    html = row(await live(console), 1)

    assert 'data-phase="prefill"' in html
    assert 'role="progressbar"' in html
    assert 'aria-valuenow="75"' in html
    assert '<rect class="cached" x="0%" width="50.0%"' in html
    assert '<rect class="computed" x="50.0%" width="25.0%"' in html
    assert "ETA 9 s" in html


async def test_the_bar_and_its_estimate_are_gone_when_the_request_generates(console):
    console.control.overview = fake.overview(slots=(fake.decoding(slot=1),))

    html = row(await live(console), 1)

    assert 'data-phase="decode"' in html
    assert "progressbar" not in html
    assert "ETA" not in html
    assert "52.1" in html
    assert "61,204" in html


async def test_there_are_always_four_rows(console):
    for slots in ((), (fake.prefilling(slot=3),), tuple(fake.decoding(n, slot=n) for n in range(1, 5))):
        console.control.overview = fake.overview(slots=slots)

        assert (await live(console)).count('class="slot"') == 4


async def test_a_request_stays_in_its_row_when_fewer_slots_are_wanted(console):
    console.control.overview = fake.overview(slots=(fake.decoding(slot=3),), concurrency=1)

    html = await live(console)

    assert "#4809" in row(html, 3)
    assert "not in use" in row(html, 2)
    assert "not in use" not in row(html, 3)


async def test_what_is_not_known_is_a_dash(console):
    unknown = msgspec.structs.replace(fake.prefilling(eta_s=None), prompt_tokens=None, tokens_per_second=None)
    console.control.overview = fake.overview(slots=(unknown,), today=Today())

    html = await live(console)

    assert row(html, 1).count(">— <") == 2
    assert "progressbar" not in row(html, 1)
    assert 'id="figure-hit-rate"' in html
    assert "0.0%" not in html.split('id="figure-hit-rate"')[1].split("</div>")[0]


async def test_names_that_clients_choose_are_escaped(console):
    console.control.overview = fake.overview(slots=(fake.decoding(slot=1, key="<script>alert(1)</script>"),))

    html = await live(console)

    assert "<script" not in html
    assert "&lt;script&gt;" in html


async def test_the_line_shows_places_ages_and_why_each_waits(console):
    console.control.overview = fake.overview(
        line=(fake.waiting(5001, 1, waited_s=74), fake.waiting(5002, 2, phase="held", waited_s=7_300))
    )

    html = (await live(console)).split('id="line"')[1].split('id="engine"')[0]

    assert "#5001" in html
    assert ">1 min 14 s<" in html
    assert "a slot" in html
    assert "batch" in html
    assert ">2 h 1 min<" in html
    assert "a ready model" in html


async def test_memory_is_drawn_from_the_plan_and_marked_with_what_is_measured(console):
    html = (await live(console)).split('id="memory"')[1].split("</section>")[0]

    for value in ("178.9 GiB", "3.1 GiB", "12.4 GiB of 16.0 GiB", "3.6 GiB", "222.7 GiB", "194.6 GiB"):
        assert value in html
    widths = [float(w) for w in re.findall(r'class="m-(?!measured)\w+" x="[\d.]+%" width="([\d.]+)%"', html)]
    assert sum(widths) == pytest.approx(100, abs=0.1)


async def test_the_demo_is_labelled_as_random(console):
    demo = msgspec.structs.replace(fake.MODEL, id="demo", is_demo=True)
    console.control.overview = fake.overview(view=fake.engine(model=demo))

    html = await live(console)

    assert "demo · random weights" in html
    assert "its text means nothing" in html


async def test_without_a_model_the_page_says_what_to_do(console):
    console.control.overview = fake.overview(view=fake.engine("unloaded"), today=Today())

    html = await live(console)

    assert "Load one from this machine, or give the path" in html
    assert "export OPENAI_BASE_URL=http://127.0.0.1:8888/v1" in html
    assert 'href="/model#models">Choose a model…</a>' in html
    assert 'popovertarget="panel-unload"' not in html


@pytest.mark.parametrize(
    ("overview", "expected"),
    [
        (fake.overview(), "● ready Qwen3.8-27B-4bit · 262k"),
        (fake.overview(view=fake.engine("unloaded")), "○ no model"),
        (
            fake.overview(view=fake.engine("loading", load=LoadProgress(bytes_read=43, bytes_total=100, seconds=9.4))),
            "◐ loading 43% · 12 s left Qwen3.8-27B-4bit",
        ),
        (fake.overview(view=fake.engine("loading", load=LoadProgress())), "◐ loading Qwen3.8-27B-4bit"),
        (
            fake.overview(view=fake.engine("draining"), slots=(fake.prefilling(), fake.decoding())),
            "◒ draining 2 running requests finish",
        ),
        (
            fake.overview(view=fake.engine("crashed", error="out of memory"), line=(fake.waiting(1, 1, phase="held"),)),
            "◒ crashed starts again by itself · held 1",
        ),
        (fake.overview(view=fake.engine("failed", error="It does not fit.")), "✕ failed It does not fit."),
        (fake.overview(view=fake.engine(status_age_s=12.0)), "✕ silent for 12 s"),
        (fake.overview(quitting=True), "◒ quitting"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_masthead_says_how_the_whole_system_is(console, overview, expected):
    console.control.overview = overview

    assert expected in re.sub(r"\s+", " ", await state(console))


async def test_while_control_is_silent_the_page_keeps_what_it_knew_and_says_how_old_it_is(console):
    console.control.overview = fake.overview(slots=(fake.decoding(),))
    await live(console)
    console.control.is_silent = True
    console.watch.forget()

    html = await live(console)

    assert "The gateway has not answered for 0 s" in html
    assert "#4809" in html
    assert "gateway not answering" in await state(console)
    assert 'popovertarget="panel-unload"' not in html


async def test_before_control_ever_answered_the_page_is_there_with_dashes(console):
    console.control.is_silent = True
    console.watch.forget()

    answer = await console.browser.get("/")

    assert answer.status_code == 200
    assert "nothing is known yet" in answer.text
    assert answer.text.count('class="slot"') == 4


async def test_recent_requests_show_where_their_time_went(console):
    console.control.requests = (fake.finished(4808), fake.finished(4807, "failed", error_code="out_of_memory"))

    html = (await live(console)).split('id="recent"')[1]

    for value in ("#4808", "0.01 s", "2.31 s", "14.82 s", "61,204", "57,000", "812", "completed"):
        assert value in html
    assert re.search(r"failed.* · .*out_of_memory", html)
    assert "—" in html


@pytest.mark.parametrize(
    ("outcome", "code", "expected"),
    [
        ("cancelled", "client_gone", "cancelled · client left"),
        ("cancelled", "request_cancelled", "cancelled"),
        ("failed", "engine_died", "failed · engine crashed"),
        ("failed", "engine_stopped", "failed · force-stopped"),
        ("completed", None, "completed"),
    ],
)
async def test_how_a_request_ended_is_said_in_words_with_the_code_behind_them(console, outcome, code, expected):
    console.control.requests = (fake.finished(4807, outcome, error_code=code),)

    html = (await live(console)).split('id="recent-r4807"')[1].split("</tr>")[0]
    words = re.sub(r"<[^>]+>", "", html.split('class="c-outcome')[1].split("</span> ", 1)[1])

    assert words.strip() == expected
    assert code is None or f'title="{outcome} · {code}"' in html


async def test_a_request_that_was_never_counted_has_no_numbers(console):
    uncounted = msgspec.structs.replace(fake.finished(4807, "rejected"), prompt_tokens=0, cached_tokens=0)
    console.control.requests = (uncounted,)

    html = (await live(console)).split('id="recent-r4807"')[1].split("</tr>")[0]

    assert ">0<" not in html
    assert html.count(">—<") == 5


async def test_a_request_whose_turn_has_not_come_is_not_drawn_as_a_bar_that_stands_still(console):
    unread = msgspec.structs.replace(
        fake.prefilling(4813, slot=2, prefilled=0, cached=0, eta_s=None), tokens_per_second=None
    )
    console.control.overview = fake.overview(slots=(fake.prefilling(slot=1), unread))
    behind_another = await live(console)
    console.control.overview = fake.overview(slots=(unread,))
    console.watch.forget()
    alone = await live(console)

    assert 'data-phase="next"' in row(behind_another, 2)
    assert "waiting to be read" in row(behind_another, 2)
    assert "progressbar" not in row(behind_another, 2)
    assert "progressbar" in row(behind_another, 1)
    assert "progressbar" in row(alone, 2)


@pytest.mark.parametrize(
    ("slots", "note", "tone"),
    [
        ((), "0 streams", "idle"),
        ((fake.decoding(),), "1 stream", "good"),
        ((fake.prefilling(),), "1 reading · 2,940 tok/s", "busy"),
        ((fake.prefilling(), fake.decoding()), "1 stream · 1 reading", "good"),
    ],
    ids=["idle", "decode", "prefill", "both"],
)
async def test_a_machine_that_only_reads_does_not_look_idle(console, slots, note, tone):
    console.control.overview = fake.overview(slots=slots)

    figure = (await live(console)).split('id="figure-speed"')[1].split("</div>")[0]

    assert f">{note}<" in figure
    assert f"tone-{tone}" in figure


@pytest.mark.parametrize(("holds", "expected"), [(False, "requests get a 503"), (True, "requests are held")])
async def test_without_a_model_the_page_says_what_becomes_of_requests(console, holds, expected):
    console.control.overview = fake.overview(view=fake.engine("unloaded", holds=holds))

    assert expected in await live(console)


@pytest.mark.parametrize(
    ("state", "tone"), [("failed", "bad"), ("crashed", "wait"), ("loading", "idle"), ("ready", "bad")]
)
async def test_only_what_needs_a_person_is_red(console, state, tone):
    console.control.overview = fake.overview(view=fake.engine(state, error="It was killed by SIGKILL."))

    assert f'class="problem tone-{tone}"' in await live(console)


async def test_one_word_of_each_section_is_a_stop_of_the_tab_key(console):
    console.control.overview = fake.overview(slots=(fake.decoding(),), line=(fake.waiting(5001, 1),))
    console.control.requests = (fake.finished(4808),)

    sections = (await live(console)).split("<section")[1:]
    stops = [re.findall(r'class="hinted [^"]*" tabindex="(-?\d)"', section).count("0") for section in sections]

    assert stops == [1, 1, 1, 1, 1]


async def test_every_number_of_a_running_request_explains_itself(console):
    console.control.overview = fake.overview(slots=(fake.prefilling(), fake.decoding()))

    html = await live(console)
    cells = re.findall(r'<td role="cell" class="c-(?:context|speed|elapsed) num"([^>]*)>', html)

    assert len(cells) == 6
    assert all(re.search(r'title="[^"]{20,}"', cell) for cell in cells)


async def test_a_fragment_is_the_same_block_as_in_the_page(console):
    page = re.sub(r"\s+", " ", (await console.browser.get("/")).text)

    assert (await live(console)).split('id="memory"')[0].strip() in page


async def test_the_model_card_says_how_it_runs(console):
    html = (await live(console)).split('id="engine"')[1].split("</section>")[0]

    for value in ("1 h 10 min", "262,144 of 262,144", "a row per request", "2 of 2 passed", "pid 4242", "195.9 GiB"):
        assert value in html


@pytest.mark.parametrize(
    ("view", "panels"),
    [
        (fake.engine("unloaded"), set()),
        (fake.engine("loading"), {"unload", "restart", "force"}),
        (fake.engine("ready"), {"unload", "restart", "force"}),
        (fake.engine("draining"), {"unload", "restart", "force"}),
        (fake.engine("stopping"), {"restart", "force"}),
        # Unloading a crashed engine calls off its next start.
        (fake.engine("crashed", pid=None), {"unload", "restart"}),
        # A failed one whose process did not go away can still be ended.
        (fake.engine("failed"), {"unload", "restart", "force"}),
    ],
    ids=lambda value: value.state if hasattr(value, "state") else "",
)
async def test_only_what_is_possible_is_offered(console, view, panels):
    console.control.overview = fake.overview(view=view)

    html = await live(console)

    assert set(re.findall(r'<button[^>]*popovertarget="panel-(unload|restart|force)"', html)) == panels


@pytest.mark.parametrize(
    ("saved", "value", "note"),
    [
        ((), "—", "1,204 requests"),
        ((money("CNY", 31.2),), "¥31.20", "1,204 requests"),
        ((money("CNY", 31.2), money("USD", 2.1)), "¥31.20", "1,204 requests · + $2.10"),
    ],
    ids=["no prices", "one currency", "two"],
)
async def test_what_was_saved_today_is_shown_by_currency_and_never_added(console, saved, value, note):
    today = msgspec.structs.replace(fake.overview().today, saved=saved)
    console.control.overview = fake.overview(today=today)

    figure = (await live(console)).split('id="figure-today"')[1].split("</div>")[0]

    assert f">{value}<" in figure
    assert f">{note}<" in figure


async def test_lost_numbers_and_a_damaged_file_are_said_in_words(console):
    health = DatabaseHealth(waiting_rows=1, lost_rows=2, problem="the disk is full", set_aside="splash.db.damaged")
    console.control.overview = msgspec.structs.replace(fake.overview(), database=health)

    line = (await live(console)).split('id="trouble"')[1].split("</p>")[0]

    for words in ("1 ended request is not yet", "the disk is full", "2 ended requests could not be kept", ".damaged"):
        assert words in line


async def test_without_trouble_nothing_is_said_of_the_database(console):
    assert 'id="trouble" class="banner tone-wait" role="status" hidden></p>' in await live(console)


async def test_ended_requests_lead_to_their_own_pages_and_to_all_of_them(console):
    console.control.requests = (fake.finished(4808),)

    html = (await live(console)).split('id="recent"')[1]

    assert 'href="/requests/r4808"' in html
    assert 'href="/requests"' in html


async def test_without_javascript_the_page_loads_itself_anew_and_says_of_when_it_is(console):
    page = (await console.browser.get("/")).text
    without = " ".join(re.findall(r"<noscript>(.*?)</noscript>", page, re.DOTALL))

    assert '<meta http-equiv="refresh" content="5">' in without
    assert re.search(r"Its figures are of \d\d:\d\d:\d\d\.", without)
    assert 'href="/performance?range=hour"' in without


async def test_the_last_hour_is_asked_for_by_itself_and_nothing_while_it_is_not_known(console):
    unknown = await console.browser.get("/now/hour")
    console.control.answers[PERFORMANCE] = performance()
    known = await console.browser.get("/now/hour")

    assert (unknown.status_code, unknown.text) == (204, "")
    assert known.text.count("data-chart=") == 2
    assert "data-chart=" not in await live(console)
