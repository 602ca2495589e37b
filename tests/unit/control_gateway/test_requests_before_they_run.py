"""Requests whose body still arrives, or whose prompt is being counted: seen, at their place, cancelled, told of an end.

The line's own rules are in `test_fifo`.
"""

import asyncio
import contextlib
import logging

import pytest

from control.errors import GatewayRestarts, SplashQuits
from control.reception import Reception
from tests.unit.control_gateway.dialect_calls import (
    CHAT,
    EACH_DIALECT,
    EACH_WAY,
    MESSAGES,
    asked,
    asking_in,
    refusal_of,
)
from tests.unit.control_gateway.gateway_scripts import asking, the_only_row
from tests.unit.control_gateway.gateway_stage import chat_body, eventually, staged
from tests.unit.control_gateway.raw_clients import PATH, connected, head_of, read_to_the_end, sent

COUNT = "/v1/messages/count_tokens"


@pytest.fixture
def reception():
    return Reception()


@pytest.fixture
async def stage(tmp_path, reception):
    async with staged(tmp_path, concurrency=1, limit=2, reception=reception) as stage:
        yield stage


@contextlib.asynccontextmanager
async def slowly_counted(stage, dialect=CHAT, **fields):
    """A request whose prompt is being counted until `counted` is set; those that come later are counted at once."""
    counted = stage.engine.count_opened = asyncio.Event()
    num_before = len(stage.engine.counted)
    async with asking_in(stage, dialect, **fields) as answering:
        await eventually(lambda: len(stage.engine.counted) == num_before + 1)
        stage.engine.count_opened = None
        try:
            yield answering, counted
        finally:
            counted.set()


# --- Being counted ---


async def test_a_request_that_is_being_counted_is_listed_at_its_place(stage):
    stage.line.hold()
    async with slowly_counted(stage) as (_, counted), asking(stage):
        await eventually(lambda: len(stage.line.waiting) == 2)
        before = stage.relay.waiting()
        counted.set()
        await eventually(lambda: stage.relay.waiting()[0].prompt_tokens == 7)
        after = stage.relay.waiting()

    assert [(each.number, each.position, each.phase) for each in before] == [(1, 1, "held"), (2, 2, "held")]
    assert before[0].prompt_tokens is None
    assert [each.number for each in after] == [1, 2]


async def test_a_slow_count_holds_up_nobody_and_keeps_its_place(stage):
    async with slowly_counted(stage, seed=1) as (slow, counted):
        quick = await stage.client.post(PATH, json=chat_body(seed=2))
        phases = [each.phase for each in stage.relay.waiting()]
        stage.line.hold()
        async with asking(stage, seed=3) as last:
            await eventually(lambda: len(stage.line.waiting) == 2)
            counted.set()
            await eventually(lambda: all(ticket.is_ready for ticket in stage.line.waiting))
            stage.line.open()
            answers = await asyncio.gather(slow, last)

    assert phases == ["waiting"]
    assert [answer.status_code for answer in (quick, *answers)] == [200, 200, 200]
    assert [request.sampling.seed for request in stage.engine.received] == [2, 1, 3]


@EACH_WAY
async def test_those_that_are_being_counted_fill_the_line_and_the_next_is_429_at_once(stage, is_stream):
    async with slowly_counted(stage), slowly_counted(stage):
        refused = await stage.client.post(PATH, json=chat_body(stream=is_stream))

    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert len(stage.engine.counted) == 2


@EACH_WAY
@EACH_DIALECT
async def test_a_person_cancels_a_request_that_is_being_counted(stage, dialect, is_stream):
    async with slowly_counted(stage, dialect, stream=is_stream) as (answering, _):
        found = stage.relay.cancel(stage.relay.waiting()[0].id)
        answer = await answering
    row = await the_only_row(stage)

    assert found
    assert answer.status_code == 499
    assert refusal_of(answer, is_anthropic=dialect.is_anthropic).code in ("request_cancelled", None)
    assert (row.outcome, row.error_code) == ("cancelled", "request_cancelled")
    assert stage.engine.received == []


