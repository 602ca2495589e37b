"""Prompts that are only counted: in flight for their key, two at a time at the engine, over when the client leaves."""

import asyncio
import contextlib

import pytest
import pytest_asyncio

from control.counting import COUNTS_AT_ONCE
from control.wire import KeyChange, KeyUsage
from tests.unit.control_gateway.dialect_calls import MESSAGES, as_new, refusal_of
from tests.unit.control_gateway.gateway_stage import eventually, staged

COUNT = "/v1/messages/count_tokens"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with staged(tmp_path_factory.mktemp("home")) as stage:
        yield stage, stage.source.engine


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared):
    stage = as_new(*shared)
    await stage.keys.change(1, KeyChange(max_in_flight=None))
    return stage


@contextlib.asynccontextmanager
async def counting(stage, number, headers=None):
    """So many counts that the engine does not answer while the block lasts. Then their answers are in the list."""
    opened = stage.engine.count_opened = asyncio.Event()
    tasks = [
        asyncio.create_task(stage.client.post(COUNT, json=MESSAGES.body(), headers=headers)) for _ in range(number)
    ]
    answers = []
    try:
        yield tasks, answers
    finally:
        opened.set()
        stage.engine.count_opened = None
        answers += await asyncio.gather(*tasks, return_exceptions=True)


def in_flight(stage) -> int:
    return stage.relay._quotas.usage(1).in_flight


async def test_a_count_is_in_flight_for_its_key_and_the_next_beyond_the_limit_is_429(stage):
    await stage.keys.change(1, KeyChange(max_in_flight=2))
    async with counting(stage, 2) as (_, answers):
        await eventually(lambda: in_flight(stage) == 2)
        refused = await stage.client.post(COUNT, json=MESSAGES.body())
        asked = await stage.client.post(MESSAGES.path, json=MESSAGES.body())

    refusal = refusal_of(refused, is_anthropic=True)
    assert (refusal.status, refusal.type) == (429, "rate_limit_error")
    assert "may have 2 requests in flight, and has 2" in refused.text
    assert asked.status_code == 429
    assert [answer.status_code for answer in answers] == [200, 200]
    assert stage.relay._quotas.usage(1) == KeyUsage(requests=0, tokens=0, in_flight=0)


async def test_a_key_with_many_counts_has_one_at_the_engine_and_another_key_waits_for_none_of_them(stage):
    other = (await stage.keys.create("other")).key
    async with counting(stage, 30) as (tasks, _):
        await eventually(lambda: in_flight(stage) == 30)
        await eventually(lambda: len(stage.engine.counted) == 1)
        others = asyncio.create_task(
            stage.client.post(COUNT, json=MESSAGES.body(), headers={"authorization": f"Bearer {other}"})
        )
        await eventually(lambda: len(stage.engine.counted) == COUNTS_AT_ONCE)
        assert not any(task.done() for task in tasks)

    assert (await others).status_code == 200
    assert len(stage.engine.counted) == 31
    assert in_flight(stage) == 0


async def test_a_count_whose_client_leaves_is_over_wherever_it_stood(stage):
    async with counting(stage, 3) as (tasks, answers):
        await eventually(lambda: in_flight(stage) == 3)
        await eventually(lambda: len(stage.engine.counted) == 1)
        for task in tasks[:2]:
            task.cancel()
        await eventually(lambda: in_flight(stage) == 1)

    assert [type(answer).__name__ for answer in answers] == ["CancelledError", "CancelledError", "Response"]
    assert in_flight(stage) == 0
