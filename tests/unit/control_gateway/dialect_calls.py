"""The four dialects as the gateway's tests use them: a small body, what an answer says, how an error looks, the SDK.

Every stream passes the checker of its dialect on the way. It makes no other claim.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import msgspec
import openai
import pytest

from control.dialects import chat, completions, messages, responses
from control.engine_client import EngineClient
from control.wire import RequestRow
from engine import wire
from tests.unit.control_dialects import messages_checker, responses_checker
from tests.unit.control_dialects.chat_checker import check_chat_body, check_chat_stream
from tests.unit.control_dialects.completions_checker import check_completion_body, check_completion_stream
from tests.unit.control_gateway.gateway_stage import DEMO, ScriptedEngine, Stage, says

QUESTION = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Said:
    """What an answer amounts to. `error` is the error object within the stream; `usage` is (whole prompt, cached, out).

    `num_silent`: comments and pings.
    """

    text: str
    error: dict[str, Any] | None = None
    usage: tuple[int, int, int] | None = None
    num_silent: int = 0


@dataclass(frozen=True)
class Dialect:
    """`sdk_call` is what a user of the newest SDK writes for the same body."""

    name: str
    path: str
    prompt_field: str
    prompt: Any
    read_stream: Callable[[bytes], Said]
    read_body: Callable[[bytes], Said]
    sdk_call: Callable[..., Any]

    @property
    def is_anthropic(self) -> bool:
        return self.name == "messages"

    def body(self, **fields: Any) -> dict[str, Any]:
        needed = {"max_tokens": 100} if self.is_anthropic else {}
        return {"model": "demo", self.prompt_field: self.prompt, **needed, **fields}

    def read(self, content: bytes, *, is_stream: bool) -> Said:
        """Raises AssertionError for what some client would trip over."""
        return self.read_stream(content) if is_stream else self.read_body(content)


def _chat_usage(usage: dict[str, Any] | None) -> tuple[int, int, int] | None:
    if usage is None:
        return None
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]


def _responses_usage(usage: dict[str, Any] | None) -> tuple[int, int, int] | None:
    if usage is None:
        return None
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]


def _messages_usage(usage: dict[str, Any] | None) -> tuple[int, int, int] | None:
    if usage is None:
        return None
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached + usage["cache_creation_input_tokens"], cached, usage["output_tokens"]


def _chat_stream(content: bytes) -> Said:
    answer = check_chat_stream(content, has_usage_chunk=False)
    return Said(answer.content, answer.error, num_silent=answer.num_heartbeats)


def _chat_body(content: bytes) -> Said:
    answer = check_chat_body(content)
    return Said(answer.content, usage=_chat_usage(answer.usage))


def _completions_stream(content: bytes) -> Said:
    answer = check_completion_stream(content, has_usage_chunk=False)
    return Said(answer.text, answer.error, num_silent=answer.num_heartbeats)


def _completions_body(content: bytes) -> Said:
    answer = check_completion_body(content)
    return Said(answer.text, usage=_chat_usage(answer.usage))


def _responses_stream(content: bytes) -> Said:
    checker = responses_checker.check(content)
    assert checker.terminal is not None
    # The text of an item that was cut by an error is only in its deltas.
    text = "".join(item.joined for item in checker.items if item.kind == "message")
    usage = _responses_usage(checker.terminal["usage"])
    return Said(text, checker.terminal["error"], usage, checker.num_comments)


def _responses_body(content: bytes) -> Said:
    body = msgspec.json.decode(content)
    assert body.keys() >= responses_checker.RESPONSE_FIELDS and body["status"] in ("completed", "incomplete")
    responses_checker.check_usage(body["usage"])
    text = "".join(item["content"][0]["text"] for item in body["output"] if item["type"] == "message")
    return Said(text, usage=_responses_usage(body["usage"]))


def _messages_stream(content: bytes) -> Said:
    answer = messages_checker.checked(content)
    num_silent = sum(name in (":", "ping") for name in answer.names)
    return Said("".join(answer.values("text")), answer.error, _messages_usage(answer.usage), num_silent)


def _messages_body(content: bytes) -> Said:
    body = msgspec.json.decode(content)
    assert body["type"] == "message" and body["role"] == "assistant" and body["content"]
    text = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    return Said(text, usage=_messages_usage(body["usage"]))


CHAT = Dialect(
    "chat",
    chat.PATH,
    "messages",
    QUESTION,
    _chat_stream,
    _chat_body,
    lambda sdks, **body: sdks.openai.chat.completions.create(**body),
)
COMPLETIONS = Dialect(
    "completions",
    completions.PATH,
    "prompt",
    "hi",
    _completions_stream,
    _completions_body,
    lambda sdks, **body: sdks.openai.completions.create(**body),
)
RESPONSES = Dialect(
    "responses",
    responses.PATH,
    "input",
    "hi",
    _responses_stream,
    _responses_body,
    lambda sdks, **body: sdks.openai.responses.create(**body),
)
MESSAGES = Dialect(
    "messages",
    messages.PATH,
    "messages",
    QUESTION,
    _messages_stream,
    _messages_body,
    lambda sdks, **body: sdks.anthropic.messages.create(**body),
)
DIALECTS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
EACH_DIALECT = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
EACH_WAY = pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])


def as_new(stage: Stage, engine: EngineClient) -> Stage:
    """A stage that several tests use, as it was at first; but its rows stay. `engine`: the one that it began with."""
    for name, value in vars(ScriptedEngine(scripts=[says(wire.TextDelta(text="hello"))])).items():
        setattr(stage.engine, name, value)
    stage.source.engine, stage.source.availability, stage.source.model = engine, "ready", DEMO
    stage.line.open()
    return stage


async def row_with(stage: Stage, request_id: str) -> RequestRow:
    """It is written just after its client has the answer. The second run has an id of its own, and no row."""
    request_id = request_id.partition(".")[0]
    async with asyncio.timeout(3):
        while not (found := [row for row in await stage.rows(0) if row.id == request_id]):  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(0.005)
    [row] = found
    return row


# --- Errors ---


@dataclass(frozen=True)
class Refusal:
    """`code` and `param` are None where the shape has no place for them."""

    status: int
    type: str
    message: str
    code: str | None
    param: str | None
    retry_after: str | None


def refusal_of(answer: httpx.Response, *, is_anthropic: bool) -> Refusal:
    """Raises AssertionError for an error that is not in the shape of its path, or has no id to ask about it."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == answer.headers["request-id"] != ""
    body = answer.json()
    error = body["error"]
    if is_anthropic:
        assert body.keys() == {"type", "error", "request_id"} and body["type"] == "error"
        assert body["request_id"] == answer.headers["request-id"]
        assert error.keys() == {"type", "message"}
    else:
        assert body.keys() == {"error"}
        assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"] and error["type"]
    return Refusal(
        answer.status_code,
        error["type"],
        error["message"],
        error.get("code"),
        error.get("param"),
        answer.headers.get("retry-after"),
    )


