"""The admin API by HTTP: who may ask, what is refused with which sentence, and that orders reach those they are for."""

import sqlite3
from types import SimpleNamespace

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.exc import OperationalError

from control import wire
from control.admin.api import AdminApi
from control.admin.keys import KeysApi
from control.admin.requests import RequestsApi
from control.admin.settings import SettingsApi
from control.aliases import DEFAULT_ALIASES, Aliases, stored_aliases
from control.departure import Departure
from control.errors import EngineRefused
from control.fifo import Ticket
from control.heartbeats import Heartbeats
from control.keys import load_keys
from control.lifecycle import Wanted
from control.login_links import LoginLinks
from control.metrics.database import open_database, open_for_reading
from control.metrics.questions import Questions
from control.metrics.request_questions import RequestQuestions
from control.metrics.settings import load_settings
from control.metrics.writer import Writer
from control.overview import OverviewSource, TodayTotals
from control.prices import Prices
from control.prometheus import Prometheus
from control.quotas import Quotas
from control.reception import Reception
from control.relay import Relay
from engine.wire import ErrorAnswer
from tests.unit.control_lifecycle.scene import Scene

SECRET = "the admin secret"
PORT = 18084
AUTHORISED = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}


@pytest.fixture
async def api(tmp_path):
    """The whole admin API on a puppet engine and a real database; `api.client` holds the secret."""
    database = open_database(tmp_path / "splash.db")
    writer, questions = Writer(database), Questions(open_for_reading(tmp_path / "splash.db"))
    scene, settings = Scene(), load_settings(database, writer)
    relay = Relay(line=scene.line, source=scene.supervisor, record=writer.record)
    overviews = OverviewSource(
        supervisor=scene.supervisor,
        relay=relay,
        line=scene.line,
        totals=TodayTotals(questions.today),
        database=lambda: writer.health,
        api_base="http://127.0.0.1:8888/v1",
        version="0.1.0",
    )
    keys, quotas, aliases = load_keys(database, writer), Quotas(), Aliases()
    app = AdminApi(
        supervisor=scene.supervisor,
        departure=Departure(scene.supervisor, scene.line, Reception()),
        links=LoginLinks(),
        rooms=(
            SettingsApi(settings=settings, line=scene.line, aliases=aliases, heartbeats=Heartbeats(settings)),
            RequestsApi(requests=RequestQuestions(questions, Prices()), relay=relay),
            KeysApi(keys=keys, quotas=quotas, questions=questions),
        ),
        prometheus=Prometheus(line=scene.line, engine=scene.supervisor.view, losses=lambda: writer.losses),
        engine_questions=scene.preview,
        overviews=overviews,
        health=wire.Health(name="control", pid=1, nonce="n"),
    ).app(secret=SECRET, port=PORT)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url=f"http://127.0.0.1:{PORT}", headers=AUTHORISED
    ) as client:
        yield SimpleNamespace(
            client=client,
            scene=scene,
            settings=settings,
            keys=keys,
            quotas=quotas,
            aliases=aliases,
            writer=writer,
            database=tmp_path / "splash.db",
        )
    writer.close()
    questions.close()


async def does_not_write(job):
    raise OperationalError("INSERT of secret values", None, sqlite3.OperationalError("database is locked"))


def heartbeats_of(answer: httpx.Response) -> dict[str, str]:
    return msgspec.json.decode(answer.content, type=wire.HeartbeatSettings).modes


def error_of(answer: httpx.Response) -> wire.AdminError:
    return msgspec.json.decode(answer.content, type=wire.AdminError)


async def test_health_tells_the_identity_to_everybody(api):
    answer = await api.client.get(wire.HEALTHZ, headers={"authorization": ""})

    assert msgspec.json.decode(answer.content, type=wire.Health) == wire.Health(name="control", pid=1, nonce="n")


@pytest.mark.parametrize(
    "path", [wire.OVERVIEW, wire.KEYS, wire.REQUESTS, wire.MODELS, wire.METRICS, "/nowhere", "/healthz/"]
)
@pytest.mark.parametrize("given", ["", "Bearer wrong", SECRET, f"Bearer {SECRET}x", "Bearer \xff"])
async def test_everything_else_needs_the_secret(api, path, given):
    answer = await api.client.get(path, headers=[(b"authorization", given.encode("latin-1"))])

    assert (answer.status_code, error_of(answer).code) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (f"127.0.0.1:{PORT}", 200),
        (f"localhost:{PORT}", 200),
        (f"[::1]:{PORT}", 200),
        ("127.0.0.1", 403),
        (f"127.0.0.1.evil.example:{PORT}", 403),
        (f"evil.example:{PORT}", 403),
        ("127.0.0.1:8888", 403),
    ],
)
async def test_only_names_of_this_machine_are_answered(api, host, status):
    answer = await api.client.get(wire.OVERVIEW, headers={"host": host})

    assert answer.status_code == status


