"""The newest OpenAI and Anthropic SDKs against the gateway on a real socket; older ones are in `make sdks`."""

import asyncio

import pytest
import pytest_asyncio

from tests.sdks import anthropic_checks, openai_checks
from tests.sdks.either import entered
from tests.sdks.scene import scene
from tests.unit.control_gateway.dialect_calls import CHAT, COMPLETIONS, MESSAGES, RESPONSES, asked

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory):
    async with scene(tmp_path_factory.mktemp("home")) as stage:
        yield stage


async def passed(make_client, check) -> None:
    async with entered(make_client()) as client:
        await check(client)


@pytest.mark.parametrize(
    ("dialect", "mark"),
    [
        (CHAT, b": keep-alive\n"),
        (COMPLETIONS, b": keep-alive\n"),
        (RESPONSES, b"event: keepalive\n"),
        (MESSAGES, b"event: ping\n"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value.name,
)
async def test_what_the_sdks_read_has_heartbeats_before_it_and_in_it(stage, dialect, mark):
    prompt = "say hello" if isinstance(dialect.prompt, str) else [{"role": "user", "content": "say hello"}]

    answer = await asked(stage, dialect, stream=True, **{dialect.prompt_field: prompt})

    before, _, after = answer.content.partition(b"hel")
    assert mark in before and mark in after


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("room", "check"),
    [(room, check) for room in (openai_checks, anthropic_checks) for check in room.CHECKS],
    ids=lambda value: value.__name__.removeprefix("tests.sdks."),
)
async def test_the_newest_sdk_reads_what_the_gateway_says(stage, room, check, mode):
    make_client = room.clients(stage.url.removesuffix("/v1"), stage.key)[mode]

    # In a thread and a loop of its own: a client that waits would stop the gateway.
    await asyncio.to_thread(asyncio.run, passed(make_client, check))
