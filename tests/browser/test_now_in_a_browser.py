import threading
import time

import msgspec
import pytest

from control.wire import LoadProgress
from tests.browser.watched_page import assert_bar_advances_and_disappears, see_slot, watch_slot
from tests.fakes import control as fake
from tests.fakes.performance import performance
from tests.story.stack import wait_until


def play(control, *overviews, every_s: float = 0.8) -> threading.Thread:
    """Show control's overviews one after the other, by themselves."""

    def run() -> None:
        for overview in overviews:
            control.overview = overview
            time.sleep(every_s)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_the_bar_of_a_slow_prefill_advances_and_disappears_at_decode(console, control, pages):
    control.overview = fake.overview()
    page = pages.open(console.link())
    page.wait_for_selector("#slot-1")
    see_slot(page)
    steps = [
        fake.prefilling(prefilled=n, cached=20_000, prompt=100_000) for n in (20_000, 40_000, 60_000, 80_000, 99_000)
    ]

    thread = play(
        control, *(fake.overview(slots=(step,)) for step in steps), fake.overview(slots=(fake.decoding(slot=1),))
    )
    sights = watch_slot(page, until=lambda sight: sight.phase == "decode")
    thread.join()

    assert_bar_advances_and_disappears(sights)
    assert "52.1 tok/s" in sights[-1].speed
    assert sights[0].phase == "free"


def test_nothing_below_the_rows_moves_when_requests_come_and_go(console, control, pages):
    page = pages.open(console.link())
    top = "() => [...document.querySelectorAll('section')].map((section) => section.getBoundingClientRect().top)"
    before = page.evaluate(top)

    control.overview = fake.overview(
        slots=tuple(fake.decoding(n, slot=n) for n in range(1, 5)), line=tuple(fake.waiting(n, n) for n in range(1, 60))
    )
    page.wait_for_selector("#waiting-r59")

    assert page.evaluate(top) == before


def test_a_request_that_pauses_for_memory_and_goes_on_stays_the_same_row_of_the_same_height(console, control, pages):
    generating, reading = fake.decoding(4809, slot=1), fake.prefilling(4812, slot=1)
    control.overview = fake.overview(slots=(generating,))
    page = pages.open(console.link())
    sights = [*watch_slot(page, until=lambda sight: sight.phase == "decode")]

    for slot, phase in ((fake.paused(generating), "paused"), (generating, "decode"), (reading, "prefill")):
        control.overview = fake.overview(slots=(slot,))
        sights += watch_slot(page, until=lambda sight, phase=phase: sight.phase == phase)
    control.overview = fake.overview(slots=(fake.paused(reading),))
    sights += watch_slot(page, until=lambda sight: sight.phase == "paused")

    assert "paused for memory" in sights[-1].text
    assert sights[-1].percent is None
    assert len({(sight.height, sight.top) for sight in sights}) == 1
    assert all(sight.isSameNode for sight in sights)


def test_warnings_come_and_go_without_moving_what_is_around_the_card(console, control, pages):
    page = pages.open(console.link())
    tops = "() => [...document.querySelectorAll('section')].map((section) => section.getBoundingClientRect().top)"
    before = page.evaluate(tops)

    control.overview = fake.overview(view=fake.engine_with_warnings())
    page.wait_for_selector("#engine >> text=The cache is off")
    page.wait_for_selector("#state >> text=cache off")
    during = page.evaluate(tops)
    control.overview = fake.overview()
    page.wait_for_selector("#engine >> text=The cache is off", state="hidden")

    assert before == during == page.evaluate(tops)


def test_an_open_panel_stays_open_and_follows_what_happens(console, control, pages):
    control.overview = fake.overview(slots=(fake.decoding(),))
    page = pages.open(console.link())
    page.click("text=Unload…")
    page.wait_for_selector("#panel-unload:popover-open >> text=1 running request finishes first.")

    control.overview = fake.overview(slots=(fake.decoding(), fake.prefilling()))
    page.wait_for_selector("#panel-unload:popover-open >> text=2 running requests finish first.")

    assert page.locator(":popover-open").count() == 1


def test_a_panel_for_one_request_never_turns_into_that_of_another(console, control, pages):
    control.overview = fake.overview(slots=(fake.decoding(4809, slot=1),))
    page = pages.open(console.link())
    page.click("#slot-1 >> text=cancel")
    page.wait_for_selector("#cancel-r4809:popover-open")

    control.overview = fake.overview(slots=(fake.decoding(4900, slot=1),))
    page.wait_for_selector("#slot-1 >> text=#4900")

    assert page.locator(":popover-open").count() == 0


