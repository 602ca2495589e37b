import asyncio
import os
import re
import subprocess
import sys

import msgspec
import psutil
import pytest

from control.wire import AdminError, ProcessRecord
from tests.fakes import control as fake
from webui import farewell as farewell_module
from webui.farewell import Farewell, progress


def record(name: str, pid: int = 1) -> ProcessRecord:
    return ProcessRecord(
        name=name,
        pid=pid,
        created_at_s=psutil.Process(pid).create_time(),
        nonce="nonce",
        port=1,
        manager="detached",
        started_at_s=0.0,
        version="0",
    )


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


ENGINE, GATEWAY = record("engine"), record("control")


@pytest.mark.parametrize(
    ("engine", "gateway", "waited_s", "expected"),
    [
        (ENGINE, GATEWAY, 1.0, ("going", "waiting", "waiting")),
        (ENGINE, GATEWAY, 30.0, ("stuck", "waiting", "waiting")),
        (None, GATEWAY, 1.0, ("gone", "going", "waiting")),
        (None, GATEWAY, 30.0, ("gone", "stuck", "waiting")),
        (ENGINE, None, 1.0, ("stuck", "gone", "waiting")),
        (None, None, 1.0, ("gone", "gone", "closable")),
        (None, None, 90.0, ("gone", "gone", "closable")),
    ],
)
def test_the_model_goes_first_then_the_gateway_then_the_page(engine, gateway, waited_s, expected):
    steps = progress(engine=engine, gateway=gateway, waited_s=waited_s)

    assert (steps.engine, steps.gateway, steps.page) == expected
    assert steps.is_over is (engine is None and gateway is None)
    assert steps.is_alone is (engine is not None and gateway is None)


def test_a_process_counts_as_there_until_it_is_gone_even_without_its_record(home, sleeper):
    farewell = Farewell(home, lambda: None)
    living = record("engine", sleeper.pid)
    home.write_record(living)
    farewell.remember()
    home.remove_record(living)

    before = farewell.progress()
    sleeper.kill()
    sleeper.wait()

    assert (before.engine == "gone", before.engine_pid) == (False, sleeper.pid)
    assert farewell.progress().engine == "gone"


def test_a_record_of_a_reused_pid_is_nobody(home):
    home.write_record(msgspec.structs.replace(record("engine", os.getpid()), created_at_s=1.0))

    assert home.living("engine") is None


async def test_quitting_shows_the_steps_and_ends_the_console_last(console, sleeper, monkeypatch):
    monkeypatch.setattr(farewell_module, "SHOW_END_S", 0.0)
    console.home.write_record(record("control", sleeper.pid))

    answer = await console.post("/quit")
    during = (await console.browser.get("/quit/live")).text
    sleeper.kill()
    sleeper.wait()
    after = (await console.browser.get("/quit/live")).text

    assert (answer.status_code, answer.headers["location"]) == (303, "/quit")
    assert console.control.orders == [("POST", "/quit", {})]
    assert 'hx-trigger="every 1s' in during
    assert "hx-trigger" not in after
    assert "no process is left" in after
    assert "can be closed" in after
    async with asyncio.timeout(5):
        await console.has_left.wait()


async def test_a_model_that_does_not_stop_keeps_the_page_and_offers_force(console, sleeper, monkeypatch):
    monkeypatch.setattr(farewell_module, "PATIENCE_S", 0.0)
    console.home.write_record(record("engine", sleeper.pid))
    console.home.write_record(record("control", os.getpid()))

    console.control.overview = fake.overview(slots=(fake.decoding(),))
    await console.post("/quit")
    page = (await console.browser.get("/quit")).text
    await console.post("/quit", force="yes")

    assert "1 running request finishes first." in page
    assert f"The model (pid {sleeper.pid}) has not stopped" in page
    assert 'name="force" value="yes"' in page
    assert console.control.orders == [("POST", "/quit", {}), ("POST", "/quit", {"force": True})]
    assert not console.has_left.is_set()


@pytest.mark.parametrize(
    ("slots", "said"),
    [((fake.decoding(),), "By force, 1 running request would be cut off and get an error"), ((), "")],
    ids=["requests run", "nothing runs"],
)
async def test_what_is_waited_for_can_be_cut_off_and_what_that_does_is_said_before_its_button(
    console, sleeper, slots, said
):
    console.control.overview = fake.overview(slots=slots)
    console.home.write_record(record("engine", sleeper.pid))
    console.home.write_record(record("control", os.getpid()))

    await console.post("/quit")
    page = (await console.browser.get("/quit")).text.split('id="quit"')[1]

    assert said in page.partition('name="force"')[0]
    assert ('name="force"' in page) is ("orce" in page) is bool(said)


