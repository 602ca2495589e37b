"""The admin API's answers about performance and about what the cache missed."""

from types import SimpleNamespace

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from control import wire
from control.admin.edge import HANDLERS
from control.admin.performance import PerformanceApi
from control.metrics.database import open_database, open_for_reading
from control.metrics.performance_questions import PerformanceQuestions
from control.metrics.questions import Questions
from engine.wire import CacheStatus, MissExplanation

MISS = MissExplanation(
    id="r1",
    sampled_at_s=1.0,
    cause="never_taken",
    prompt_tokens=100,
    restored_tokens=10,
    matched_tokens=50,
    first_difference=50,
    distance_tokens=40,
)


@pytest.fixture
async def api(tmp_path):
    open_database(tmp_path / "splash.db").dispose()
    questions = Questions(open_for_reading(tmp_path / "splash.db"))
    supervisor = SimpleNamespace(status=None)
    room = PerformanceApi(
        questions=PerformanceQuestions(questions, discarded=lambda: {"prefill": 2}), supervisor=supervisor
    )
    app = Starlette(routes=room.routes(), exception_handlers=HANDLERS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        yield SimpleNamespace(client=client, supervisor=supervisor)
    questions.close()


async def asked(api, path, kind):
    answer = await api.client.get(path)
    assert answer.status_code == 200
    return msgspec.json.decode(answer.content, type=kind)


async def test_a_day_is_told_when_no_range_is_named(api):
    found = await asked(api, wire.PERFORMANCE, wire.Performance)

    assert (found.range, found.model, found.requests) == ("day", None, 0)
    assert found.discarded == {"prefill": 2}


async def test_a_range_and_a_model_are_asked_for_by_name(api):
    found = await asked(api, f"{wire.PERFORMANCE}?range=month&model=b%26c", wire.Performance)

    assert (found.range, found.model) == ("month", "b&c")


async def test_a_range_that_there_is_not_is_refused(api):
    answer = await api.client.get(f"{wire.PERFORMANCE}?range=year")

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


async def test_a_parameter_that_there_is_not_is_refused_with_its_name(api):
    answer = await api.client.get(f"{wire.PERFORMANCE}?range=day&modle=x")

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert answer.json()["message"] == "There is no parameter 'modle' here; there are range, model."


async def test_misses_are_those_of_the_newest_status(api):
    api.supervisor.status = SimpleNamespace(cache=CacheStatus(is_on=True, misses=(MISS,), lookups=7))

    assert await asked(api, wire.MISSES, wire.MissList) == wire.MissList(misses=(MISS,), is_on=True, lookups=7)


async def test_a_cache_that_is_off_says_why(api):
    api.supervisor.status = SimpleNamespace(cache=CacheStatus(is_on=False, reason="the self-test failed"))

    assert await asked(api, wire.MISSES, wire.MissList) == wire.MissList(reason="the self-test failed", lookups=0)


async def test_without_a_model_there_is_no_cache(api):
    assert await asked(api, wire.MISSES, wire.MissList) == wire.MissList(reason="no model is loaded")
