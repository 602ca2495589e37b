"""An engine process that is stuck, behind the real gateway: killed and replaced; its requests run again or fail.

In this process, so that limits can be short: control's supervisor, relay and public API, before a scripted engine.
"""

import asyncio
import contextlib
import json
import os
import shlex
import signal

import pytest

from control.engine_process import EngineProcess
from control.engine_questions import EngineQuestions
from control.fifo import Line
from control.gate import loopback_hosts
from control.home import Home
from control.identity import live_process
from control.keys import load_keys
from control.metrics.database import open_database
from control.metrics.settings import load_settings
from control.metrics.writer import Writer
from control.public_api import public_api
from control.relay import Relay
from control.remembered import RememberedLoads
from control.supervisor import Supervisor
from control.wedge import WedgeLimits
from control.wire import LoadRequest
from tests.story.stack import fake_engine, free_ports
from tests.unit.control_gateway.gateway_stage import eventually, serving

pytestmark = pytest.mark.story

SOON = WedgeLimits(silent_s=2.0, stalled_s=2.0, stalled_at_first_s=3.0)
SCRIPT = [
    {"match": "hang before", "steps": [{"prefill": {}}, {"stall_ms": 600_000}]},
    {"match": "hang after", "steps": [{"prefill": {}}, {"tokens": {"text": "so far "}}, {"stall_ms": 600_000}]},
    {"match": "slowly", "steps": [{"prefill": {"duration_ms": 1500}}, {"tokens": {"text": "done at last"}}]},
]
START_LIMIT_S = 30.0
END_LIMIT_S = 60.0


class Gateway:
    """A supervisor with its engine process, and clients of the API before it."""

    def __init__(self, supervisor: Supervisor, process: EngineProcess, port: int, key: str) -> None:
        self.supervisor = supervisor
        self.process = process
        self.rows = []
        self._port = port
        self._key = key

    async def ask(self, content: str, *, stream: bool = False) -> tuple[int, str]:
        """Status and body of one chat request."""
        import httpx

        body = {"model": "default", "stream": stream, "messages": [{"role": "user", "content": content}]}
        async with httpx.AsyncClient(trust_env=False, timeout=END_LIMIT_S) as client:
            answer = await client.post(
                f"http://127.0.0.1:{self._port}/v1/chat/completions",
                json=body,
                headers={"authorization": f"Bearer {self._key}"},
            )
        return answer.status_code, answer.text

    async def ready(self, *, restarts: int = 0) -> None:
        await eventually(
            lambda: self.supervisor.view().state == "ready" and self.supervisor.view().restarts >= restarts,
            within_s=START_LIMIT_S,
        )


@contextlib.asynccontextmanager
async def gateway(tmp_path):
    home = Home(tmp_path.resolve() / "home")
    home.create()
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    command = shlex.split(fake_engine(script))
    database = open_database(home.database)
    writer = Writer(database)
    keys, line = load_keys(database, writer), Line()
    process = EngineProcess(home, port=free_ports(1)[0], command=command)
    supervisor = Supervisor(
        process,
        line,
        remembered=RememberedLoads(load_settings(database, writer)),
        questions=EngineQuestions(home, command),
        wedge_limits=SOON,
    )
    relay = Relay(line=line, source=supervisor, record=writer.record)
    key = (await keys.create("test")).key
    watching = asyncio.create_task(supervisor.run())
    try:
        async with serving(
            lambda port: public_api(keys=keys, relay=relay, source=supervisor, hosts=loopback_hosts(port))
        ) as server:
            gate = Gateway(supervisor, process, server.port, key)
            await supervisor.load(LoadRequest(model="demo"))
            await gate.ready()
            assert (await gate.ask("first"))[0] == 200
            yield gate
    finally:
        supervisor.quit(force=True)
        await asyncio.wait_for(supervisor.finished.wait(), START_LIMIT_S)
        watching.cancel()
        await asyncio.wait({watching})
        await supervisor.release()
        writer.close()


async def test_an_engine_that_answers_nothing_any_more_is_killed_and_its_request_runs_again(tmp_path):
    async with gateway(tmp_path) as gate:
        stuck = gate.process.record
        asking = asyncio.create_task(gate.ask("slowly"))
        await asyncio.sleep(0.5)  # it is being prefilled
        os.kill(stuck.pid, signal.SIGSTOP)

        status, answer = await asking

        assert status == 200 and "done at last" in answer
        assert live_process(stuck) is None
        assert gate.supervisor.view().restarts == 1


async def test_a_request_that_stalls_two_engines_gets_a_typed_error_and_the_next_one_is_served(tmp_path):
    async with gateway(tmp_path) as gate:
        stuck = gate.process.record

        status, answer = await gate.ask("hang before")
        await gate.ready(restarts=1)
        after = await gate.ask("hello again")

        assert status >= 500 and json.loads(answer)["error"]["code"] == "engine_died"
        assert live_process(stuck) is None
        assert after[0] == 200 and "hello again" in after[1]


async def test_a_stream_that_had_begun_ends_with_a_typed_error_when_its_engine_stalls(tmp_path):
    async with gateway(tmp_path) as gate:
        status, text = await gate.ask("hang after", stream=True)
        await gate.ready(restarts=1)

        assert status == 200
        assert '"so"' in text and "engine_died" in text
