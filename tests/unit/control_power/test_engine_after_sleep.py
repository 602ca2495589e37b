"""An engine process after a sleep: still itself, silent, or somebody else on its port."""

import pytest

from control import engine_process as module
from control.engine_client import EngineClient
from control.engine_process import EngineProcess
from control.home import Home
from control.identity import Identity
from tests.unit.control_lifecycle.scene import PuppetEngine


@pytest.fixture
async def process(tmp_path):
    """As if it had introduced itself long ago."""
    process = EngineProcess(Home(tmp_path), port=1, command=("false",))
    puppet = PuppetEngine()
    puppet._appear()
    process.record = puppet.record
    process._launch = object()
    process._waits_since = float("-inf")
    client = process.client = EngineClient(port=1, secret="s", is_there=lambda: True)
    yield process
    await client.aclose()


def answers(monkeypatch, verdict: str) -> None:
    monkeypatch.setattr(module, "verify", lambda record: Identity(verdict, "pid 7 on port 1"))


@pytest.mark.parametrize("verdict", ["ours", "silent", "closed", "gone"])
async def test_one_that_is_itself_or_does_not_answer_yet_keeps_its_secret_and_its_time(process, monkeypatch, verdict):
    answers(monkeypatch, verdict)
    client = process.client

    await process.recheck()

    assert (process.client, process.is_overdue) == (client, False)


async def test_a_stranger_on_its_port_gets_no_secret_and_the_engine_is_ended(process, monkeypatch):
    answers(monkeypatch, "stranger")

    await process.recheck()

    assert (process.client, process.is_overdue) == (None, True)


async def test_one_that_had_not_introduced_itself_gets_its_time_anew(process):
    process.client = None
    overdue = process.is_overdue

    process.woke()

    assert (overdue, process.is_overdue) == (True, False)
