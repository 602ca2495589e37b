"""Heartbeats of every dialect and mode over a socket, read as the clients with the shortest patience read them.

What a heartbeat is in bytes is each encoder's matter (`tests/unit/control_dialects`); when it is due, that of
`test_delivery`.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from control.dialects.exchange import HEARTBEAT_MODES
from engine import wire
from tests.unit.control_dialects.messages_checker import checked as checked_messages
from tests.unit.control_dialects.responses_checker import check as check_responses
from tests.unit.control_gateway.dialect_calls import DIALECTS, EACH_DIALECT, MESSAGES, RESPONSES, Dialect, asking_in
from tests.unit.control_gateway.gateway_scripts import Gate, in_decode, in_prefill, reached, the_only_row
from tests.unit.control_gateway.gateway_stage import FINISHED, USAGE, Died, accepted, eventually, says, staged

HEARTBEAT_S = 0.01
YIELD_LIMIT_S = 0.03
FAST = {"heartbeat_s": HEARTBEAT_S, "grace_s": 0.01}

EACH_MODE = pytest.mark.parametrize(
    ("dialect", "mode"),
    [(dialect, mode) for dialect in DIALECTS for mode in HEARTBEAT_MODES[dialect.name]],
    ids=lambda value: value if isinstance(value, str) else value.name,
)


@pytest.fixture(autouse=True)
def _short_yields(monkeypatch):
    monkeypatch.setattr("control.delivery.YIELD_LIMIT_S", YIELD_LIMIT_S)


# --- Clients that count events, and give up ---


def codex_counts(frame: bytes) -> bool:
    """Its timer wraps an event stream that drops comments."""
    return b"data: " in frame


def claude_code_counts(frame: bytes) -> bool:
    """Its watchdog is wound up by what can be a part of the answer; not by pings."""
    event = frame.removeprefix(b"event: ").partition(b"\n")[0]
    return event in (b"message_start", b"message_delta") or event.startswith(b"content_block_")


def bytes_count(_frame: bytes) -> bool:
    """As for all others."""
    return True


@dataclass(frozen=True)
class Patience:
    counts: Callable[[bytes], bool]
    limit_s: float = 1.0

    async def read(self, stage, dialect: Dialect, *, on_counted: Callable[[int], None] = lambda _: None) -> bytes:
        """The whole stream. TimeoutError when nothing that counts came for too long.

        `on_counted` is given the number of frames that counted.
        """
        received, rest, num_counted = b"", b"", 0
        async with (
            asyncio.timeout(self.limit_s) as timer,
            stage.client.stream("POST", dialect.path, json=dialect.body(stream=True), timeout=None) as answer,
        ):
            assert answer.status_code == 200
            async for chunk in answer.aiter_raw():
                received += chunk
                *frames, rest = (rest + chunk).split(b"\n\n")
                for _ in filter(self.counts, frames):
                    num_counted += 1
                    timer.reschedule(asyncio.get_running_loop().time() + self.limit_s)
                    on_counted(num_counted)
        assert rest == b""
        return received


CODEX = Patience(codex_counts)
CLAUDE_CODE = Patience(claude_code_counts)
ANYBODY = Patience(bytes_count)

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
async def test_codex_waits_through_every_phase(tmp_path, phase):
    async with staged(tmp_path, **FAST) as stage:
        content = await waited_through(stage, RESPONSES, phase, CODEX)

    checker = check_responses(content)
    assert checker.types[:2] == ["created", "in_progress"]
    assert checker.types.count("keepalive") >= 2
    assert checker.terminal["status"] == "completed"


@pytest.mark.parametrize("phase", PHASES)
async def test_claude_code_waits_through_every_phase(tmp_path, phase):
    async with staged(tmp_path, **FAST) as stage:
        content = await waited_through(stage, MESSAGES, phase, CLAUDE_CODE)

    answer = checked_messages(content)
    assert answer.names[0] == "message_start"
    assert answer.names.count("ping") >= 1
    assert answer.values("tool_use") == (['{"at":1}'] if phase == "call" else [])


async def test_before_anything_the_client_is_told_what_the_answer_will_be(tmp_path):
    """Codex and OpenAI's SDKs want `response.created` before any other event, and then the no-op of the protocol."""
    async with staged(tmp_path, **FAST) as stage:
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
async def test_a_mode_that_a_client_does_not_count_makes_it_give_up(tmp_path, dialect, mode, patience):
    """So that the tests above can fail."""
    async with staged(tmp_path, heartbeat_of=lambda _: mode, **FAST) as stage:
        with pytest.raises(TimeoutError):
            await waited_through(stage, dialect, "prefill", Patience(patience, limit_s=0.3))


# --- Every mode ---


