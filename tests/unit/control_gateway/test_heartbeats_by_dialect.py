"""Heartbeats of every dialect and mode over a socket, read as the clients with the shortest patience read them.

What a heartbeat is in bytes is each encoder's matter (`tests/unit/control_dialects`); when it is due, that of
`test_delivery`.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from control.dialects.exchange import HEARTBEAT_MODES, HeartbeatMode, default_heartbeat
from engine import wire
from tests.unit.control_dialects.messages_checker import checked as checked_messages
from tests.unit.control_dialects.responses_checker import check as check_responses
from tests.unit.control_gateway.dialect_calls import (
    DIALECTS,
    EACH_DIALECT,
    MESSAGES,
    RESPONSES,
    Dialect,
    as_new,
    asking_in,
    row_with,
)
from tests.unit.control_gateway.gateway_scripts import Gate, in_decode, in_prefill, reached
from tests.unit.control_gateway.gateway_stage import FINISHED, USAGE, Died, accepted, eventually, says, staged
from tests.unit.control_gateway.impatient_clients import (
    ANYBODY,
    CLAUDE_CODE,
    CODEX,
    Patience,
    claude_code_counts,
    codex_counts,
    kinds_of,
    num_heartbeats,
)

HEARTBEAT_S = 0.01
YIELD_LIMIT_S = 0.03

EACH_MODE = pytest.mark.parametrize(
    ("dialect", "mode"),
    [(dialect, mode) for dialect in DIALECTS for mode in HEARTBEAT_MODES[dialect.name]],
    ids=lambda value: value if isinstance(value, str) else value.name,
)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def _short_yields(monkeypatch):
    monkeypatch.setattr("control.delivery.YIELD_LIMIT_S", YIELD_LIMIT_S)


@dataclass
class Modes:
    """A dialect has its default when it is not named."""

    chosen: dict[str, HeartbeatMode] = field(default_factory=dict)

    def of(self, dialect: str) -> HeartbeatMode:
        return self.chosen.get(dialect, default_heartbeat(dialect))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    modes = Modes()
    async with staged(
        tmp_path_factory.mktemp("home"), heartbeat_s=HEARTBEAT_S, grace_s=0.01, heartbeat_of=modes.of
    ) as stage:
        yield stage, modes, stage.source.engine


@pytest.fixture
def modes(shared):
    shared[1].chosen.clear()
    return shared[1].chosen


@pytest.fixture
def stage(shared, modes):
    stage, _, engine = shared
    stage.source.on_look = lambda: None
    return as_new(stage, engine)


# --- Waiting ---

KINDS = {
    "comment": {"comment"},
    "ping": {"ping"},
    # Comments from the first item on: openai-node fails on an in_progress after it.
    "in_progress": {"comment", "in_progress"},
    "typed": {"ping", "keepalive", "message_delta", "empty_delta"},
}
# The engine's state while the client waits: in line, in the prompt, or in the midst of an answer of each kind.
PHASES: dict[str, Callable[[], Gate]] = {
    "held": lambda: Gate(),
    "prefill": in_prefill,
    "text": in_decode,
    "thought": lambda: Gate([wire.ReasoningDelta(text="so")]),
    "call": lambda: Gate(
        [wire.ToolCallBegin(index=0, id="c", name="look"), wire.ToolCallDelta(index=0, arguments='{"at":')],
    ),
}


async def waited_through(stage, dialect: Dialect, phase: str, patience: Patience, *, num_counted: int = 8) -> bytes:
    """A stream that stands in `phase` until so many frames counted, and then ends."""
    gate = PHASES[phase]()

    async def script(request):
        async for events in gate(request):
            if phase == "call" and isinstance(events[-1], wire.Finished):
                yield [wire.ToolCallDelta(index=0, arguments="1}"), wire.ToolCallEnd(index=0)]
            yield events

    stage.engine.scripts = [script]
    if phase == "held":
        stage.line.hold()

    def go_on(number: int) -> None:
        if number == num_counted:
            stage.line.open()
            gate.opened.set()

    return await patience.read(stage, dialect, on_counted=go_on)


@pytest.mark.parametrize("phase", PHASES)
async def test_codex_waits_through_every_phase(stage, phase):
    content = await waited_through(stage, RESPONSES, phase, CODEX)

    checker = check_responses(content)
    assert checker.types[:2] == ["created", "in_progress"]
    assert checker.types.count("keepalive") >= 2
    assert checker.terminal["status"] == "completed"


@pytest.mark.parametrize("phase", PHASES)
async def test_claude_code_waits_through_every_phase(stage, phase):
    content = await waited_through(stage, MESSAGES, phase, CLAUDE_CODE)

    answer = checked_messages(content)
    assert answer.names[0] == "message_start"
    assert answer.names.count("ping") >= 1
    assert answer.values("tool_use") == (['{"at":1}'] if phase == "call" else [])


async def test_before_anything_the_client_is_told_what_the_answer_will_be(stage):
    """Codex and OpenAI's SDKs want `response.created` before any other event, and then the no-op of the protocol."""
    content = await waited_through(stage, RESPONSES, "held", CODEX)

    types = check_responses(content).types
    assert types[:4] == ["created", "in_progress", "keepalive", "keepalive"]


