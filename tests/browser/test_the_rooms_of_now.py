"""What has its room on *Now*: no word is cut off, and nothing moves when something comes or goes."""

import msgspec
import pytest

from tests.fakes import control as fake
from tests.fakes.performance import performance

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
CUT = """(selector) => [...document.querySelectorAll(selector)].filter((each) => each.scrollWidth > each.clientWidth)
    .map((each) => each.innerText)"""
HIDDEN_HEIGHT = """(selector) => [...document.querySelectorAll(selector)]
    .map((each) => each.scrollHeight - each.clientHeight)"""
MORE_SERIES = """() => {
    const first = document.querySelector("#hour .plot-series");
    for (let more = 0; more < 2; more += 1) first.after(first.cloneNode(true));
}"""
PLACES = """(selector) => [...document.querySelectorAll(selector)].map((each) => {
    const { left, top, width } = each.getBoundingClientRect();
    return [each.id || each.className, left, top, width];
})"""


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_time_that_a_prompt_takes_is_never_cut_off(console, control, pages, viewport, locale):
    spans = (59.0, 425.0, 2_640.0, 7_500.0)
    control.overview = fake.overview(
        slots=tuple(fake.prefilling(4800 + n, slot=n, eta_s=eta_s) for n, eta_s in enumerate(spans, start=1))
    )

    page = pages.open(console.link(), viewport=viewport, locale=locale)

    assert page.locator(".eta").count() == len(spans)
    assert page.evaluate(CUT, ".eta, .percent") == []


@pytest.mark.parametrize("viewport", [WIDE, {"width": 900, "height": 900}, NARROW], ids=["wide", "middle", "narrow"])
def test_columns_stand_where_they_are_whether_or_not_a_row_can_be_cancelled(console, control, pages, viewport):
    cells = ".slots th, #slot-1 .c-elapsed, #slot-1 .c-speed"
    page = pages.open(console.link(), viewport=viewport)
    page.wait_for_selector("#slot-1")
    free = page.evaluate(PLACES, cells)
    control.overview = fake.overview(slots=(fake.prefilling(),))
    page.wait_for_selector("#slot-1 >> text=#4812")
    reading = page.evaluate(PLACES, cells)
    control.overview = fake.overview(slots=(fake.decoding(slot=1),))
    page.wait_for_selector("#slot-1 >> text=#4809")
    generating = page.evaluate(PLACES, cells)

    assert free[: len(free) - 2] == reading[: len(free) - 2] == generating[: len(free) - 2]
    assert reading == generating


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_silent_gateway_is_said_without_moving_anything(console, control, pages, viewport):
    everything = ".figure, section, tr.slot, .masthead nav"
    page = pages.open(console.link(), viewport=viewport)
    before = page.evaluate(PLACES, everything)
    control.is_silent = True
    page.wait_for_selector("#stale:visible")
    during = page.evaluate(PLACES, everything)
    is_in_sight = page.evaluate("document.querySelector('#stale').getBoundingClientRect().bottom <= innerHeight")
    control.is_silent = False
    page.wait_for_selector("#stale", state="hidden")

    assert before == during == page.evaluate(PLACES, everything)
    assert is_in_sight


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_card_of_the_model_needs_no_scrolling_and_cuts_nothing(console, control, pages, viewport, locale):
    demo = msgspec.structs.replace(fake.MODEL, id="splash-demo", is_demo=True)
    broken = msgspec.structs.replace(fake.PROMISES, gap_violations=42, largest_gap_ms=2_268.0)
    control.overview = fake.overview(view=fake.engine(model=demo, promises=broken))

    page = pages.open(console.link(), viewport=viewport, locale=locale)

    assert page.evaluate(HIDDEN_HEIGHT, ".engine-body") == [0]
    assert page.evaluate(CUT, "#engine dd, #memory .legend li") == []


@pytest.mark.parametrize("viewport", [WIDE, {"width": 1030, "height": 900}, NARROW], ids=["wide", "edge", "narrow"])
def test_why_a_model_failed_is_read_whole_in_its_card_and_behind_the_state(console, control, pages, viewport):
    reason = f"The model does not fit: it needs {'a lot of memory and ' * 14}then some."
    control.overview = fake.overview(view=fake.engine("failed", error=reason))

    page = pages.open(console.link(), viewport=viewport)
    page.hover(".state .mark")

    assert reason in page.inner_text("#engine .problem")
    assert page.evaluate(HIDDEN_HEIGHT, ".engine-body, #engine .problem") == [0, 0]
    assert page.inner_text("#hint:popover-open") == reason


def test_a_unit_stands_beside_its_number(console, control, pages):
    gap = """() => {
        const [number, unit] = ["num", "unit"].map((name) => document.querySelector(`#figure-speed .${name}`));
        const range = document.createRange();
        range.selectNodeContents(number);
        return unit.getBoundingClientRect().left - range.getBoundingClientRect().right;
    }"""
    page = pages.open(console.link())
    unknown = page.evaluate(gap)
    control.overview = fake.overview(slots=(fake.decoding(slot=1),))
    page.wait_for_selector("#figure-speed >> text=52.1")

    assert max(unknown, page.evaluate(gap)) < 16


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_fourth_number_of_streams_takes_no_room_from_the_chart(console, control, pages, viewport):
    heights = "[...document.querySelectorAll('#hour .plot-canvas')].map((each) => each.clientHeight)"
    control.answers[fake.wire.PERFORMANCE] = performance()
    page = pages.open(console.link(), viewport=viewport)
    page.wait_for_selector("#hour canvas")
    few = page.evaluate(heights)
    page.evaluate(MORE_SERIES)

    assert page.locator("#hour .plot-reading").first.locator(".plot-series").count() == 4
    assert page.evaluate(heights) == few
    assert page.evaluate(HIDDEN_HEIGHT, "#hour .plot-reading") == [0, 0]