@EACH_MODE
@pytest.mark.parametrize("phase", ["held", "prefill", "text"])
async def test_every_mode_keeps_a_stream_whole(tmp_path, dialect, mode, phase):
    async with staged(tmp_path, heartbeat_of=lambda _: mode, **FAST) as stage:
        content = await waited_through(stage, dialect, phase, ANYBODY)
        row = await the_only_row(stage)

    said = dialect.read_stream(content)
    assert said.text == ("earlylate" if phase == "text" else "late")
    assert num_heartbeats(content) >= 2
    assert kinds_of(content) <= KINDS[mode]
    assert (row.outcome, row.prompt_tokens, row.completion_tokens) == ("completed", 100, 3)


KINDS = {
    "comment": {"comment"},
    "ping": {"ping"},
    # Comments from the first item on: openai-node fails on an in_progress after it.
    "in_progress": {"comment", "in_progress"},
    "typed": {"ping", "keepalive", "message_delta", "empty_delta"},
}
MARKS = {
    "comment": b": keep-alive\n\n",
    "ping": b"event: ping\n",
    "keepalive": b"event: keepalive\n",
    "message_delta": b'"stop_reason":null,"stop_sequence":null},"usage":{"output_tokens":0}}',
    "empty_delta": b'"delta":{"type":"text_delta","text":""}',
}


def num_by_kind(content: bytes) -> dict[str, int]:
    num_in_progress = max(0, content.count(b"event: response.in_progress\n") - 1)
    return {"in_progress": num_in_progress} | {kind: content.count(mark) for kind, mark in MARKS.items()}


def num_heartbeats(content: bytes) -> int:
    return sum(num_by_kind(content).values())


def kinds_of(content: bytes) -> set[str]:
    return {kind for kind, number in num_by_kind(content).items() if number}


# --- What they do not touch ---


@EACH_DIALECT
async def test_no_heartbeat_follows_the_end(tmp_path, dialect):
    async def lingers(request):
        yield accepted(request)
        yield [wire.TextDelta(text="hello"), FINISHED]
        await asyncio.sleep(5 * HEARTBEAT_S)

    async with staged(tmp_path, **FAST) as stage:
        stage.engine.scripts = [lingers]
        first = await ANYBODY.read(stage, dialect)
        await asyncio.sleep(5 * HEARTBEAT_S)
        # On the same connection, where a late frame would be a part of this answer.
        second = await ANYBODY.read(stage, dialect)
        num_connections = len(stage.connections)

    assert dialect.read_stream(first).text == dialect.read_stream(second).text == "hello"
    assert num_connections == 1


@EACH_DIALECT
async def test_a_heartbeat_is_no_first_token(tmp_path, dialect):
    loop = asyncio.get_running_loop()
    async with staged(tmp_path, **FAST) as stage:
        began_at = loop.time()
        released_at = []
        stage.engine.scripts = [gate := in_prefill()]

        def go_on(number: int) -> None:
            if number == 6:
                released_at.append(loop.time())
                gate.opened.set()

        await ANYBODY.read(stage, dialect, on_counted=go_on)
        row = await the_only_row(stage)

    # The request was on its way for a moment before its own time began.
    assert row.ttft_ms / 1000 > released_at[0] - began_at - HEARTBEAT_S
    assert row.completion_tokens == 3


@EACH_DIALECT
@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_heartbeats_are_no_tokens_of_a_client_that_left(tmp_path, dialect, phase):
    async with staged(tmp_path, **FAST) as stage:
        stage.engine.scripts = [in_prefill() if phase == "prefill" else in_decode()]
        async with asking_in(stage, dialect, stream=True):
            await eventually(lambda: reached(stage, phase))
            await asyncio.sleep(6 * HEARTBEAT_S)
        row = await the_only_row(stage)

    assert row.completion_tokens == (0 if phase == "prefill" else 1)
    assert (row.ttft_ms is None) == (phase == "prefill")


# --- A second run ---


@EACH_MODE
async def test_a_run_that_breaks_off_behind_heartbeats_is_run_again_on_the_same_stream(tmp_path, dialect, mode):
    broken = asyncio.Event()

    async def breaks(request):
        yield [wire.Accepted(id=request.id, prompt_tokens=50), wire.Prefill(processed=20, cached=20, total=50)]
        await broken.wait()
        raise Died

    async with staged(tmp_path, heartbeat_of=lambda _: mode, **FAST) as stage:
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
        row = await the_only_row(stage)

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
async def test_what_breaks_off_behind_a_piece_of_the_answer_is_not_run_again(tmp_path, dialect, phase):
    gate = PHASES[phase]()
    broken = asyncio.Event()

    async def breaks(request):
        async for events in gate(request):
            yield events
            if not isinstance(events[-1], wire.Accepted | wire.Prefill):
                await broken.wait()
                raise Died

    async with staged(tmp_path, **FAST) as stage:
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