@pytest.mark.parametrize(
    ("dialect", "mode", "patience"),
    [
        (RESPONSES, "comment", codex_counts),
        (MESSAGES, "comment", claude_code_counts),
        (MESSAGES, "ping", claude_code_counts),
    ],
)
async def test_a_mode_that_a_client_does_not_count_makes_it_give_up(stage, modes, dialect, mode, patience):
    """So that the tests above can fail."""
    modes[dialect.name] = mode
    with pytest.raises(TimeoutError):
        await waited_through(stage, dialect, "prefill", Patience(patience, limit_s=0.3))


# --- Every mode ---


@EACH_MODE
@pytest.mark.parametrize("phase", ["held", "prefill", "text"])
async def test_every_mode_keeps_a_stream_whole(stage, modes, dialect, mode, phase):
    modes[dialect.name] = mode
    content = await waited_through(stage, dialect, phase, ANYBODY)
    row = await row_with(stage, stage.engine.received[0].id)

    said = dialect.read_stream(content)
    assert said.text == ("earlylate" if phase == "text" else "late")
    assert num_heartbeats(content) >= 2
    assert kinds_of(content) <= KINDS[mode]
    assert (row.outcome, row.prompt_tokens, row.completion_tokens) == ("completed", 100, 3)


# --- What they do not touch ---


@EACH_DIALECT
async def test_no_heartbeat_follows_the_end(stage, dialect):
    async def lingers(request):
        yield accepted(request)
        yield [wire.TextDelta(text="hello"), FINISHED]
        await asyncio.sleep(5 * HEARTBEAT_S)

    stage.engine.scripts = [lingers]
    first = await ANYBODY.read(stage, dialect)
    connections = set(stage.connections)
    await asyncio.sleep(5 * HEARTBEAT_S)
    # On the same connection, where a late frame would be a part of this answer.
    second = await ANYBODY.read(stage, dialect)
    connections_after = set(stage.connections)

    assert dialect.read_stream(first).text == dialect.read_stream(second).text == "hello"
    assert connections == connections_after


@EACH_DIALECT
async def test_a_heartbeat_is_no_first_token(stage, dialect):
    loop = asyncio.get_running_loop()
    beats_at = {}
    stage.engine.scripts = [gate := in_prefill()]

    def go_on(number: int) -> None:
        beats_at[number] = loop.time()
        if number == 6:
            gate.opened.set()

    await ANYBODY.read(stage, dialect, on_counted=go_on)
    row = await row_with(stage, stage.engine.received[0].id)

    # Its own time had begun before its first heartbeat, and its first token came after the sixth.
    assert row.ttft_ms / 1000 > beats_at[6] - beats_at[1]
    assert row.completion_tokens == 3