# --- Clients ---


@dataclass
class Sdks:
    """The newest of both, which send nothing twice."""

    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic


@contextlib.asynccontextmanager
async def sdks_of(stage: Stage, *, key: str | None = None, max_retries: int = 0) -> AsyncIterator[Sdks]:
    key = key or stage.key
    root = stage.url.removesuffix("/v1")
    async with (
        openai.AsyncOpenAI(base_url=stage.url, api_key=key, max_retries=max_retries) as openai_sdk,
        anthropic.AsyncAnthropic(base_url=root, api_key=key, max_retries=max_retries) as anthropic_sdk,
    ):
        yield Sdks(openai_sdk, anthropic_sdk)


@contextlib.asynccontextmanager
async def asking_in(stage: Stage, dialect: Dialect, **fields: Any) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """A client with a request under way, on a connection of its own; leaving closes it."""
    async with httpx.AsyncClient(headers={"x-api-key": stage.key}, verify=False, trust_env=False) as client:
        url = stage.url.removesuffix("/v1") + dialect.path
        task = asyncio.create_task(client.post(url, json=dialect.body(**fields), timeout=30))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def asked(stage: Stage, dialect: Dialect, **fields: Any) -> httpx.Response:
    return await stage.client.post(dialect.path, json=dialect.body(**fields), timeout=30)