@pytest.mark.parametrize(
    ("slots", "answers", "force"),
    [
        ((), ["Quit Splash"], None),
        ((fake.decoding(),), ["Wait, then quit", "End them now and quit"], None),
        ((fake.decoding(), fake.decoding(4810, slot=1)), ["Wait, then quit", "End them now and quit"], "yes"),
    ],
    ids=["nothing runs", "one runs and is waited for", "two run and are cut"],
)
async def test_who_quits_while_requests_run_chooses_to_wait_or_to_end_them(console, slots, answers, force):
    console.control.overview = fake.overview(slots=slots)

    page = (await console.browser.get("/quit")).text.split('id="quit"')[1]
    await console.post("/quit", **({"force": force} if force else {}))

    assert re.findall(r"<button[^>]*>([^<]+)</button>", page) == answers
    assert (f"{len(slots)} request" in page) is bool(slots)
    assert ("cut off" in page) is bool(slots)
    assert console.control.orders == [("POST", "/quit", {"force": True} if force else {})]


async def silent(console, *living: ProcessRecord) -> str:
    """The question of the page, after control has fallen silent."""
    console.control.overview = fake.overview(slots=(fake.decoding(),), line=(fake.waiting(1, 1), fake.waiting(2, 2)))
    await console.browser.get("/now/live")
    console.control.is_silent = True
    console.forget_control()
    for each in living:
        console.home.write_record(each)
    console.watch.forget()
    return (await console.browser.get("/quit")).text.split('id="quit"')[1]


async def test_a_silent_gateway_is_not_asked_to_quit_and_what_was_known_is_said_as_past(console, sleeper):
    page = await silent(console, record("engine", sleeper.pid), record("control", os.getpid()))

    assert "When it last did, 0 s ago: 1 running, 2 waiting." in page
    assert "finishes first" not in page
    assert "splash quit --force" in page
    assert '<button class="danger" disabled>' in page


async def test_without_a_gateway_a_model_that_runs_is_named_before_anything_is_ordered(console, sleeper):
    page = await silent(console, record("engine", sleeper.pid))

    assert f"the model (pid {sleeper.pid}) still runs" in page
    assert '<button class="danger" disabled>' in page


async def test_when_only_the_console_is_left_its_button_ends_it(console):
    page = await silent(console)

    assert "Only this page is left" in page
    assert '<button class="danger">' in page


async def test_another_tab_sees_the_end_without_an_alarm_and_then_asks_no_more(console, sleeper, monkeypatch):
    monkeypatch.setattr(farewell_module, "SHOW_END_S", 60.0)
    await console.browser.get("/")
    console.home.write_record(record("control", sleeper.pid))
    await console.post("/quit")
    console.control.is_silent = True
    console.watch.forget()
    during = (await console.browser.get("/now/live")).text

    sleeper.kill()
    sleeper.wait()
    live, state = [(await console.browser.get(path)).text for path in ("/now/live", "/state")]

    assert "has not answered" not in during + live
    assert re.search(r"Splash is quitting, and the gateway has stopped: what this page shows is \d+ s old.", during)
    assert "data-over" in state
    assert re.search(r"Splash has stopped: .*What this page shows is of \d\d:\d\d:\d\d\.", state)
    assert "is quitting, and" not in live


async def test_a_model_without_a_gateway_is_named_with_the_command_that_ends_it(console, sleeper):
    console.control.is_silent = True
    console.forget_control()
    console.home.write_record(record("engine", sleeper.pid))

    await console.post("/quit")
    page = (await console.browser.get("/quit")).text

    assert f"the model (pid {sleeper.pid}) still runs" in page
    assert "splash quit --force" in page
    assert not console.has_left.is_set()


async def test_a_gateway_that_refuses_to_quit_is_quoted_and_nothing_ends(console):
    console.control.refusal = AdminError(code="quitting", message="Splash is quitting.")

    await console.post("/quit")
    page = (await console.browser.get("/quit")).text

    assert "Splash is quitting. Nothing can be ordered" in page
    assert not console.farewell.has_begun
