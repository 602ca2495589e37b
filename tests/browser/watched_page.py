"""Pages of the browser that report what must not happen, and what is seen on *Now* at one moment."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page

LOOPBACK = {"127.0.0.1", "localhost", "::1"}

# One evaluation sees one moment: the page is morphed between two calls.
SEE_SLOT = """(slot) => {
    const row = document.getElementById(`slot-${slot}`);
    const bar = row.querySelector("[role=progressbar]");
    if (window.watchedRow === undefined) window.watchedRow = row;
    return {
        phase: row.dataset.phase,
        percent: bar === null ? null : Number(bar.getAttribute("aria-valuenow")),
        tones: bar === null ? [] : [...bar.querySelectorAll("rect")].map((rect) => rect.getAttribute("width")),
        text: row.querySelector(".c-phase").innerText,
        speed: row.querySelector(".c-speed").innerText,
        height: row.getBoundingClientRect().height,
        top: row.getBoundingClientRect().top,
        isSameNode: window.watchedRow === row,
    };
}"""


@dataclass(frozen=True)
class Sight:
    """A row of *Now* at one moment. `percent` None: there is no bar."""

    phase: str
    percent: int | None
    tones: list[str]
    text: str
    speed: str
    height: float
    top: float
    isSameNode: bool  # noqa: N815  # as the page names it


class WatchedPages:
    """`forgives`: when it is true of a complaint, that one is expected."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []
        self.outside: list[str] = []
        self.forgives: Callable[[str], bool] = lambda complaint: False

    def open(self, link: str | None = None, **options: Any) -> Page:
        context = self._browser.new_context(
            **{"locale": "en-US", "viewport": {"width": 1280, "height": 900}, **options}
        )
        context.set_default_timeout(10_000)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._note_request)
        if link is not None:
            page.goto(link)
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        assert [complaint for complaint in self.complaints if not self.forgives(complaint)] == []
        assert self.outside == []

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def _note_request(self, request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https", "ws", "wss") and address.hostname not in LOOPBACK:
            self.outside.append(request.url)


def see_slot(page: Page, slot: int = 1) -> Sight:
    return Sight(**page.evaluate(SEE_SLOT, slot))


def watch_slot(page: Page, *, slot: int = 1, until: Callable[[Sight], bool], limit_s: float = 30) -> list[Sight]:
    """Look ten times a second until `until`; every sight, the last one included."""
    sights: list[Sight] = []
    for _ in range(int(limit_s * 10)):
        sights.append(see_slot(page, slot))
        if until(sights[-1]):
            return sights
        page.wait_for_timeout(100)
    raise AssertionError(f"not seen within {limit_s} s; the last: {sights[-1]}")


def assert_bar_advances_and_disappears(sights: list[Sight]) -> None:
    """The story of a slow prefill, from a free row to a generating one."""
    prefilling = [sight for sight in sights if sight.percent is not None]
    percents = [sight.percent for sight in prefilling]
    last = sights[-1]
    assert len(set(percents)) >= 3, f"the bar stood still: {percents}"
    assert percents == sorted(percents), f"the bar went back: {percents}"
    assert all(sight.phase == "prefill" and len(sight.tones) == 2 for sight in prefilling)
    assert (last.phase, last.percent) == ("decode", None)
    assert "%" not in last.text
    assert "ETA" not in last.text
    assert max(s.height for s in sights) - min(s.height for s in sights) < 1
    assert max(s.top for s in sights) - min(s.top for s in sights) < 1
    assert all(sight.isSameNode for sight in sights)
