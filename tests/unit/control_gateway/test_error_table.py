"""The table of errors, row by row: in the shape of each path, stream or not, and as the newest SDKs raise it.

Every row is decided before the headers; errors within a stream that had begun are the second half.
Source: `docs/api.md`, "Errors".
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from control.errors import EngineStopped, GatewayRestarts, ModelChanged, SplashQuits, WaitedTooLong
from engine import wire
from tests.unit.control_gateway.dialect_calls import (
    EACH_DIALECT,
    EACH_WAY,
    Dialect,
    as_new,
    asked,
    asking_in,
    refusal_of,
    row_with,
    sdks_of,
)
from tests.unit.control_gateway.gateway_scripts import dies, dies_after_a_word
from tests.unit.control_gateway.gateway_stage import accepted, eventually, staged

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with staged(tmp_path_factory.mktemp("home"), notice_limit_s=0.05) as stage:
        yield stage, stage.source.engine


@pytest.fixture
def stage(shared):
    return as_new(*shared)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks(shared):
    async with sdks_of(shared[0]) as sdks:
        yield sdks


# --- What a row needs while it is asked ---


@contextlib.asynccontextmanager
async def nothing(_stage, _monkeypatch):
    yield


@contextlib.asynccontextmanager
async def overflow(stage, _monkeypatch):
    stage.engine.prompt_tokens = 5000
    yield


@contextlib.asynccontextmanager
async def refused_by_the_engine(stage, _monkeypatch):
    stage.engine.refusal = wire.ErrorAnswer(code="not_implemented", message="No.", param="sampling.temperature")
    yield


@contextlib.asynccontextmanager
async def no_model(stage, _monkeypatch):
    stage.source.availability = "none"
    yield


@contextlib.asynccontextmanager
async def engine_dies(stage, _monkeypatch):
    stage.engine.scripts = [dies]
    yield


@contextlib.asynccontextmanager
async def engine_fails(stage, _monkeypatch):
    async def fails(request):
        yield [*accepted(request), wire.Failed(code="out_of_memory", message="4 GiB are missing.")]

    stage.engine.scripts = [fails]
    yield


@contextlib.asynccontextmanager
async def our_mistake(_stage, monkeypatch):
    def broken(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("control.relay._request", broken)
    yield


def told_while_it_waits(error):
    @contextlib.asynccontextmanager
    async def arrange(stage, _monkeypatch):
        stage.line.hold()

        async def tell() -> None:
            await eventually(lambda: len(stage.line.waiting) > 0)
            stage.line.turn_away_waiting(error)

        async with asyncio.TaskGroup() as group:
            group.create_task(tell())
            yield

    return arrange


@dataclass(frozen=True)
class Row:
    """`fields` are of the body; `param` None: no field is at fault; "prompt": the one that holds the prompt."""

    name: str
    arrange: Callable[..., contextlib.AbstractAsyncContextManager[None]]
    status: int
    code: str
    openai_type: str
    openai_error: type[openai.APIStatusError]
    anthropic_type: str
    anthropic_error: type[anthropic.APIStatusError]
    anthropic_status: int | None = None
    fields: tuple[tuple[str, Any], ...] = ()
    param: str | None = None
    retry_after: str | None = None
    has_row: bool = True

    @property
    def is_overflow(self) -> bool:
        """Its words to Anthropic's clients are the ones that make them compact, and no others."""
        return self.code == "context_length_exceeded"

    def status_in(self, dialect: Dialect) -> int:
        return self.anthropic_status or self.status if dialect.is_anthropic else self.status

    def param_in(self, dialect: Dialect) -> str | None:
        return dialect.prompt_field if self.param == "prompt" else self.param


