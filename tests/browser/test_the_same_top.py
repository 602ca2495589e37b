"""Every page has the same top: all pages in sight in the navigation, and a heading at one place, at any width."""

import pytest

from tests.browser.furnished import furnish
from webui.views.shell import NAVIGATION

# The letters of the heading, whatever stands around them, and whether every link of the navigation is in sight.
SEE_TOP = """() => {
    const letters = document.createRange();
    letters.selectNodeContents(document.querySelector("h1"));
    const nav = document.querySelector(".masthead nav");
    const links = [...nav.querySelectorAll("a")].map((link) => link.getBoundingClientRect());
    return {
        top: letters.getBoundingClientRect().top,
        isSeen: getComputedStyle(document.querySelector("h1")).clipPath === "none",
        hidden: links.filter(({ left, right }) => left < 0 || right > document.documentElement.clientWidth).length,
        scrolls: nav.scrollWidth > nav.clientWidth,
    };
}"""


@pytest.mark.parametrize("width", [1280, 800, 390])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_all_pages_are_in_sight_and_every_heading_stands_where_the_others_do(pages, console, control, width, locale):
    furnish(control)
    page = pages.open(console.link(), locale=locale, viewport={"width": width, "height": 844})
    tops = {}

    for link in NAVIGATION:
        page.goto(console.address + link.path)
        tops[link.page] = page.evaluate(SEE_TOP)

    assert {(top["isSeen"], top["hidden"], top["scrolls"]) for top in tops.values()} == {(True, 0, False)}
    assert max(top["top"] for top in tops.values()) - min(top["top"] for top in tops.values()) < 1, tops


def test_on_a_phone_a_rejection_has_its_reason_and_a_block_for_a_client_is_whole(pages, console, control):
    furnish(control)
    page = pages.open(console.link(), viewport={"width": 390, "height": 844})

    page.goto(f"{console.address}/requests")
    assert page.locator("td.c-outcome", has_text="rejected").first.inner_text().endswith("no model")

    page.goto(f"{console.address}/clients")
    wide = "(pres) => pres.filter((pre) => pre.scrollWidth > pre.clientWidth).length"
    assert page.locator("#connect pre:visible").evaluate_all(wide) == 0


def test_a_plan_that_can_not_be_loaded_says_nothing_of_what_a_load_would_do(pages, console, control):
    furnish(control)
    page = pages.open(console.link())
    page.goto(f"{console.address}/model/load?model=demo")
    page.wait_for_selector("#load-button:enabled")
    assert page.is_visible("#load-effect")

    page.fill("#load-context", "nonsense")
    page.wait_for_selector("#load-button:disabled")

    assert not page.is_visible("#load-effect")


def test_the_language_stays_in_sight_beside_a_new_key_and_says_why_it_waits(pages, console, control):
    furnish(control)
    page = pages.open(console.link())
    page.goto(f"{console.address}/clients")

    page.fill("#key-name", "laptop")
    page.click("#make button.primary")
    page.wait_for_selector("#new-key")

    waiting = page.locator(".preferences > button:disabled")
    assert waiting.count() == 2
    assert waiting.first.get_attribute("title") == "Copy the key first: it is shown on this page only."