def test_the_buttons_do_what_they_say(console, control, pages):
    control.overview = fake.overview(slots=(fake.decoding(slot=1),), line=(fake.waiting(5001, 1),))
    page = pages.open(console.link())

    for opener, confirm in (
        ("#engine >> text=Unload…", "Unload"),
        ("#engine >> text=Restart…", "Restart"),
        ("#engine >> text=Force stop…", "Stop it now"),
        ("#slot-1 >> text=cancel", "Cancel the request"),
        ("#waiting-r5001 >> text=cancel", "Cancel the request"),
    ):
        page.click(opener)
        page.get_by_role("button", name=confirm, exact=True).click()
        page.wait_for_url(f"{console.address}/")
    page.get_by_role("button", name="2", exact=True).click()
    page.wait_for_url(f"{console.address}/")

    assert control.orders == [
        ("POST", "/engine/unload", {}),
        ("POST", "/engine/restart", {}),
        ("POST", "/engine/unload", {"force": True}),
        ("POST", "/requests/r4809/cancel", {}),
        ("POST", "/requests/r5001/cancel", {}),
        ("POST", "/settings/concurrency", {"concurrency": 2}),
    ]


def test_every_button_works_without_javascript(console, control, pages):
    page = pages.open(console.link(), java_script_enabled=False)

    page.click("text=Unload…")
    page.get_by_role("button", name="Unload", exact=True).click()

    assert control.orders == [("POST", "/engine/unload", {})]
    assert page.url == f"{console.address}/"


@pytest.mark.parametrize(
    ("locale", "theme", "ready", "ground"),
    [
        ("en-US", "light", "ready", "rgb(243, 245, 247)"),
        ("zh-CN", "dark", "就绪", "rgb(13, 17, 20)"),
        ("zh-Hant-TW", "light", "就绪", "rgb(243, 245, 247)"),
        ("fr-FR", "dark", "ready", "rgb(13, 17, 20)"),
    ],
)
def test_language_and_theme_follow_the_browser(console, pages, locale, theme, ready, ground):
    page = pages.open(console.link(), locale=locale, color_scheme=theme)

    assert page.inner_text("#state-word") == ready
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == ground


def test_language_and_theme_can_be_switched_and_are_kept(console, pages):
    page = pages.open(console.link(), color_scheme="light")

    page.click("text=中文")
    page.wait_for_selector("text=最近的请求")
    page.get_by_role("button", name="主题：跟随系统").click()
    page.get_by_role("button", name="主题：浅色").click()
    page.goto(f"{console.address}/clients")

    assert page.inner_text("h1") == "客户端"
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(13, 17, 20)"


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_a_phone_shows_everything_without_scrolling_sideways(console, control, pages, locale):
    control.overview = fake.overview(
        slots=(fake.prefilling(), fake.decoding()),
        line=tuple(fake.waiting(n, n) for n in range(1, 9)),
        view=fake.engine(model=msgspec.structs.replace(fake.MODEL, id="a-rather-long-name/of-some-model-27B-4bit-mlx")),
    )
    control.requests = tuple(fake.finished(n) for n in range(3))
    page = pages.open(console.link(), viewport={"width": 390, "height": 844}, locale=locale)

    widths = {}
    for path in ("/", "/clients", "/quit"):
        page.goto(f"{console.address}{path}")
        widths[path] = page.evaluate("document.documentElement.scrollWidth")

    assert widths == {"/": 390, "/clients": 390, "/quit": 390}