BAD = (400, "invalid_request", "invalid_request_error", openai.BadRequestError)
OVER = ("server_error", openai.InternalServerError, "overloaded_error", anthropic.OverloadedError, 529)
BROKEN = ("server_error", openai.InternalServerError, "api_error", anthropic.InternalServerError)
BAD_ANTHROPIC = ("invalid_request_error", anthropic.BadRequestError)
ROWS = (
    Row("a field of the wrong type", nothing, *BAD, *BAD_ANTHROPIC, None, (("temperature", "hot"),), "temperature",
        has_row=False),
    Row("a field out of range", nothing, *BAD, *BAD_ANTHROPIC, None, (("temperature", 9),), "temperature",
        has_row=False),
    Row("a field that the engine refuses", refused_by_the_engine, *BAD, *BAD_ANTHROPIC, None,
        (("temperature", 0.5),), "temperature"),
    Row("an unknown model", nothing, 404, "model_not_found", "invalid_request_error", openai.NotFoundError,
        "not_found_error", anthropic.NotFoundError, None, (("model", "nobody"),), "model", has_row=False),
    Row("a prompt that is too long", overflow, 400, "context_length_exceeded", "invalid_request_error",
        openai.BadRequestError, *BAD_ANTHROPIC, param="prompt"),
    Row("no model and none on the way", no_model, 503, "no_model", *OVER, retry_after="10"),
    Row("an engine that dies twice", engine_dies, 503, "engine_died", *OVER, retry_after="10"),
    Row("a model that a person stopped", told_while_it_waits(EngineStopped()), 503, "engine_stopped", *OVER,
        retry_after="10"),
    Row("Splash that quits", told_while_it_waits(SplashQuits()), 503, "quitting", *OVER, retry_after="10"),
    Row("a gateway that restarts", told_while_it_waits(GatewayRestarts()), 503, "gateway_restarts", *OVER,
        retry_after="2"),
    Row("a wait that was too long", told_while_it_waits(WaitedTooLong(limit_s=86400)), 504, "waited_too_long",
        "server_error", openai.InternalServerError, "timeout_error", anthropic.GatewayTimeoutError),
    Row("an engine that gives up", engine_fails, 500, "engine_error", *BROKEN),
    Row("a mistake of ours", our_mistake, 500, "internal_error", *BROKEN),
)  # fmt: skip
EACH_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@EACH_ROW
@EACH_DIALECT
@EACH_WAY
async def test_an_error_has_its_status_and_the_shape_of_its_path(stage, monkeypatch, row, dialect, is_stream):
    async with row.arrange(stage, monkeypatch):
        answer = await asked(stage, dialect, stream=is_stream, **dict(row.fields))

    refusal = refusal_of(answer, is_anthropic=dialect.is_anthropic)
    assert refusal.status == row.status_in(dialect)
    assert refusal.retry_after == row.retry_after
    if dialect.is_anthropic:
        assert refusal.type == row.anthropic_type
        assert row.is_overflow or (row.param_in(dialect) or "") in refusal.message
    else:
        assert (refusal.type, refusal.code) == (row.openai_type, row.code)
        assert refusal.param == row.param_in(dialect)
    assert "secret detail" not in answer.text
    if row.has_row:
        assert (await row_with(stage, answer.headers["x-request-id"])).error_code == row.code


@EACH_ROW
@EACH_DIALECT
@EACH_WAY
async def test_an_error_is_raised_by_the_sdk_as_what_it_is(stage, sdks, monkeypatch, row, dialect, is_stream):
    expected = row.anthropic_error if dialect.is_anthropic else row.openai_error
    async with row.arrange(stage, monkeypatch):
        with pytest.raises(expected) as caught:
            await dialect.sdk_call(sdks, **dialect.body(stream=is_stream), extra_body=dict(row.fields))

    assert type(caught.value) is expected
    assert caught.value.status_code == row.status_in(dialect)
    assert caught.value.request_id
    if not dialect.is_anthropic:
        assert (caught.value.code, caught.value.param) == (row.code, row.param_in(dialect))


# --- Overflow: the words that make clients compact ---


@EACH_DIALECT
@EACH_WAY
async def test_an_overflow_is_a_400_with_both_numbers_however_long_it_took_to_count(tmp_path, dialect, is_stream):
    async with staged(tmp_path, grace_s=0.01, heartbeat_s=0.01) as stage:
        stage.engine.prompt_tokens, stage.engine.count_opened = 5000, asyncio.Event()
        async with asking_in(stage, dialect, stream=is_stream) as answering:
            await eventually(lambda: len(stage.engine.counted) == 1)
            # So that a heartbeat would have come, if one could before the prompt was counted.
            await asyncio.sleep(0.1)
            stage.engine.count_opened.set()
            answer = await answering

    refusal = refusal_of(answer, is_anthropic=dialect.is_anthropic)
    assert refusal.status == 400
    if dialect.is_anthropic:
        assert refusal.message == "prompt is too long: 5000 tokens > 4095 maximum"
    else:
        assert refusal.code == "context_length_exceeded"
        assert "maximum context length is 4096 tokens" in refusal.message
        assert "prompt is too long: 5000 tokens > 4095 maximum" in refusal.message


