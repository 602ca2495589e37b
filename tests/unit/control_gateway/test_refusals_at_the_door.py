"""What is refused before a request is looked at, on every route: keys, methods, bodies, a full line.

What is refused of a request itself is in `test_error_table`; hosts and packed bodies are in `test_public_api`.
"""

import anthropic
import httpx
import openai
import pytest
import pytest_asyncio

from tests.unit.control_gateway.dialect_calls import (
    CHAT,
    DIALECTS,
    EACH_DIALECT,
    EACH_WAY,
    MESSAGES,
    as_new,
    asked,
    asking_in,
    refusal_of,
    sdks_of,
)
from tests.unit.control_gateway.gateway_stage import eventually, staged

COUNT = "/v1/messages/count_tokens"
BODIES = {dialect.path: dialect.body() for dialect in DIALECTS} | {COUNT: MESSAGES.body()}
EACH_POST = pytest.mark.parametrize("path", BODIES)
ROUTES = [*(("POST", path) for path in BODIES), ("GET", "/v1/models"), ("GET", "/v1/models/demo")]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with staged(tmp_path_factory.mktemp("home"), limit=1, body_limit_bytes=1000) as stage:
        yield stage, stage.source.engine


@pytest.fixture
def stage(shared):
    return as_new(*shared)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stranger(shared):
    """A client without a key."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{shared[0].port}", trust_env=False, verify=False
    ) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks(shared):
    async with sdks_of(shared[0]) as sdks:
        yield sdks


def is_anthropic(path: str) -> bool:
    return path.startswith("/v1/messages")


@pytest.mark.parametrize(("method", "path"), [*ROUTES, ("GET", "/v1/x")])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}])
async def test_without_a_key_every_route_is_401(stranger, method, path, headers):
    answer = await stranger.request(method, path, headers=headers)

    refusal = refusal_of(answer, is_anthropic=is_anthropic(path))
    assert refusal.status == 401
    assert refusal.type == ("authentication_error" if is_anthropic(path) else "invalid_request_error")
    assert refusal.code == (None if is_anthropic(path) else "invalid_api_key")


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_with_a_key_in_either_header_every_route_answers(stage, stranger, header, method, path):
    value = f"Bearer {stage.key}" if header == "authorization" else stage.key

    answer = await stranger.request(method, path, headers={header: value}, json=BODIES.get(path))

    assert answer.status_code == 200


@EACH_DIALECT
async def test_a_wrong_key_is_an_authentication_error_of_the_sdk(stage, dialect):
    expected = anthropic.AuthenticationError if dialect.is_anthropic else openai.AuthenticationError
    async with sdks_of(stage, key="wrong") as sdks:
        with pytest.raises(expected):
            await dialect.sdk_call(sdks, **dialect.body())


async def test_the_first_thing_that_claude_code_asks_is_answered(stranger):
    answer = await stranger.head("/")

    assert (answer.status_code, answer.content) == (200, b"")


@EACH_POST
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"text"', b"\xff", b'{"model": "demo"}'])
async def test_a_body_that_is_no_request_is_400(stage, path, content):
    answer = await stage.client.post(path, content=content)

    refusal = refusal_of(answer, is_anthropic=is_anthropic(path))
    assert (refusal.status, refusal.type) == (400, "invalid_request_error")
    assert refusal.code == (None if is_anthropic(path) else "invalid_request")


@EACH_DIALECT
@pytest.mark.parametrize("field", ["model", "prompt"])
@pytest.mark.parametrize("change", ["left out", "null", "of another type"])
async def test_a_required_field_that_is_not_there_is_named(stage, dialect, field, change):
    name = dialect.prompt_field if field == "prompt" else field
    body = dialect.body() | {name: {"null": None, "of another type": 7}.get(change)}
    if change == "left out":
        del body[name]

    answer = await stage.client.post(dialect.path, json=body)

    refusal = refusal_of(answer, is_anthropic=dialect.is_anthropic)
    assert refusal.status == 400
    if dialect.is_anthropic:
        assert name in refusal.message
    else:
        assert refusal.param == name


@pytest.mark.parametrize("path", ["//v1/messages", "/v1/v1/messages", "/v1/messages/batches", "/v1/responses/resp_1"])
async def test_a_path_that_is_not_there_is_named_as_it_was_asked_for(stage, path):
    """A base URL with a slash at its end, or with a /v1 too many, is a mistake that a person must be able to see."""
    answer = await stage.client.post(f"http://127.0.0.1:{stage.port}{path}", json={})

    refusal = refusal_of(answer, is_anthropic=is_anthropic(path))
    assert (refusal.status, refusal.message) == (404, f"There is nothing at {path}.")


@EACH_POST
async def test_a_wrong_method_is_405_and_the_right_one_is_named(stage, path):
    answer = await stage.client.get(path)

    assert refusal_of(answer, is_anthropic=is_anthropic(path)).status == 405
    assert "POST" in answer.headers["allow"]


@EACH_POST
async def test_a_body_that_is_too_large_is_413(stage, path):
    answer = await stage.client.post(path, content=b" " * 1001)

    refusal = refusal_of(answer, is_anthropic=is_anthropic(path))
    assert refusal.status == 413
    assert refusal.type == ("request_too_large" if is_anthropic(path) else "invalid_request_error")


@EACH_POST
async def test_a_body_that_is_packed_in_another_way_is_415(stage, path):
    answer = await stage.client.post(path, content=b"{}", headers={"content-encoding": "br"})

    assert refusal_of(answer, is_anthropic=is_anthropic(path)).status == 415


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES], ids=lambda dialect: dialect.name)
async def test_a_body_that_is_too_large_is_raised_by_the_sdk(stage, sdks, dialect):
    expected = anthropic.APIStatusError if dialect.is_anthropic else openai.APIStatusError
    with pytest.raises(expected) as caught:
        await dialect.sdk_call(sdks, **dialect.body(metadata={"user_id": "x" * 2000}))

    assert caught.value.status_code == 413


@EACH_DIALECT
@EACH_WAY
async def test_a_full_line_is_429_and_says_when_to_come_again(stage, sdks, dialect, is_stream):
    expected = anthropic.RateLimitError if dialect.is_anthropic else openai.RateLimitError
    stage.line.hold()
    async with asking_in(stage, dialect):
        await eventually(lambda: len(stage.line.waiting) == 1)

        answer = await asked(stage, dialect, stream=is_stream)
        with pytest.raises(expected):
            await dialect.sdk_call(sdks, **dialect.body(stream=is_stream))
    await eventually(lambda: not stage.line.waiting)

    refusal = refusal_of(answer, is_anthropic=dialect.is_anthropic)
    assert (refusal.status, refusal.retry_after) == (429, "10")
    assert (refusal.type, refusal.code) == (
        ("rate_limit_error", None) if dialect.is_anthropic else ("rate_limit_error", "rate_limit_exceeded")
    )
    # Some clients take these words for an overflow.
    assert "too many tokens" not in refusal.message.lower()


async def test_tokens_cannot_be_counted_without_an_engine_and_the_sdk_may_ask_again(stage, sdks):
    stage.source.engine = None

    answer = await stage.client.post(COUNT, json=MESSAGES.body())
    with pytest.raises(anthropic.OverloadedError):
        await sdks.anthropic.messages.count_tokens(model="demo", messages=MESSAGES.prompt)

    refusal = refusal_of(answer, is_anthropic=True)
    assert (refusal.status, refusal.type, refusal.retry_after) == (529, "overloaded_error", "2")


async def test_tokens_beyond_the_context_are_counted_all_the_same(stage):
    stage.engine.prompt_tokens = 5000

    answer = await stage.client.post(COUNT, json=MESSAGES.body())

    assert (answer.status_code, answer.json()) == (200, {"input_tokens": 5000})
