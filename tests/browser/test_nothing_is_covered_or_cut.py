"""No number is cut, nothing lies over what a person would press, and a long line can be walked past."""

import msgspec
import pytest

from control import wire
from tests.browser.furnished import furnish
from tests.fakes import control as fake
from tests.fakes.control_record import gateway_process

WIDE, CLOSE, EDGE = ({"width": width, "height": 900} for width in (1280, 1160, 1030))
MIDDLE, NARROW = {"width": 800, "height": 900}, {"width": 390, "height": 844}
EVERY_WIDTH = pytest.mark.parametrize(
    "viewport", [WIDE, CLOSE, EDGE, MIDDLE, NARROW], ids=["wide", "close", "edge", "middle", "narrow"]
)
BOTH_LANGUAGES = pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
# What leaves an element: text that is wider or higher than the room of the box that shows it, or than its panel.
CUT = """(selector) => [...document.querySelectorAll(selector)].filter((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    const around = each.closest(".figure, td, li, dd");
    const [text, box] = [range.getBoundingClientRect(), around.getBoundingClientRect()];
    const right = Math.min(box.right - parseFloat(getComputedStyle(around).paddingRight),
        each.closest("section").getBoundingClientRect().right);
    return text.width > 0 && (text.right > right + 1 || text.left < box.left - 1 || text.bottom > box.bottom + 1
        || each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== "inline");
}).map((each) => each.innerText)"""
# The elements of `selector` that something else lies over, where the page can be scrolled to show them.
COVERED = """(selector) => [...document.querySelectorAll(selector)].filter((each) => {
    const { left, top, width, height } = each.getBoundingClientRect();
    if (width === 0 || top + height > innerHeight || top < 0 || left + width > innerWidth) return false;
    const on_top = document.elementFromPoint(left + width / 2, top + height / 2);
    return on_top !== each && !each.contains(on_top);
}).map((each) => each.innerText || each.id)"""
TOPS = "[...document.querySelectorAll('#live > *')].map((each) => each.getBoundingClientRect().top)"
EDGES = """(selector) => [...document.querySelectorAll(selector)].map((each) => {
    const { left, right } = each.getBoundingClientRect();
    return [Math.round(left), Math.round(right)];
})"""


def today() -> wire.Today:
    saved = (
        wire.Money(currency="USD", miss=0.0, hit=0.0, output=0.0, total=12_345.67, cache_saving=0.0),
        wire.Money(currency="CNY", miss=0.0, hit=0.0, output=0.0, total=31.2, cache_saving=0.0),
    )
    return msgspec.structs.replace(
        fake.overview().today,
        requests=11_204,
        prompt_tokens=1_003_102_458,
        cached_tokens=991_192_128,
        saved=saved,
    )


@BOTH_LANGUAGES
@EVERY_WIDTH
def test_no_number_of_now_is_cut_however_large_it_is(console, control, pages, viewport, locale):
    long = {"elapsed_s": 35_940.0}
    reading = msgspec.structs.replace(
        fake.prefilling(10_123, slot=1, prompt=262_144, prefilled=201_000, cached=100_000, eta_s=2_640.0), **long
    )
    writing = msgspec.structs.replace(fake.decoding(10_122, slot=2), tokens_per_second=1_208.4, **long)
    control.overview = fake.overview(
        slots=(reading, writing, fake.paused(fake.decoding(10_121, slot=3))),
        line=tuple(fake.waiting(15_000 + n, n, waited_s=35_940.0) for n in range(1, 31)),
        today=today(),
    )
    control.requests = tuple(fake.finished(14_800 + n) for n in range(3))

    page = pages.open(console.link(), viewport=viewport, locale=locale)

    assert page.evaluate(CUT, ".figure .value, .figure .note") == []
    assert page.evaluate(CUT, ".slots td.num:not(.c-slot), .slots .percent, .slots .eta") == []
    assert page.evaluate(CUT, ".line td.num, .legend li, .engine dd") == []
    assert page.evaluate(CUT, ".slots .name, .line .name, .line .badge") == []
    assert page.evaluate(CUT, ".recent td.num, .recent .name") == []


@EVERY_WIDTH
def test_a_silent_gateway_covers_no_page_and_no_preference_and_the_end_of_the_page_is_free(
    console, control, pages, viewport
):
    page = pages.open(console.link(), viewport=viewport)
    control.is_silent = True
    page.wait_for_selector("#stale:visible")
    at_the_top = page.evaluate(COVERED, ".masthead nav a, .preferences button, .figure .value")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")

    assert at_the_top == []
    assert page.evaluate(COVERED, ".foot span, #recent a") == []


def test_a_silent_gateway_covers_no_button_of_the_model_on_a_wide_screen(console, control, pages):
    page = pages.open(console.link(), viewport=WIDE)
    bottom = page.evaluate("document.querySelector('#engine').getBoundingClientRect().bottom")
    page.set_viewport_size({"width": WIDE["width"], "height": int(bottom) + 2})
    control.is_silent = True
    page.wait_for_selector("#stale:visible")

    assert page.evaluate(COVERED, "#engine :is(button, .button)") == []


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_what_is_reached_by_keyboard_while_the_gateway_is_silent_is_not_below_the_banner(
    console, control, pages, viewport
):
    control.overview = fake.overview(line=tuple(fake.waiting(5000 + n, n) for n in range(1, 9)))
    page = pages.open(console.link(), viewport=viewport)
    control.is_silent = True
    page.wait_for_selector("#stale:visible")
    page.focus(".masthead nav a:last-child")

    covered, seen = [], set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.innerText"))
        page.evaluate("document.querySelectorAll('[data-here]').forEach((each) => each.removeAttribute('data-here'))")
        page.evaluate("document.activeElement.setAttribute('data-here', '')")
        covered += page.evaluate(COVERED, "main [data-here]:is(a, button)")

    assert "Load another…" in seen
    assert covered == []