def test_a_hidden_page_rests_and_asks_at_once_when_it_is_seen_again(console, control, pages):
    page = pages.open(console.link())
    set_hidden = """(hidden) => {
        Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    asked = []
    page.on("request", lambda request: asked.append(request.url))

    page.evaluate(set_hidden, True)
    page.wait_for_timeout(300)
    asked.clear()
    page.wait_for_timeout(2_500)
    while_hidden = list(asked)
    page.evaluate(set_hidden, False)
    page.wait_for_timeout(300)

    assert while_hidden == []
    assert {url.removeprefix(console.address) for url in asked} == {"/now/live", "/now/hour", "/state"}


def test_while_the_gateway_is_down_the_page_stays_and_says_so(console, control, pages):
    control.overview = fake.overview(slots=(fake.decoding(slot=1),))
    page = pages.open(console.link())
    page.wait_for_selector("#slot-1 >> text=#4809")

    control.is_silent = True
    page.wait_for_selector("text=The gateway has not answered for 2 s")
    kept = page.inner_text("#slot-1")
    said = page.inner_text("#state-word")
    control.is_silent = False
    page.wait_for_selector("#state-word >> text=ready")

    assert "#4809" in kept
    assert said == "gateway not answering"
    assert page.is_hidden("#stale")


def test_while_the_console_itself_is_down_the_page_says_how_old_it_is_and_comes_back(own_console, pages):
    pages.forgives = lambda complaint: "ERR_CONNECTION_REFUSED" in complaint or "Failed to fetch" in complaint
    page = pages.open(own_console.link())

    own_console.stop()
    page.wait_for_selector("#lost:visible")
    age = page.inner_text("#lost-age")
    banner = page.inner_text("#lost code")
    state = (
        page.inner_text("#state-word"),
        page.inner_text("#state .sign"),
        page.get_attribute("#state .mark", "class"),
    )
    slots = page.locator("tr.slot").count()
    own_console.start()
    page.wait_for_selector("#lost", state="hidden")

    page.wait_for_selector("#state-word >> text=ready")

    assert age.endswith(" s")
    assert banner == "splash up"
    assert state == ("console not answering", "✕", "mark tone-bad")
    assert slots == 4
    assert page.get_attribute("#state .mark", "class") == "mark tone-good"
    assert len(pages.complaints) < 10


def test_loading_shows_its_progress(console, control, pages):
    progress = LoadProgress(bytes_read=43 * fake.GIB, bytes_total=100 * fake.GIB, seconds=9.4, read_seconds=8.6)
    control.overview = fake.overview(view=fake.engine("loading", load=progress))

    page = pages.open(console.link())

    assert page.inner_text("#state-word") == "loading"
    assert page.inner_text("#state .state-detail") == "43% · 12 s left"
    assert page.get_attribute("#engine [role=progressbar]", "aria-valuenow") == "43"
    assert "5.0 GiB/s" in page.inner_text("#engine")


def test_the_last_hour_is_drawn_beside_the_page_and_outlives_its_refreshes(console, control, pages):
    tops = "() => [...document.querySelectorAll('#live > *')].map((each) => each.getBoundingClientRect().top)"
    first_answer = "performance.getEntriesByType('resource').some((each) => each.name.endsWith('/now/hour'))"
    page = pages.open(console.link())
    before = page.evaluate(tops)
    # A question that is asked while the first one is under way is dropped.
    wait_until(lambda: page.evaluate(first_answer), "the first answer")
    page.wait_for_timeout(50)
    control.answers[fake.wire.PERFORMANCE] = performance()
    page.evaluate("htmx.trigger('#hour', 'refresh')")
    page.wait_for_selector("#hour canvas")
    page.evaluate("window.remembered = [...document.querySelectorAll('#hour canvas')]")

    page.wait_for_timeout(2_500)

    assert ("/performance", "range=hour") in control.questions
    assert page.locator("#hour canvas").count() == 2
    assert page.evaluate("[...document.querySelectorAll('#hour canvas')].every((each, n) => each === remembered[n])")
    assert page.evaluate(tops) == before


def test_an_ended_request_leads_to_its_own_page(console, control, pages):
    row = fake.finished(4808)
    control.requests = (row,)
    control.answers[fake.wire.REQUEST.format(id=row.id)] = fake.listed(row)
    page = pages.open(console.link())

    page.click("#recent >> text=#4808")
    page.wait_for_url(f"{console.address}/requests/{row.id}")

    assert "#4808" in page.inner_text("main")


def test_trouble_with_the_database_is_one_line_that_goes_when_it_is_over(console, control, pages):
    trouble = fake.wire.DatabaseHealth(waiting_rows=42, problem="the disk is full")
    control.overview = msgspec.structs.replace(fake.overview(), database=trouble)
    page = pages.open(console.link())

    words = page.inner_text("#trouble")
    control.overview = fake.overview()
    page.wait_for_selector("#trouble", state="hidden")

    assert (
        words == "! 42 ended requests are not yet in the database; they are tried again. The reason: the disk is full."
    )
