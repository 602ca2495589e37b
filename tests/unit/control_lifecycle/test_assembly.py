"""What control consists of, connected: settings and today's use of a home that was used before are in force."""

import contextlib
import time

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from control import wire
from control.assembly import assemble
from control.config import Settings
from control.home import Home
from engine.wire import ProcessRecord
from tests.unit.control_gateway.gateway_stage import chat_body
from tests.unit.control_gateway.test_metrics import row

RECORD = ProcessRecord(
    name="control", pid=1, created_at_s=0, nonce="n", port=18084, manager="detached", started_at_s=0, version="0"
)


@contextlib.asynccontextmanager
async def started(root):
    """Both apps of a control that runs no server and no engine."""
    home = Home(root)
    home.create()
    settings = Settings(home=root)
    control = await assemble(settings, home, RECORD, engine_command=("false",))
    secret = {"authorization": f"Bearer {home.admin_secret()}", "content-type": "application/json"}
    try:
        async with (
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app=control.admin_app),
                base_url=f"http://127.0.0.1:{settings.admin_port}",
                headers=secret,
            ) as admin,
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app=control.public_app),
                base_url=f"http://127.0.0.1:{settings.api_port}",
            ) as api,
        ):
            yield control, admin, api
    finally:
        await control.close()


@pytest.fixture
def root(tmp_path):
    return tmp_path.resolve() / "home"


async def test_what_a_key_used_before_a_restart_counts_against_its_limit(root):
    order = b'{"name": "laptop", "limits": {"requests_per_day": 1}}'
    async with started(root) as (control, admin, _):
        made = msgspec.json.decode((await admin.post(wire.KEYS, content=order)).content, type=wire.CreatedKey)
        control.writer.record(row(1, key="laptop", started_at_s=time.time()))

    async with started(root) as (_, admin, api):
        answer = await api.post("/v1/chat/completions", json=chat_body(), headers={"x-api-key": made.key})
        (view,) = msgspec.json.decode((await admin.get(wire.KEYS)).content, type=wire.KeyList).keys
        families = text_string_to_metric_families((await admin.get(wire.METRICS)).text)
        samples = [sample for family in families for sample in family.samples]

    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "key_limit_reached")
    assert view.today == wire.KeyUsage(requests=1, tokens=110)
    assert [sample.labels for sample in samples if sample.name == "splash_requests_total"] == [
        {"dialect": "chat", "key": "laptop", "outcome": "rejected"}
    ]


async def test_settings_of_an_earlier_start_are_in_force(root):
    async with started(root) as (_, admin, _):
        await admin.put(wire.ALIASES, content=b'{"aliases": [{"name": "claude-local"}]}')
        await admin.put(wire.HEARTBEATS, content=b'{"modes": {"responses": "comment"}}')
        await admin.post(wire.CONCURRENCY, content=b'{"concurrency": 2}')

    async with started(root) as (_, admin, _):
        aliases = msgspec.json.decode((await admin.get(wire.ALIASES)).content, type=wire.AliasList).aliases
        heartbeats = msgspec.json.decode((await admin.get(wire.HEARTBEATS)).content, type=wire.HeartbeatSettings)
        overview = msgspec.json.decode((await admin.get(wire.OVERVIEW)).content, type=wire.Overview)

    assert aliases == (wire.Alias(name="claude-local"),)
    assert heartbeats.modes["responses"] == "comment"
    assert overview.concurrency == 2
