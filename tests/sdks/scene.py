"""The gateway on a real socket whose scripted engine says what the checks of the SDKs expect, with heartbeats between.

It checks nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine import wire
from tests.fakes.script import last_said
from tests.unit.control_gateway.gateway_stage import FINISHED, TIMINGS, USAGE, ScriptedEngine, Stage, accepted, staged

# Long enough for heartbeats before the first word and between two of them.
PAUSE_S = 0.06
HEARTBEAT_S = 0.02
TOO_LONG_TOKENS = 5000

ANSWERS: dict[str, list[wire.AnyEvent]] = {
    "say hello": [wire.ReasoningDelta(text="so"), wire.TextDelta(text="hel"), wire.TextDelta(text="lo"), FINISHED],
    "look": [
        wire.ToolCallBegin(index=0, id="call_1", name="look"),
        wire.ToolCallDelta(index=0, arguments='{"at":'),
        wire.ToolCallDelta(index=0, arguments='"door"}'),
        wire.ToolCallEnd(index=0),
        wire.Finished(reason="tool_calls", usage=USAGE, timings=TIMINGS),
    ],
    "count": [wire.TextDelta(text='{"files"'), wire.TextDelta(text=": 3}"), FINISHED],
    "fail": [wire.TextDelta(text="hel"), wire.Failed(code="internal", message="The script says so.")],
}


async def plays(request: wire.GenerateRequest) -> AsyncIterator[list[wire.AnyEvent]]:
    yield accepted(request)
    for event in ANSWERS[last_said(request.prompt)]:
        if request.prompt.text is not None and isinstance(event, wire.ReasoningDelta):
            # A raw prompt has no template that says where a thought ends.
            continue
        await asyncio.sleep(PAUSE_S)
        yield [event]


class CountingEngine(ScriptedEngine):
    """It finds one question too long."""

    async def _count(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=wire.CountRequest)
        is_too_long = last_said(asked.prompt) == "too long"
        answer = wire.CountAnswer(
            prompt_tokens=TOO_LONG_TOKENS if is_too_long else self.prompt_tokens, maximum_context_tokens=4096
        )
        return Response(msgspec.json.encode(answer))


@contextlib.asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Stage]:
    async with staged(folder, grace_s=HEARTBEAT_S, heartbeat_s=HEARTBEAT_S, engine=CountingEngine([plays])) as stage:
        yield stage