@EACH_WAY
@EACH_DIALECT
@pytest.mark.parametrize("error", [GatewayRestarts(), SplashQuits()], ids=["restart", "quit"])
async def test_a_request_that_is_being_counted_is_told_at_once_of_an_end(stage, dialect, is_stream, error):
    async with slowly_counted(stage, dialect, stream=is_stream) as (answering, _):
        stage.line.turn_away_waiting(error)
        answer = await asyncio.wait_for(answering, 1)
    row = await the_only_row(stage)

    refusal = refusal_of(answer, is_anthropic=dialect.is_anthropic)
    assert refusal.status == (529 if dialect.is_anthropic else 503)
    assert refusal.message == str(error)
    assert (row.outcome, row.error_code) == ("failed", error.code)


async def test_a_prompt_that_is_too_long_is_rejected_and_leaves_its_place(stage):
    stage.engine.prompt_tokens = 5000

    answer = await asked(stage, CHAT)
    row = await the_only_row(stage)

    assert answer.status_code == 400
    assert (row.outcome, row.error_code) == ("rejected", "context_length_exceeded")
    assert stage.line.waiting == ()


async def test_who_comes_while_splash_ends_hears_why(stage):
    stage.source.availability = "none"
    answers = []
    for error in (GatewayRestarts(), SplashQuits()):
        stage.line.turn_away_waiting(error)
        answers.append(await asked(stage, CHAT))
    stage.line.hold()
    answers.append(await asked(stage, CHAT))

    assert [answer.json()["error"]["code"] for answer in answers] == ["gateway_restarts", "quitting", "no_model"]


# --- The model of one that never ran ---


async def test_a_request_that_leaves_the_line_belongs_to_the_model_that_was_to_answer(stage):
    stage.line.hold()
    async with asking(stage, model="default"):
        await eventually(lambda: len(stage.line.waiting) == 1)
    row = await the_only_row(stage)

    assert (row.outcome, row.model, row.prompt_tokens) == ("cancelled", "demo", 0)


@pytest.mark.parametrize("wanted_model", [None, "demo"], ids=["the last one", "the wanted one"])
async def test_a_request_that_is_turned_away_belongs_to_the_model_that_is_known(stage, wanted_model):
    stage.source.wanted_model = wanted_model
    stage.source.availability, stage.source.engine = "none", None

    await stage.client.post(PATH, json=chat_body(model="default"))
    row = await the_only_row(stage)

    assert (row.outcome, row.model) == ("rejected", "demo")


async def test_where_no_model_was_ever_known_the_name_asked_for_is_told(stage):
    stage.source.availability, stage.source.engine = "none", None
    stage.source.model = stage.source.wanted_model = None

    await stage.client.post(PATH, json=chat_body(model="default"))

    assert (await the_only_row(stage)).model == "default"


# --- The body still arrives, or it is only about a count ---


@pytest.mark.parametrize("path", [PATH, MESSAGES.path, COUNT])
async def test_a_client_that_still_sends_is_told_at_once_of_a_restart(stage, reception, caplog, path):
    async with connected(stage) as client:
        await sent(client, head_of(stage, path=path, num_body_bytes=1000, headers=["Connection: close"]) + b'{"mod')
        await eventually(lambda: reception._guests)
        reception.close(GatewayRestarts())
        async with asyncio.timeout(1):
            head, body = await read_to_the_end(client)

    assert head.startswith(b"http/1.1 503 " if path == PATH else b"http/1.1 529 ")
    assert str(GatewayRestarts()).encode() in body
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_who_asks_for_a_count_is_told_at_once_of_a_restart(stage, reception):
    counted = stage.engine.count_opened = asyncio.Event()
    asking = asyncio.create_task(stage.client.post(COUNT, json=MESSAGES.body()))
    await eventually(lambda: len(stage.engine.counted) == 1)

    reception.close(GatewayRestarts())
    answer = await asyncio.wait_for(asking, 1)
    counted.set()

    assert refusal_of(answer, is_anthropic=True).status == 529


async def test_a_body_that_comes_after_the_end_is_told_too(stage, reception):
    reception.close(SplashQuits())

    async with connected(stage) as client:
        await sent(client, head_of(stage, num_body_bytes=1000, headers=["Connection: close"]))
        _, body = await read_to_the_end(client)

    assert b'"quitting"' in body
