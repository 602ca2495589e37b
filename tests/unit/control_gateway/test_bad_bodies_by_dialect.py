"""Bodies of real clients with anything dropped, nulled, added or replaced, on every route that takes one.

Whatever comes is answered as its dialect answers, or refused in the shape of its path; never a 500.
"""

import asyncio
import copy
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import wire
from tests.unit.control_dialects.chat_checker import check_chat_body, check_chat_stream
from tests.unit.control_dialects.completions_checker import check_completion_body, check_completion_stream
from tests.unit.control_dialects.messages_bodies import claude_code_body
from tests.unit.control_dialects.responses_stage import codex_body
from tests.unit.control_dialects.test_chat_bodies import MAIN as OPENCODE_BODY
from tests.unit.control_gateway.dialect_calls import CHAT, COMPLETIONS, MESSAGES, RESPONSES, refusal_of
from tests.unit.control_gateway.gateway_stage import FINISHED, accepted, staged

COUNT_PATH = "/v1/messages/count_tokens"
COMPLETION_BODY = {
    "model": "demo",
    "prompt": ["def f("],
    "max_tokens": 16,
    "temperature": 0.2,
    "top_p": 0.9,
    "n": 1,
    "best_of": 1,
    "logprobs": None,
    "echo": False,
    "stop": ["\n\n"],
    "suffix": None,
    "presence_penalty": 0,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "seed": 1,
    "stream": True,
    "stream_options": {"include_usage": True},
    "user": "u",
}
BODIES: dict[str, dict[str, Any]] = {
    CHAT.path: OPENCODE_BODY,
    COMPLETIONS.path: COMPLETION_BODY,
    RESPONSES.path: codex_body(),
    MESSAGES.path: claude_code_body(),
    COUNT_PATH: claude_code_body(),
}
# What the values of real bodies are made of, so that a replaced one is nearly right.
WORDS = st.sampled_from(["", "text", "function", "custom", "auto", "any", "none", "assistant", "tool", "{bad", "image"])
KEYS = st.sampled_from(
    [
        "type",
        "name",
        "text",
        "content",
        "tools",
        "source",
        "input",
        "output",
        "format",
        "role",
        "arguments",
        "tool_choice",
        "previous_response_id",
        "functions",
        "response_format",
        "output_config",
        "n",
        "stop",
        "unknown",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container below `value`, with each of its keys or indexes."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in items for place in ((value, key), *places(child))]


@st.composite
def changed(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 4))):
        known = places(body)
        if not known:
            break
        container, key = draw(st.sampled_from(known))
        match draw(st.sampled_from(["drop", "null", "replace", "add", "double"])):
            case "drop":
                del container[key]
            case "null":
                container[key] = None
            case "replace":
                container[key] = draw(VALUES)
            case "add" if isinstance(container, dict):
                container[draw(KEYS)] = draw(VALUES)
            case _ if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
    return body


async def answers(request: wire.GenerateRequest):
    """With a thought, a text, and a call when there is something to call."""
    yield accepted(request)
    yield [wire.ReasoningDelta(text="so"), wire.TextDelta(text="hello")]
    if request.prompt.tools and request.prompt.tool_choice.mode != "none":
        yield [
            wire.ToolCallBegin(index=0, id="call_1", name=request.prompt.tools[0].name),
            wire.ToolCallDelta(index=0, arguments='{"input":"x"}'),
            wire.ToolCallEnd(index=0),
        ]
    yield [FINISHED]


class Gateway:
    """The stage, for tests that are no coroutines."""

    def __init__(self, runner: asyncio.Runner, stage) -> None:
        self._runner = runner
        self.stage = stage

    def post(self, path: str, content: bytes) -> httpx.Response:
        return self._runner.run(self.stage.client.post(path, content=content))

    def error_codes(self) -> set[str | None]:
        return {row.error_code for row in self._runner.run(self.stage.rows(0))}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with asyncio.Runner() as runner:
        staging = staged(tmp_path_factory.mktemp("home"))
        stage = runner.run(staging.__aenter__())
        stage.engine.scripts = [answers]
        yield Gateway(runner, stage)
        runner.run(staging.__aexit__(None, None, None))


def check(path: str, answer: httpx.Response) -> None:
    """Raises AssertionError for an answer that is neither the dialect's nor a refusal."""
    if answer.status_code != 200:
        refusal = refusal_of(answer, is_anthropic=path.startswith(MESSAGES.path))
        assert refusal.status in (400, 404)
        return
    is_stream = answer.headers["content-type"].startswith("text/event-stream")
    has_usage_chunk = b'"choices":[]' in answer.content
    match path, is_stream:
        case CHAT.path, True:
            # Those of the legacy field `functions` are called in a field of their own.
            is_legacy = b'"function_call"' in answer.content
            check_chat_stream(answer.content, has_usage_chunk=has_usage_chunk, is_legacy=is_legacy)
        case CHAT.path, False:
            check_chat_body(answer.content)
        case COMPLETIONS.path, True:
            check_completion_stream(answer.content, has_usage_chunk=has_usage_chunk)
        case COMPLETIONS.path, False:
            check_completion_body(answer.content)
        case RESPONSES.path, _:
            RESPONSES.read(answer.content, is_stream=is_stream)
        case MESSAGES.path, _:
            MESSAGES.read(answer.content, is_stream=is_stream)
        case _:
            assert answer.json() == {"input_tokens": 7}


FUZZED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EACH_PATH = pytest.mark.parametrize("path", BODIES)


@EACH_PATH
def test_as_it_is_sent_it_is_answered(gateway, path):
    answer = gateway.post(path, msgspec.json.encode(BODIES[path]))

    assert answer.status_code == 200
    check(path, answer)


@EACH_PATH
@FUZZED
@given(data=st.data())
def test_a_body_with_anything_changed_is_answered_or_refused_in_the_right_shape(gateway, path, data):
    body = data.draw(changed(BODIES[path]))

    check(path, gateway.post(path, msgspec.json.encode(body)))


@EACH_PATH
@FUZZED
@given(at=st.integers(0, 3000), damage=st.binary(min_size=1, max_size=3), num_lost=st.integers(0, 3))
def test_a_body_with_any_byte_changed_is_answered_or_refused_in_the_right_shape(gateway, path, at, damage, num_lost):
    body = msgspec.json.encode(BODIES[path])

    check(path, gateway.post(path, body[:at] + damage + body[at + num_lost :]))


def test_none_of_them_made_us_or_the_engine_fail(gateway):
    """Runs last: the relay answers its own mistakes, too."""
    assert gateway.error_codes() <= {None}
