"""*Quit* while requests run: wait for them or end them now, and what is still there, step by step. No real engine."""

import subprocess
import sys

import msgspec
import psutil
import pytest

from control.wire import ProcessRecord
from tests.fakes import control as fake
from tests.fakes.control_record import gateway_process

RUNNING = (fake.decoding(slot=1), fake.decoding(4810, slot=2))


class Stage:
    """Two processes that stand for the model and the gateway: they live until the test ends them."""

    def __init__(self, console):
        gateway = gateway_process(console.home, console.control)
        self.processes = {"engine": self._start(console.home, "engine"), "control": gateway}

    def end(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def _start(self, home, name):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        created_at_s = psutil.Process(process.pid).create_time()
        record = ProcessRecord(
            name=name,
            pid=process.pid,
            created_at_s=created_at_s,
            nonce=name,
            port=1,
            manager="detached",
            started_at_s=created_at_s,
            version="0",
        )
        (home / "run" / f"{name}.json").write_bytes(msgspec.json.encode(record))
        return process


@pytest.fixture
def stage(own_console):
    stage = Stage(own_console)
    yield stage
    for name in stage.processes:
        stage.end(name)


def ask_to_quit(console, pages, **options):
    page = pages.open(console.link(), **options)
    page.goto(f"{console.address}/quit")
    return page


def step(page, name):
    return page.inner_text(f"#step-{name} .step-state")


def test_who_waits_sees_each_step_follow_the_other(own_console, stage, control, pages):
    control.overview = fake.overview(slots=RUNNING)
    page = ask_to_quit(own_console, pages)
    asked = page.inner_text("#quit-lead")

    page.get_by_role("button", name="Wait, then quit").click()
    page.wait_for_selector("#quit-lead >> text=2 running requests finish first.")
    first = (step(page, "engine"), step(page, "gateway"))
    control.overview = fake.overview()
    page.wait_for_selector("#quit-lead >> text=Stopping for")
    stage.end("engine")
    page.wait_for_selector("#step-gateway >> text=stopping")
    second = (step(page, "engine"), step(page, "gateway"))
    stage.end("control")
    page.wait_for_selector("#step-page >> text=can be closed")

    assert asked.startswith("2 requests are running: wait until they have finished, or end them now?")
    assert (first, second) == (("stopping", "not yet"), ("stopped", "stopping"))
    assert control.orders == [("POST", "/quit", {})]


def test_who_ends_them_now_is_told_whom_it_cuts_and_nothing_is_waited_for(own_console, stage, control, pages):
    control.overview = fake.overview(slots=RUNNING)
    page = ask_to_quit(own_console, pages)
    told = page.inner_text("#quit")

    page.get_by_role("button", name="End them now and quit").click()
    page.wait_for_selector("#step-engine >> text=stopping")

    assert "all 2 are cut off and get an error each" in told
    assert control.orders == [("POST", "/quit", {"force": True})]


def test_who_waits_can_end_them_later_on_the_same_page(own_console, stage, control, pages):
    control.overview = fake.overview(slots=RUNNING)
    page = ask_to_quit(own_console, pages)

    page.get_by_role("button", name="Wait, then quit").click()
    page.get_by_role("button", name="Stop it by force").click()
    page.wait_for_selector("#step-engine >> text=stopping")

    assert control.orders == [("POST", "/quit", {}), ("POST", "/quit", {"force": True})]


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("width", [1280, 390])
def test_both_answers_are_in_sight_and_whole(own_console, control, pages, width, locale):
    control.overview = fake.overview(slots=RUNNING, line=(fake.waiting(5001, 1),))

    page = ask_to_quit(own_console, pages, viewport={"width": width, "height": 844}, locale=locale)

    assert page.locator("#quit button").count() == 2
    assert page.evaluate(
        "[...document.querySelectorAll('#quit :is(button, .button)')].every((each) => {"
        "const at = each.getBoundingClientRect();"
        "return at.left >= 0 && at.right <= innerWidth && at.bottom <= innerHeight && each.scrollWidth <= at.width; })"
    )