async def test_the_overview_has_four_slots_and_the_engine(api):
    await api.scene.ready()

    overview = msgspec.json.decode((await api.client.get(wire.OVERVIEW)).content, type=wire.Overview)

    assert overview.slots == (None,) * wire.NUM_SLOTS
    assert (overview.engine.state, overview.engine.model_name, overview.concurrency) == ("ready", "demo", 2)
    assert overview.today == wire.Today()
    assert overview.api_base == "http://127.0.0.1:8888/v1"


async def test_load_and_unload_are_begun_and_answered_at_once(api):
    loaded = await api.client.post(wire.LOAD, content=b'{"model": "demo"}')
    await api.scene.supervisor.refresh()
    api.scene.join("running")
    unloaded = await api.client.post(wire.UNLOAD)

    assert (loaded.status_code, unloaded.status_code) == (202, 202)
    assert msgspec.json.decode(unloaded.content, type=wire.Accepted).running == 1
    assert api.scene.state == "draining"


async def test_a_refused_switch_is_422_with_the_engines_sentence(api):
    await api.scene.ready()
    api.scene.preview.refused.add("huge")

    answer = await api.client.post(wire.LOAD, content=b'{"model": "huge"}')

    assert (answer.status_code, error_of(answer)) == (
        422,
        wire.AdminError(code="model_refused", message="huge does not fit"),
    )


async def test_a_load_travels_with_its_settings(api):
    body = b'{"model": "demo", "context": 4096, "budget_bytes": 9, "kv_bits": 8, "max_gap_ms": 250, "decode_share": 0}'

    answer = await api.client.post(wire.LOAD, content=body)

    assert answer.status_code == 202
    assert api.scene.engine.spawned == [Wanted("demo", 4096, 9, kv_bits=8, max_gap_ms=250.0, decode_share=0.0)]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"kv_bits": 7}', "kv_bits must be 8 or 4"),
        (b'{"kv_bits": 0}', "kv_bits must be 8 or 4"),
        (b'{"max_gap_ms": 49.9}', "max_gap_ms must be from 50 to 10000"),
        (b'{"max_gap_ms": 10001}', "max_gap_ms must be from 50 to 10000"),
        (b'{"decode_share": -0.1}', "decode_share must be from 0 to 0.9"),
        (b'{"decode_share": 0.91}', "decode_share must be from 0 to 0.9"),
        (b'{"context": 0}', "context must be a number of tokens"),
        (b'{"budget_bytes": 99999999999999999999999}', "budget_bytes must be a number of bytes"),
    ],
)
async def test_a_setting_that_cannot_be_is_refused_by_name_and_nothing_is_started(api, body, sentence):
    answer = await api.client.post(wire.LOAD, content=body)

    assert (answer.status_code, error_of(answer).code) == (400, "invalid_request")
    assert sentence in error_of(answer).message
    assert api.scene.engine.spawned == []


async def test_clearing_the_cache_says_what_was_freed(api):
    await api.scene.ready()

    answer = await api.client.post(wire.CACHE_CLEAR)

    assert answer.status_code == 200
    assert msgspec.json.decode(answer.content, type=wire.CacheCleared) == api.scene.engine.cleared


async def test_without_a_ready_model_there_is_no_cache_to_clear(api):
    before = await api.client.post(wire.CACHE_CLEAR)
    await api.scene.ready()
    api.scene.engine.refuses = EngineRefused(ErrorAnswer(code="not_ready", message="no"), engine_status=503)
    meanwhile = await api.client.post(wire.CACHE_CLEAR)

    assert [(each.status_code, error_of(each).code) for each in (before, meanwhile)] == [(409, "engine_not_ready")] * 2
    assert "the engine is unloaded" in error_of(before).message


async def test_concurrency_changes_at_once_and_is_kept_for_the_next_start(api):
    answer = await api.client.post(wire.CONCURRENCY, content=b'{"concurrency": 3}')

    assert answer.status_code == 200
    assert (api.scene.line.concurrency, api.settings.get("concurrency", int)) == (3, 3)


@pytest.mark.parametrize("body", [b'{"concurrency": 0}', b'{"concurrency": 5}', b'{"concurrency": "2"}', b"{}", b"["])
async def test_a_wrong_concurrency_is_refused_and_nothing_changes(api, body):
    answer = await api.client.post(wire.CONCURRENCY, content=body)

    assert (answer.status_code, error_of(answer).code) == (400, "invalid_request")
    assert api.scene.line.concurrency == 2