@EACH_DIALECT
@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_heartbeats_are_no_tokens_of_a_client_that_left(stage, dialect, phase):
    stage.engine.scripts = [in_prefill() if phase == "prefill" else in_decode()]
    async with asking_in(stage, dialect, stream=True):
        await eventually(lambda: reached(stage, phase))
        await asyncio.sleep(6 * HEARTBEAT_S)
    row = await row_with(stage, stage.engine.received[0].id)

    assert row.completion_tokens == (0 if phase == "prefill" else 1)
    assert (row.ttft_ms is None) == (phase == "prefill")


# --- A second run ---


@EACH_MODE
async def test_a_run_that_breaks_off_behind_heartbeats_is_run_again_on_the_same_stream(stage, modes, dialect, mode):
    broken = asyncio.Event()

    async def breaks(request):
        yield [wire.Accepted(id=request.id, prompt_tokens=50), wire.Prefill(processed=20, cached=20, total=50)]
        await broken.wait()
        raise Died

    modes[dialect.name] = mode
    stage.engine.scripts = [breaks, says(wire.TextDelta(text="second"))]
    engine = stage.source.engine

    def noticed() -> None:
        stage.source.engine = None
        stage.line.hold()

    def go_on(number: int) -> None:
        if number == 4:
            stage.source.on_look = noticed
            broken.set()
        if number == 8:
            stage.source.engine = engine
            stage.source.on_look = lambda: None
            stage.line.open()

    content = await ANYBODY.read(stage, dialect, on_counted=go_on)
    row = await row_with(stage, stage.engine.received[0].id)

    said = dialect.read_stream(content)
    assert said.text == "second"
    assert said.usage in (None, (USAGE.prompt, USAGE.cached, USAGE.completion))
    assert len({request.id for request in stage.engine.received}) == 2
    assert (row.outcome, row.error_code, row.prompt_tokens) == ("completed", None, USAGE.prompt)


@pytest.mark.parametrize(
    ("dialect", "phase"),
    [
        (dialect, phase)
        for dialect in DIALECTS
        for phase in ("text", "thought", "call")
        # Completions writes neither thoughts nor calls.
        if dialect.name != "completions" or phase == "text"
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
async def test_what_breaks_off_behind_a_piece_of_the_answer_is_not_run_again(stage, dialect, phase):
    gate = PHASES[phase]()
    broken = asyncio.Event()

    async def breaks(request):
        async for events in gate(request):
            yield events
            if not isinstance(events[-1], wire.Accepted | wire.Prefill):
                await broken.wait()
                raise Died

    stage.engine.scripts = [breaks, says(wire.TextDelta(text="second"))]
    if dialect.name == "completions" and phase != "text":
        pytest.skip("It writes neither thoughts nor calls.")
    content = await ANYBODY.read(stage, dialect, on_counted=lambda number: number == 8 and broken.set())

    assert dialect.read_stream(content).error is not None
    assert len(stage.engine.received) == 1


# --- Two writers ---


@EACH_DIALECT
@pytest.mark.parametrize("seed", range(5))
async def test_heartbeats_and_tokens_that_come_at_once_are_never_mixed(tmp_path, monkeypatch, dialect, seed):
    chance = random.Random(seed)
    monkeypatch.setattr("control.delivery.YIELD_LIMIT_S", 0.003)
    words = [chance.choice(["a", "é", "你好", "x" * 70_000, '"\n\n', "data: x\n\n"]) for _ in range(60)]

    async def script(request):
        yield accepted(request)
        rest = list(words)
        while rest:
            num_together = chance.randint(1, 4)
            yield [wire.TextDelta(text=word) for word in rest[:num_together]]
            del rest[:num_together]
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.002, 0.004]))
        yield [FINISHED]

    received = b""
    async with staged(tmp_path, heartbeat_s=0.001, grace_s=0.001) as stage:
        stage.engine.scripts = [script]
        async with stage.client.stream("POST", dialect.path, json=dialect.body(stream=True)) as answer:
            async for chunk in answer.aiter_raw():
                received += chunk
                # A client that is slow to read makes a write wait in the midst of a frame.
                await asyncio.sleep(chance.choice([0, 0, 0.002]))

    assert dialect.read_stream(received).text == "".join(words)
    assert num_heartbeats(received) > 0