@EVERY_WIDTH
def test_what_is_missing_from_the_numbers_moves_and_covers_nothing(console, control, pages, viewport):
    page = pages.open(console.link(), viewport=viewport)
    before = page.evaluate(TOPS)
    trouble = wire.DatabaseHealth(waiting_rows=3, lost_rows=1, problem="the disk is full", set_aside="splash.damaged")
    control.overview = msgspec.structs.replace(fake.overview(), database=trouble)
    page.wait_for_selector("#trouble:visible")
    during = page.evaluate(TOPS)
    [at] = page.evaluate(
        "[...document.querySelectorAll('#live > *')].map((e, n) => e.id === 'trouble' ? n : -1).filter((n) => n >= 0)"
    )

    assert during[1:at] == before[1:at]
    assert page.evaluate("getComputedStyle(document.querySelector('#trouble')).position") == "static"


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_lost_console_leaves_the_question_and_its_button_free(own_console, control, pages, viewport):
    pages.forgives = lambda complaint: "ERR_CONNECTION_REFUSED" in complaint or "Failed to fetch" in complaint
    furnish(control)
    page = pages.open(own_console.link(), viewport=viewport)
    page.goto(f"{own_console.address}/playground")
    page.wait_for_selector("#question")

    own_console.stop()
    page.wait_for_selector("#lost:visible")

    bottom = page.evaluate("document.querySelector('#lost').getBoundingClientRect().bottom")
    assert bottom < page.evaluate("document.querySelector('.ask').getBoundingClientRect().top")
    assert page.evaluate(COVERED, ".ask textarea, .ask button") == []


def test_gutters_of_panels_and_charts_line_up(console, control, pages):
    furnish(control)
    page = pages.open(console.link(), viewport=WIDE)
    page.wait_for_selector("#hour canvas")

    assert page.evaluate(EDGES, "#hour .chart") == page.evaluate(EDGES, "#line, #engine")


def test_free_slots_are_low_on_a_phone_and_none_moves_when_one_is_taken(console, control, pages):
    heights = "[...document.querySelectorAll('tr.slot')].map((each) => each.getBoundingClientRect().height)"
    page = pages.open(console.link(), viewport=NARROW)
    free = page.evaluate(heights)
    control.overview = fake.overview(slots=(fake.prefilling(slot=1), fake.decoding(slot=2)))
    page.wait_for_selector("#slot-2 >> text=#4809")

    assert page.evaluate(heights) == free
    assert max(free) < 70


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_long_line_ends_within_a_row_so_that_one_sees_that_there_are_more(console, control, pages, viewport):
    control.overview = fake.overview(line=tuple(fake.waiting(5000 + n, n) for n in range(1, 31)))
    page = pages.open(console.link(), viewport=viewport)

    shown = page.evaluate("""() => {
        const box = document.querySelector("#line .scroll").getBoundingClientRect();
        const row = [...document.querySelectorAll("#line tbody tr")].map((each) => each.getBoundingClientRect())
            .find((each) => each.bottom > box.bottom);
        return (box.bottom - row.top) / row.height;
    }""")

    assert 0.25 < shown < 0.85


def test_a_long_line_is_one_stop_of_the_tab_key_and_the_arrows_walk_it(console, control, pages):
    line = tuple(fake.waiting(5000 + n, n) for n in range(1, 31))
    control.overview = fake.overview(line=line)
    page = pages.open(console.link(), viewport=WIDE)
    page.wait_for_selector("#waiting-r5001, #line tbody tr")
    here = "document.activeElement.getAttribute('popovertarget')"
    # The heading of the table is a stop of its own: it explains its words.
    page.focus("#line th .hinted")

    page.keyboard.press("Tab")
    first = page.evaluate(here)
    page.keyboard.press("ArrowDown")
    second = page.evaluate(here)
    page.wait_for_timeout(2_500)
    after_refreshes = page.evaluate(here)
    page.keyboard.press("End")
    last = page.evaluate(here)
    page.keyboard.press("Tab")
    left = page.evaluate(here)

    assert (first, second, last) == tuple(f"cancel-{line[n].id}" for n in (0, 1, 29))
    assert after_refreshes == second
    assert left == "panel-clear"


def test_without_javascript_every_button_of_the_line_is_a_stop(console, control, pages):
    control.overview = fake.overview(line=tuple(fake.waiting(5000 + n, n) for n in range(1, 4)))
    page = pages.open(console.link())
    html = page.evaluate("fetch('/now/live').then((answer) => answer.text())")

    assert html.split('id="line"')[1].split("</section>")[0].count("popovertarget") >= 3
    assert 'tabindex="-1" popovertarget' not in html


@BOTH_LANGUAGES
def test_the_end_of_splash_is_said_over_every_page_that_is_still_open(own_console, control, pages, locale):
    gateway = gateway_process(own_console.home, control)
    page = pages.open(own_console.link(), locale=locale)
    others = [page.context.new_page() for _ in range(2)]
    for other, path in zip(others, ("/", "/requests"), strict=True):
        other.goto(own_console.address + path)
    page.goto(f"{own_console.address}/quit")

    page.click("form.buttons button.danger")
    gateway.kill()
    gateway.wait()
    for other in others:
        other.wait_for_selector("#over:visible")
    own_console.process.wait(20)

    assert all("splash up" in other.inner_text("#over") for other in others)
    assert all(other.is_hidden("#lost") for other in others)
    assert page.is_hidden("#over")