async def test_a_setting_that_the_database_does_not_take_is_answered_with_that_and_not_in_force(api, monkeypatch):
    before = heartbeats_of(await api.client.get(wire.HEARTBEATS))
    monkeypatch.setattr(api.writer, "write", does_not_write)

    answers = [
        await api.client.post(wire.CONCURRENCY, content=b'{"concurrency": 3}'),
        await api.client.put(wire.ALIASES, content=b'{"aliases": []}'),
        await api.client.put(wire.HEARTBEATS, content=b'{"modes": {"messages": "ping"}}'),
    ]

    assert [(each.status_code, error_of(each).code) for each in answers] == [(503, "database_unusable")] * 3
    assert (api.scene.line.concurrency, api.aliases.list()) == (2, DEFAULT_ALIASES)
    assert heartbeats_of(await api.client.get(wire.HEARTBEATS)) == before
    assert [api.settings.get(name, object) for name in ("concurrency", "aliases", "heartbeats")] == [None] * 3


async def test_a_key_is_made_listed_without_itself_and_revoked(api):
    made = msgspec.json.decode(
        (await api.client.post(wire.KEYS, content=b'{"name": "laptop", "request_class": "batch"}')).content,
        type=wire.CreatedKey,
    )
    listed = await api.client.get(wire.KEYS)
    revoked = await api.client.delete(wire.KEY.format(id=made.view.id))

    assert made.key.encode() not in listed.content
    assert msgspec.json.decode(listed.content, type=wire.KeyList).keys == (made.view,)
    assert msgspec.json.decode(revoked.content, type=wire.KeyView).revoked_at_s is not None


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", wire.KEYS, b'{"name": ""}', 400, "key_name_invalid"),
        ("POST", wire.KEYS, b"{}", 400, "invalid_request"),
        ("POST", wire.KEYS, b'{"name": "x", "limits": {"max_in_flight": 0}}', 400, "invalid_request"),
        ("PATCH", wire.KEY.format(id=99), b'{"max_in_flight": 1}', 404, "key_not_found"),
        ("PATCH", wire.KEY.format(id=99), b"{}", 404, "key_not_found"),
        ("PATCH", wire.KEY.format(id="x"), b"{}", 400, "invalid_request"),
        ("PATCH", wire.KEY.format(id=99), b'{"tokens_per_day": 1000000000000001}', 400, "invalid_request"),
        ("PATCH", wire.KEY.format(id=99), b'{"requests_per_day": "5"}', 400, "invalid_request"),
        ("PUT", wire.ALIASES, b"{}", 400, "invalid_request"),
        ("PUT", wire.ALIASES, b'{"aliases": [{"name": " "}]}', 400, "invalid_request"),
        ("PUT", wire.ALIASES, b'{"aliases": [{"name": "x", "request_class": "first"}]}', 400, "invalid_request"),
        ("PUT", wire.HEARTBEATS, b'{"modes": {"chat": "ping"}}', 400, "invalid_request"),
        ("PUT", wire.HEARTBEATS, b"[]", 400, "invalid_request"),
        ("DELETE", wire.KEY.format(id=99), b"", 404, "key_not_found"),
        ("DELETE", wire.KEY.format(id="x"), b"", 400, "invalid_request"),
        ("GET", wire.REQUESTS + "?limit=0", b"", 400, "invalid_request"),
        ("GET", wire.REQUESTS + "?limit=x", b"", 400, "invalid_request"),
        ("GET", wire.REQUESTS + "?limit=" + "1" * 5000, b"", 400, "invalid_request"),
        ("DELETE", wire.KEY.format(id="9" * 5000), b"", 400, "invalid_request"),
        ("DELETE", wire.KEY.format(id="9" * 18), b"", 404, "key_not_found"),
        ("POST", wire.LOAD, b'{"x":' + b"[" * 20_000, 400, "invalid_request"),
        ("POST", wire.CANCEL.format(id="nobody"), b"", 404, "request_not_found"),
        ("POST", wire.LOGIN_LINKS, b'{"valid_s": 601}', 400, "invalid_request"),
        ("POST", wire.LOGIN_LINKS, b'{"valid_s": 0}', 400, "invalid_request"),
        ("POST", wire.REDEEM, b'{"token": "made up"}', 404, "login_link_invalid"),
        ("POST", wire.LOAD, b'{"model": 1}', 400, "invalid_request"),
        ("POST", wire.LOAD, b'{"model": "demo", "contxt": 5}', 400, "invalid_request"),
        ("POST", wire.LOAD, b"x" * 70_000, 413, "request_too_large"),
        ("GET", "/nowhere", b"", 404, "not_found"),
        ("GET", wire.QUIT, b"", 405, "method_not_allowed"),
    ],
)
async def test_what_cannot_be_done_is_answered_with_a_code_and_a_sentence(api, method, path, body, status, code):
    answer = await api.client.request(method, path, content=body)

    assert (answer.status_code, error_of(answer).code) == (status, code)
    assert error_of(answer).message


