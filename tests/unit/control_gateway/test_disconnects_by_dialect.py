"""Clients of every dialect that leave, at every stage of a request: gone within a second, with one row and no trace.

How the relay does it is in `test_relay`, with one dialect.
"""

import asyncio
import contextlib
import logging

import pytest
import pytest_asyncio

from engine import wire
from tests.unit.control_gateway.dialect_calls import (
    EACH_DIALECT,
    EACH_WAY,
    as_new,
    asked,
    asking_in,
    row_with,
)
from tests.unit.control_gateway.gateway_scripts import Gate, in_decode, in_prefill, no_engine_is_ready, reached
from tests.unit.control_gateway.gateway_stage import eventually, says, staged

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with staged(
        tmp_path_factory.mktemp("home"), concurrency=1, grace_s=0.01, heartbeat_s=0.01, count_patience_s=0.02
    ) as stage:
        yield stage, stage.source.engine


@pytest.fixture
def stage(shared):
    return as_new(*shared)


def is_idle(stage) -> bool:
    return not stage.line.running and not stage.line.waiting and not any(stage.relay.slots())


@contextlib.asynccontextmanager
async def left(stage, dialect, is_stream: bool, phase: str):
    """Where a client came to `phase` and is about to leave; what it stood behind goes on when the context ends."""
    async with contextlib.AsyncExitStack() as others:
        ahead = Gate()
        match phase:
            case "counting":
                stage.engine.count_opened = asyncio.Event()
                others.callback(stage.engine.count_opened.set)
            case "queue":
                stage.engine.scripts = [ahead, says(wire.TextDelta(text="next"))]
                others.callback(ahead.opened.set)
                await others.enter_async_context(asking_in(stage, dialect))
                await eventually(lambda: len(stage.engine.received) == 1)
            case "held":
                no_engine_is_ready(stage)
            case "prefill":
                stage.engine.scripts = [in_prefill(), says(wire.TextDelta(text="next"))]
            case "decode":
                stage.engine.scripts = [in_decode(), says(wire.TextDelta(text="next"))]
        async with asking_in(stage, dialect, stream=is_stream):
            match phase:
                case "counting":
                    await eventually(lambda: len(stage.engine.counted) == 1)
                case "queue" | "held":
                    await eventually(lambda: len(stage.line.waiting) == 1)
                case _:
                    await eventually(lambda: reached(stage, phase))
            # A stream has begun by now, with heartbeats only.
            await asyncio.sleep(0.03)
        yield


@pytest.mark.parametrize("phase", ["counting", "queue", "held", "prefill", "decode"])
@EACH_DIALECT
@EACH_WAY
async def test_a_client_that_leaves_is_gone_within_a_second(shared, stage, caplog, dialect, is_stream, phase):
    async with left(stage, dialect, is_stream, phase):
        if phase == "queue":
            await eventually(lambda: not stage.line.waiting, within_s=1)
        else:
            await eventually(lambda: is_idle(stage), within_s=1)
        if phase in ("prefill", "decode"):
            await eventually(lambda: len(stage.engine.cancelled) == 1, within_s=1)
    await eventually(lambda: is_idle(stage))
    num_received = len(stage.engine.received)
    after = await asked(as_new(*shared), dialect)
    number = (await row_with(stage, after.headers["x-request-id"])).number
    rows = sorted(await stage.rows(number), key=lambda row: row.number)

    assert dialect.read_body(after.content).text
    assert num_received == {"queue": 1, "prefill": 1, "decode": 1}.get(phase, 0)
    # The relay numbers every request of this file, so that none can be missing, nor be there twice.
    assert [row.number for row in rows] == list(range(1, number + 1))
    mine = rows[-2]
    assert (mine.dialect, mine.stream, mine.outcome, mine.error_code) == (
        dialect.name,
        is_stream,
        "cancelled",
        "client_gone",
    )
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@EACH_DIALECT
@EACH_WAY
@pytest.mark.parametrize("phase", ["queue", "held"])
async def test_a_client_that_sends_again_while_its_first_copy_waits_is_served_once(stage, dialect, is_stream, phase):
    ahead = Gate()
    engine = stage.source.engine
    stage.engine.scripts = [ahead, says(wire.TextDelta(text="hello"))] if phase == "queue" else stage.engine.scripts
    async with contextlib.AsyncExitStack() as others:
        if phase == "queue":
            await others.enter_async_context(asking_in(stage, dialect))
            await eventually(lambda: len(stage.engine.received) == 1)
        else:
            no_engine_is_ready(stage)
        async with asking_in(stage, dialect, stream=is_stream):
            await eventually(lambda: len(stage.line.waiting) == 1)
        async with asking_in(stage, dialect, stream=is_stream) as again:
            await eventually(lambda: [ticket.arrival for ticket in stage.line.waiting] and len(stage.line.waiting) == 1)
            ahead.opened.set()
            stage.source.engine, stage.source.availability = engine, "ready"
            stage.line.open()
            answer = await again
    served = stage.engine.received[1:] if phase == "queue" else stage.engine.received
    row = await row_with(stage, served[0].id)

    assert dialect.read(answer.content, is_stream=is_stream).text == "hello"
    assert [request.id for request in served] == [answer.headers["x-request-id"]]
    assert row.outcome == "completed"


@EACH_DIALECT
async def test_a_client_that_leaves_between_two_of_its_frames_leaves_nothing_behind(stage, caplog, dialect):
    """A stream with much to send, and a client that takes a part of it and goes."""

    async def long(request):
        yield [wire.Accepted(id=request.id, prompt_tokens=7)]
        while True:
            yield [wire.TextDelta(text="x" * 10_000)]
            await asyncio.sleep(0)

    stage.engine.scripts = [long]
    async with stage.client.stream("POST", dialect.path, json=dialect.body(stream=True)) as answer:
        received = 0
        async for chunk in answer.aiter_raw():
            received += len(chunk)
            if received > 200_000:
                break

    await eventually(lambda: is_idle(stage) and len(stage.engine.cancelled) == 1, within_s=1)
    row = await row_with(stage, stage.engine.received[0].id)
    assert (row.outcome, row.error_code) == ("cancelled", "client_gone")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
