"""Every page, as a person meets it: what axe finds, what is wider than a phone, what was not translated."""

import hashlib
import re
from pathlib import Path

import pytest

from tests.browser.furnished import furnish
from webui.views.shell import NAVIGATION

VENDOR = Path(__file__).parent / "vendor"
AXE = VENDOR / "axe-core-4.14.1.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
# A page of a single thing stands for all of its kind.
PATHS = [*(link.path for link in NAVIGATION), "/requests/r4800", "/there-is-no-such-page"]

VIOLATIONS = """async (rules) => {
    const found = await axe.run(document, {runOnly: {type: "tag", values: rules}, resultTypes: ["violations"]});
    return found.violations.map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html).join(" | ")}`);
}"""
# Words that a person can read: not those of models, keys, logs, addresses and code.
WORDS = """() => {
    const shown = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    const names = "code, pre, .name, .key, [lang], option, .num, script, style, td, [translate=no]";
    while (shown.nextNode()) {
        const parent = shown.currentNode.parentElement;
        if (parent.checkVisibility() && !parent.closest(names)) found.push(shown.currentNode.textContent);
    }
    return found;
}"""
# An English sentence: several lower-case words side by side. Units and names of things stand alone.
ENGLISH = re.compile(r"\b(?:[A-Z]?[a-z]{2,}\s+){2,}[a-z]{2,}\b")


def test_the_vendored_checker_is_the_one_that_was_chosen():
    sums = dict(reversed(line.split("  ")) for line in (VENDOR / "SHA256SUMS").read_text().splitlines())

    actual = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("axe*")}

    assert actual == sums


def opened(console, control, pages, path, **options):
    furnish(control)
    pages.forgives = lambda complaint: "404" in complaint and "no-such-page" in complaint
    page = pages.open(console.link(), **options)
    page.goto(console.address + path)
    page.wait_for_load_state("networkidle") if path == "/requests/r4800" else page.wait_for_timeout(400)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing_on_any_page(console, control, pages, path, scheme):
    page = opened(console, control, pages, path, color_scheme=scheme, viewport=DESKTOP)

    page.evaluate(AXE.read_text())

    assert page.evaluate(VIOLATIONS, RULES) == []


@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing_on_a_phone_and_no_page_is_wider_than_it(console, control, pages, path):
    page = opened(console, control, pages, path, locale="zh-CN", viewport=PHONE)

    page.evaluate(AXE.read_text())

    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate(VIOLATIONS, RULES) == []


@pytest.mark.parametrize("path", PATHS)
def test_the_switch_of_the_language_leaves_no_english_sentence(console, control, pages, path):
    page = opened(console, control, pages, path)

    if page.locator(".preferences button[lang='zh-Hans']").count() == 0:
        pytest.fail("the page has no switch")
    page.click(".preferences button[lang='zh-Hans']")
    page.wait_for_selector("html[lang='zh-Hans']")
    page.goto(console.address + path)

    assert [words for words in page.evaluate(WORDS) if ENGLISH.search(words)] == []


@pytest.mark.parametrize("path", [link.path for link in NAVIGATION])
def test_the_page_is_found_by_keyboard_and_says_where_one_is(console, control, pages, path):
    page = opened(console, control, pages, "/", viewport=PHONE)

    page.focus(f".masthead nav a[href='{path}']")
    page.keyboard.press("Enter")
    page.wait_for_url(console.address + path)
    at = page.locator(".masthead nav [aria-current]").bounding_box()

    assert page.locator(".masthead nav [aria-current]").get_attribute("href") == path
    assert page.locator("h1").count() == 1
    assert at["x"] >= 0
    assert at["x"] + at["width"] <= PHONE["width"]