async def test_an_unknown_path_and_a_wrong_method_are_said_in_a_sentence(api):
    nowhere, wrong = await api.client.get("/nowhere"), await api.client.delete(wire.QUIT)

    assert error_of(nowhere).message == "The admin API has no /nowhere."
    assert error_of(wrong).message == "/quit takes POST, not DELETE."
    assert wrong.headers["allow"] == "POST"


async def test_the_limits_of_a_key_are_set_changed_and_shown_with_what_it_used(api):
    body = b'{"name": "laptop", "limits": {"max_in_flight": 4, "tokens_per_day": 1000}}'
    made = msgspec.json.decode((await api.client.post(wire.KEYS, content=body)).content, type=wire.CreatedKey)
    key = api.keys.verify(made.key.encode())
    api.quotas.leave(api.quotas.enter(key), tokens=70, was_rejected=False)
    api.quotas.enter(key)

    changed = await api.client.patch(wire.KEY.format(id=1), content=b'{"max_in_flight": null, "requests_per_day": 9}')
    listed = msgspec.json.decode((await api.client.get(wire.KEYS)).content, type=wire.KeyList)

    (view,) = listed.keys
    assert made.view.limits == wire.KeyLimits(max_in_flight=4, tokens_per_day=1000)
    assert view.limits == wire.KeyLimits(requests_per_day=9, tokens_per_day=1000)
    assert view.today == wire.KeyUsage(requests=2, tokens=70, in_flight=1)
    assert msgspec.json.decode(changed.content, type=wire.KeyView) == view


async def test_a_limit_that_cannot_be_is_refused_by_its_name(api):
    answer = await api.client.patch(wire.KEY.format(id=1), content=b'{"tokens_per_day": 0}')

    assert "tokens_per_day" in error_of(answer).message


async def test_aliases_are_listed_replaced_at_once_and_kept_for_the_next_start(api):
    before = msgspec.json.decode((await api.client.get(wire.ALIASES)).content, type=wire.AliasList)
    body = b'{"aliases": [{"name": "claude-haiku-*", "request_class": "batch"}, {"name": "claude-local"}]}'

    answer = await api.client.put(wire.ALIASES, content=body)

    wanted = (wire.Alias(name="claude-haiku-*", request_class="batch"), wire.Alias(name="claude-local"))
    assert before.aliases == DEFAULT_ALIASES
    assert msgspec.json.decode(answer.content, type=wire.AliasList).aliases == wanted
    assert api.aliases.list() == stored_aliases(api.settings) == wanted


async def test_heartbeats_are_listed_and_changed_one_by_one(api):
    before = msgspec.json.decode((await api.client.get(wire.HEARTBEATS)).content, type=wire.HeartbeatSettings)

    answer = await api.client.put(wire.HEARTBEATS, content=b'{"modes": {"messages": "ping"}}')

    after = msgspec.json.decode(answer.content, type=wire.HeartbeatSettings)
    assert before.choices["messages"] == ("typed", "ping", "comment")
    assert after.modes == {**before.modes, "messages": "ping"}
    assert Heartbeats(api.settings).mode_of("messages") == "ping"


async def test_prometheus_can_read_the_metrics(api):
    await api.scene.ready()

    answer = await api.client.get(wire.METRICS)

    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    states = {sample.labels["state"]: sample.value for sample in families["splash_engine_state"].samples}
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert (states["ready"], states["failed"]) == (1, 0)


async def test_a_login_link_works_once(api):
    link = msgspec.json.decode(
        (await api.client.post(wire.LOGIN_LINKS, content=b'{"valid_s": 30}')).content, type=wire.LoginLink
    )
    redeem = msgspec.json.encode(wire.Redeem(token=link.token))

    first, second = [await api.client.post(wire.REDEEM, content=redeem) for _ in range(2)]

    assert (first.status_code, second.status_code) == (204, 404)


async def test_quit_is_begun_and_everything_else_is_refused_from_then_on(api):
    await api.scene.ready()
    api.scene.line.join(Ticket("running"))

    answer = await api.client.post(wire.QUIT, content=b'{"force": false}')
    late = await api.client.post(wire.LOAD, content=b"{}")
    leave = await api.client.post(wire.LEAVE, content=b"{}")
    overview = msgspec.json.decode((await api.client.get(wire.OVERVIEW)).content, type=wire.Overview)

    assert (answer.status_code, late.status_code, error_of(late).code) == (202, 409, "quitting")
    assert (leave.status_code, error_of(leave).code) == (409, "quitting")
    assert (overview.quitting, overview.engine.state) == (True, "draining")
