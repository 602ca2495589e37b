"""`make screenshots`: every page of the console in both languages and themes, of a real stack at work, into docs/.

The model is the demo, so what it says is noise; the history before today is invented (`benchmarks.console_history`).
The pictures are WebP, which the browser itself writes: a third of a PNG's size. It checks nothing.
"""

import base64
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import httpx
import msgspec
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from benchmarks.console_history import make_history
from control import wire
from tests.browser.conftest import CHROMIUM
from tests.story.stack import ROOT, Stack, wait_until
from webui.views.shell import NAVIGATION

FOLDER: Final = ROOT / "docs" / "screenshots"
QUALITY: Final = 74
DESKTOP: Final = {"width": 1280, "height": 900}
PHONE: Final = {"width": 390, "height": 844}
LOCALES: Final = {"en": "en-US", "zh": "zh-CN"}
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
# A page that is longer is cut there: what is below is more of the same.
LONGEST_PX: Final = 1_280
PHONE_PX: Final = 2_400
LONG_LISTS: Final = ("requests", "logs")
NUM_ROWS: Final = 40_000
NUM_DAYS: Final = 200

KEYS: Final = ("claude", "codex", "opencode", "nightly")
CONCURRENCY: Final = 3
PROMPT_WORDS: Final = (1_400, 300, 900, 60)
QUESTION: Final = {"en": "What can you do?", "zh": "你会做什么？"}
SETTLE_MS: Final = 1_200
# Until some requests have ended.
WARM_UP_S: Final = 25.0


class Load:
    """A client for each key: one more than may run at once, so that somebody waits."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._ended = threading.Event()
        with stack.admin() as admin:
            admin.post(wire.CONCURRENCY, content=msgspec.json.encode(wire.ConcurrencyRequest(concurrency=CONCURRENCY)))
            made = [admin.post(wire.KEYS, content=msgspec.json.encode(wire.NewKey(name=name))) for name in KEYS]
        keys = [msgspec.json.decode(answer.content, type=wire.CreatedKey).key for answer in made]
        self._threads = [
            threading.Thread(target=self._ask, args=(key, words)) for key, words in zip(keys, PROMPT_WORDS, strict=True)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, key: str, num_words: int) -> None:
        number = 0
        while not self._ended.wait(0.2):
            number += 1
            # The beginning is the same each time, so that much of it comes from the cache.
            prompt = "word " * num_words + f"question {number}"
            body = {"model": "default", "stream": True, "max_tokens": 400, "messages": [_message(prompt)]}
            with suppress(httpx.HTTPError), self._stack.api() as api:
                api.headers["Authorization"] = f"Bearer {key}"
                self._listen(api, body)

    def _listen(self, api: httpx.Client, body: dict[str, Any]) -> None:
        with api.stream("POST", "/chat/completions", json=body) as answer:
            for _ in answer.iter_lines():
                if self._ended.is_set():
                    return


def _message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def shoot(page: Page, name: str, *, longest_px: int = LONGEST_PX) -> None:
    """What is drawn late is waited for: charts, and what a page asks for by itself."""
    page.wait_for_load_state("load")
    page.wait_for_timeout(SETTLE_MS)
    plots = page.locator(".plot[data-chart]").count()
    if plots:
        page.locator(".plot canvas").nth(plots - 1).wait_for()
    width = page.viewport_size["width"] if page.viewport_size is not None else DESKTOP["width"]
    height = min(page.evaluate("document.documentElement.scrollHeight"), longest_px)
    tools = page.context.new_cdp_session(page)
    picture = tools.send(
        "Page.captureScreenshot",
        {
            "format": "webp",
            "quality": QUALITY,
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
        },
    )
    tools.detach()
    (FOLDER / f"{name}.webp").write_bytes(base64.b64decode(picture["data"]))


def shoot_all(context: BrowserContext, address: str, *, language: str, scheme: str) -> None:
    page = context.new_page()
    for link in NAVIGATION:
        page.goto(address + link.path)
        if link.page == "playground":
            page.fill("#question", QUESTION[language])
            page.keyboard.press("Enter")
            page.locator(".turn-answer > .words:not(:empty)").wait_for(timeout=60_000)
        longest_px = DESKTOP["height"] if link.page in LONG_LISTS else LONGEST_PX
        shoot(page, f"{link.page}-{language}-{scheme}", longest_px=longest_px)
    page.goto(f"{address}/requests")
    page.goto(address + str(page.locator("main a[href^='/requests/']:not([href*='?'])").first.get_attribute("href")))
    shoot(page, f"request-{language}-{scheme}")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a dict of both
    page.goto(address)
    shoot(page, f"now-phone-{language}-{scheme}", longest_px=PHONE_PX)
    page.close()


def shoot_everything(browser: Browser, link: str) -> None:
    first = browser.new_context()
    page = first.new_page()
    page.goto(link)
    page.wait_for_selector("#state-word >> text=ready", timeout=120_000)
    session, address = first.storage_state(), page.url.rstrip("/")
    first.close()
    for language, locale in LOCALES.items():
        for scheme in SCHEMES:
            context = browser.new_context(
                storage_state=session,
                locale=locale,
                color_scheme=scheme,
                viewport=DESKTOP,  # type: ignore[arg-type]  # a dict of both
            )
            context.set_default_timeout(30_000)
            shoot_all(context, address, language=language, scheme=scheme)
            context.close()


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="splash-pictures-") as folder, sync_playwright() as playwright:
        stack = Stack(Path(folder) / "splash")
        stack.home.create()
        make_history(stack.home.database, now_s=time.time(), num_rows=NUM_ROWS, num_days=NUM_DAYS)
        try:
            link = stack.up()["login"]
            wait_until(lambda: stack.engine_state() == "ready", "the model to be ready", 120)
            with Load(stack):
                time.sleep(WARM_UP_S)
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                shoot_everything(browser, link)
                browser.close()
        finally:
            stack.quit("--force")
            stack.clean_up()
    pictures = sorted(FOLDER.glob("*.webp"))
    total_kib = sum(picture.stat().st_size for picture in pictures) / 1024
    print(f"{len(pictures)} pictures, {total_kib:,.0f} KiB, in {FOLDER.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
