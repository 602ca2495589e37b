"""The console in front of the real control and the scripted engine: what the page shows is what happens."""

import json
import threading

import pytest

from tests.browser.watched_page import assert_bar_advances_and_disappears, see_slot, watch_slot
from tests.story.stack import Stack, fake_engine, is_free, wait_until

SLOW_PREFILL = [
    {
        "match": "read slowly",
        "steps": [
            {"prefill": {"total": 60_000, "cached": 20_000, "duration_ms": 5_000}},
            {"tokens": {"text": "word " * 600, "per_second": 20}},
        ],
    }
]


@pytest.fixture
def stack(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SLOW_PREFILL))
    stack = Stack(tmp_path / "home", engine_command=fake_engine(script))
    yield stack
    stack.clean_up()


class Client:
    """Streams one answer from a thread; `lines` are what came."""

    def __init__(self, stack: Stack, message: str) -> None:
        self.lines: list[str] = []
        self._stack = stack
        self._message = message
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self) -> str:
        """Everything that came, when the stream has ended."""
        self._thread.join(30)
        assert not self._thread.is_alive(), "the stream did not end"
        return "\n".join(self.lines)

    def _run(self) -> None:
        body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": self._message}]}
        with self._stack.api() as api, api.stream("POST", "/chat/completions", json=body) as answer:
            self.lines.extend(answer.iter_lines())


@pytest.mark.story
def test_a_slow_prefill_is_seen_to_advance_to_generate_and_to_be_cancelled(stack, pages):
    page = pages.open(stack.up()["login"])
    page.wait_for_selector("#state-word >> text=ready")
    see_slot(page)
    client = Client(stack, "read slowly")

    sights = watch_slot(page, until=lambda sight: sight.phase == "decode")
    page.wait_for_selector("#figure-speed >> text=1 stream")
    page.click("#slot-1 >> text=cancel")
    page.get_by_role("button", name="Cancel the request").click()
    client.wait()

    assert_bar_advances_and_disappears(sights)
    page.wait_for_selector("#recent >> text=cancelled")
    assert see_slot(page).phase == "free"


@pytest.mark.story
def test_what_the_engine_switched_off_is_said_on_the_page_and_why(tmp_path, pages):
    script = tmp_path / "script.json"
    why = {"cache_off": "logits differ", "failed_tests": {"restore": "logits differ", "late_system": "no place for it"}}
    script.write_text(json.dumps([why]))
    stack = Stack(tmp_path / "home", engine_command=fake_engine(script))
    try:
        page = pages.open(stack.up("--kv-bits", "8")["login"])
        page.wait_for_selector("#state >> text=cache off")
        warnings = page.locator("#engine .warnings li").all_inner_texts()
        page.click("nav >> text=Model")
        page.wait_for_selector("#engine .facts >> text=batching")
        facts = page.inner_text("#engine .facts")
    finally:
        stack.clean_up()

    assert [warning.split("Reason: ")[1] for warning in warnings] == ["logits differ", "no place for it"]
    assert "in 8 bits" in facts
    assert "2 of 4 passed" in facts


@pytest.mark.story
def test_unload_load_and_quit_on_the_page_do_what_they_say(stack, pages):
    page = pages.open(stack.up()["login"])
    page.wait_for_selector("#state-word >> text=ready")

    page.click("#engine >> text=Unload…")
    page.get_by_role("button", name="Unload", exact=True).click()
    page.wait_for_selector("#state-word >> text=no model")
    wait_until(lambda: not stack.is_alive("engine"), "the engine to be gone")
    page.click("#engine >> text=Load the last model…")
    page.wait_for_selector("#verdict >> text=It fits.")
    page.get_by_role("button", name="Load", exact=True).click()
    page.wait_for_selector("#state-word >> text=ready")
    page.click(".masthead nav >> text=Quit")
    page.get_by_role("button", name="Quit Splash").click()
    page.wait_for_selector("#quit-lead >> text=Splash has stopped", timeout=30_000)

    assert not stack.is_alive("engine")
    assert not stack.is_alive("control")
    wait_until(lambda: not stack.is_alive("webui"), "the console to be gone")
    assert all(is_free(port) for port in stack.ports.values())
