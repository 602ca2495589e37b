"""An answer that is complete while its client still reads: nobody takes its end away. And clients that ask again."""

import asyncio

import pytest

from control.errors import EngineStopped, GatewayRestarts
from control.wire import KeyChange
from engine import wire
from tests.unit.control_gateway.gateway_scripts import asking, in_decode, the_only_row
from tests.unit.control_gateway.gateway_stage import FINISHED, accepted, assert_refused, chat_body, eventually, staged
from tests.unit.control_gateway.raw_clients import PATH, asked, connected, read_to_the_end, sent


@pytest.fixture
async def stage(tmp_path):
    async with staged(tmp_path) as stage:
        yield stage


# --- A client that reads slowly ---


async def much_and_the_end(request):
    yield accepted(request)
    yield [wire.TextDelta(text="a" * 5_000_000)]
    yield [FINISHED]


INTERRUPTIONS = {
    "cancel": lambda stage: stage.relay.cancel(stage.engine.received[0].id),
    "force stop": lambda stage: stage.line.cut_running(EngineStopped()),
    "restart": lambda stage: stage.line.cut_running(GatewayRestarts()),
}


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
async def test_a_slow_client_gets_the_end_of_a_complete_answer_whoever_interrupts(stage, interruption):
    stage.engine.scripts = [much_and_the_end]
    async with connected(stage, num_buffered_bytes=4096) as slow:
        await sent(slow, asked(stage, stream=True, version="1.0"))
        await eventually(lambda: any(life.finished for life in stage.relay._lives.values()))
        found = INTERRUPTIONS[interruption](stage)
        await asyncio.sleep(0.05)
        _, body = await read_to_the_end(slow)
    row = await the_only_row(stage)

    assert found is False or interruption != "cancel"
    assert body.endswith(b"data: [DONE]\n\n")
    assert b'"error"' not in body
    assert (row.outcome, row.error_code) == ("completed", None)


# --- A client that leaves and asks again ---


async def test_a_client_at_its_limit_that_leaves_and_asks_again_at_once_is_served(stage):
    await stage.keys.change(1, KeyChange(max_in_flight=1))
    stage.engine.scripts = [in_decode()]

    async with asking(stage, stream=True):
        await eventually(lambda: stage.relay.num_decoding() == 1)
        stage.engine.scripts = [much_and_the_end]
        again = asyncio.create_task(stage.client.post(PATH, json=chat_body()))
        await eventually(lambda: len(stage.connections) == 2)
        await asyncio.sleep(0.05)
    answer = await again

    assert answer.status_code == 200


async def test_a_client_at_its_limit_that_stays_is_refused_within_a_second(stage):
    await stage.keys.change(1, KeyChange(max_in_flight=1))
    stage.engine.scripts = [in_decode()]

    async with asking(stage, stream=True):
        await eventually(lambda: stage.relay.num_decoding() == 1)
        refused = await asyncio.wait_for(stage.client.post(PATH, json=chat_body()), 1)

    assert_refused(refused, 429, "key_limit_reached")