# --- Within a stream that had begun ---


async def begun(stage, dialect: Dialect, change: Callable[[], None]) -> bytes:
    """A stream that got heartbeats only, until `change`."""
    async with stage.client.stream("POST", dialect.path, json=dialect.body(stream=True), timeout=10) as answer:
        assert answer.status_code == 200
        change()
        return await answer.aread()


@EACH_DIALECT
async def test_an_overflow_that_is_found_behind_the_headers_has_the_same_words(tmp_path, dialect):
    async with staged(tmp_path, grace_s=0.01) as stage:
        engine, stage.source.engine = stage.source.engine, None
        stage.line.hold()
        stage.engine.refusal = wire.ErrorAnswer(
            code="context_length_exceeded", message="no", prompt_tokens=9000, maximum_context_tokens=4096
        )

        def engine_is_back() -> None:
            stage.source.engine = engine
            stage.line.open()

        error = dialect.read_stream(await begun(stage, dialect, engine_is_back)).error

    assert error is not None
    if dialect.is_anthropic:
        assert error == {"type": "invalid_request_error", "message": "prompt is too long: 9000 tokens > 4095 maximum"}
    else:
        assert error["code"] == "context_length_exceeded"
        assert "prompt is too long: 9000 tokens > 4095 maximum" in error["message"]


@pytest.mark.parametrize(
    ("error", "code", "anthropic_type"),
    [
        (EngineStopped(), "engine_stopped", "overloaded_error"),
        (SplashQuits(), "quitting", "overloaded_error"),
        (GatewayRestarts(), "gateway_restarts", "overloaded_error"),
        (WaitedTooLong(limit_s=86400), "waited_too_long", "timeout_error"),
        (ModelChanged(wanted="a", loaded="b"), "model_changed", "invalid_request_error"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@EACH_DIALECT
async def test_a_held_stream_that_is_turned_away_gets_a_typed_error(tmp_path, dialect, error, code, anthropic_type):
    async with staged(tmp_path, grace_s=0.01) as stage:
        stage.line.hold()

        told = dialect.read_stream(await begun(stage, dialect, lambda: stage.line.turn_away_waiting(error))).error

    assert told is not None and told["message"]
    if dialect.is_anthropic:
        assert told["type"] == anthropic_type
    elif dialect.name == "responses":
        # Codex sends a failed request again unless it knows the code as final.
        assert told["code"] == ("invalid_prompt" if code == "model_changed" else code)
    else:
        assert told["code"] == code


@EACH_DIALECT
async def test_an_engine_that_dies_behind_a_word_is_a_typed_error_of_the_sdk(stage, sdks, dialect):
    stage.engine.scripts = [dies_after_a_word]

    stream = await dialect.sdk_call(sdks, **dialect.body(stream=True))

    if dialect.name == "responses":
        events = [event async for event in stream]
        assert events[-1].type == "response.failed"
        assert events[-1].response.error.code == "engine_died"
        return
    with pytest.raises(anthropic.APIStatusError if dialect.is_anthropic else openai.APIError) as caught:
        _ = [event async for event in stream]
    if dialect.is_anthropic:
        assert caught.value.body["error"]["type"] == "overloaded_error"
    else:
        assert caught.value.code == "engine_died"


# --- What SDKs send again ---


@pytest.mark.parametrize(
    ("name", "num_repeats", "wait_s"),
    [
        ("a field out of range", 0, None),
        ("an unknown model", 0, None),
        ("a prompt that is too long", 0, None),
        ("no model and none on the way", 2, 10),
        ("an engine that gives up", 2, None),
    ],
)
@EACH_DIALECT
async def test_sdks_send_again_what_may_pass_and_wait_as_long_as_they_are_told(
    stage, monkeypatch, name, num_repeats, wait_s, dialect
):
    [row] = [row for row in ROWS if row.name == name]
    waits_s = []

    async def sleep(duration_s: float) -> None:
        waits_s.append(duration_s)

    monkeypatch.setattr(f"{'anthropic' if dialect.is_anthropic else 'openai'}._base_client.anyio.sleep", sleep)
    async with sdks_of(stage, max_retries=2) as sdks, row.arrange(stage, monkeypatch):
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            await dialect.sdk_call(sdks, **dialect.body(), extra_body=dict(row.fields))

    assert len(waits_s) == num_repeats
    assert wait_s is None or waits_s == [wait_s] * num_repeats
