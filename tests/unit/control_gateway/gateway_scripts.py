"""What the small engine plays, and a client that can leave at any moment."""

import asyncio
import contextlib

import httpx

from engine import wire
from tests.unit.control_gateway.gateway_stage import Died, accepted, chat_body


class Gate:
    """A script that stops in a phase until it is opened."""

    def __init__(self, *before: list) -> None:
        self.before = before
        self.opened = asyncio.Event()

    async def __call__(self, request):
        yield [wire.Accepted(id=request.id, prompt_tokens=100)]
        for events in self.before:
            yield events
        await self.opened.wait()
        yield [wire.TextDelta(text="late"), wire.Finished(reason="stop", usage=wire.Usage(prompt=100, completion=3))]


def in_prefill() -> Gate:
    return Gate([wire.Prefill(processed=40, cached=10, total=100)])


def in_decode() -> Gate:
    return Gate([wire.Prefill(processed=100, cached=10, total=100)], [wire.TextDelta(text="early")])


async def dies(request):
    yield accepted(request)
    raise Died


async def dies_after_a_word(request):
    yield [*accepted(request), wire.TextDelta(text="early")]
    raise Died


def reached(stage, phase) -> bool:
    """The engine has said so: admission alone is a prefill too, before the engine knows of it."""
    return any(slot and slot.phase == phase and slot.prefilled_tokens > 0 for slot in stage.relay.slots())


def no_engine_is_ready(stage):
    """As between two engines; the answer is the engine that was there."""
    engine = stage.source.engine
    stage.source.engine, stage.source.availability = None, "held"
    stage.line.hold()
    return engine


@contextlib.asynccontextmanager
async def asking(stage, **fields):
    """A client with a request under way; leaving closes its connection."""
    async with httpx.AsyncClient(
        base_url=stage.url, headers={"x-api-key": stage.key}, verify=False, trust_env=False
    ) as client:
        task = asyncio.create_task(client.post("/chat/completions", json=chat_body(**fields), timeout=30))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def the_only_row(stage):
    [row] = await stage.rows()
    return row
