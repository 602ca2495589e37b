"""Every page at 390 px, in both languages: it needs no scrolling sideways, and no word or number is squeezed or cut.

Colours and what the checker of accessibility finds are in `test_accessibility`.
"""

import pytest

from tests.browser.furnished import furnish
from webui.views.shell import NAVIGATION

PHONE = {"width": 390, "height": 844}
SIDEWAYS = """() => [...document.querySelectorAll("main .scroll")]
    .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
    .map((each) => each.innerText.slice(0, 60))"""
# Text in a column so narrow that its words are broken into letters.
SQUEEZED = """() => [...document.querySelectorAll("main :is(td, dd, .name, .badge, .button)")].filter((each) => {
    const { width, height } = each.getBoundingClientRect();
    return width > 0 && width < 40 && height > 3 * width;
}).map((each) => each.innerText)"""
# Only what has a title to be read whole may be cut. Headings for ears alone stand outside, and a button's padding may.
CUT = """() => [...document.querySelectorAll("main *")].filter((each) => {
    const { right, left, width } = each.getBoundingClientRect();
    if (width === 0 || !each.checkVisibility()) return false;
    if (each.closest("svg, pre, .unseen, [title], thead, td.c-cancel, [popover]")) return false;
    const isClipped = getComputedStyle(each).overflowX === "hidden" && each.scrollWidth > each.clientWidth + 4;
    return right > innerWidth + 1 || left < -1 || isClipped;
}).map((each) => `${each.tagName} ${each.className}: ${each.innerText.slice(0, 60)}`)"""


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("path", [*(link.path for link in NAVIGATION), "/requests/r4800"])
def test_a_page_fits_a_phone(console, control, pages, path, locale):
    furnish(control)
    page = pages.open(console.link(), viewport=PHONE, locale=locale)
    page.goto(console.address + path)
    page.wait_for_load_state("networkidle") if path == "/requests/r4800" else page.wait_for_timeout(600)

    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate(SIDEWAYS) == []
    assert page.evaluate(SQUEEZED) == []
    assert page.evaluate(CUT) == []
