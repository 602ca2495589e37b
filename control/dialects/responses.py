"""POST /v1/responses: OpenAI's request in, the engine's neutral request out. Format: OpenAI Responses.

It writes no answer (`responses_answer`, `responses_body`), and refuses by name what it cannot do; what has no effect
here is ignored.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from control.dialects.chat_skipped import Skipped
from control.dialects.collected import BodyEncoder
from control.dialects.exchange import Encoder, HeartbeatMode
from control.dialects.nesting import NESTING_LIMIT, is_too_deep
from control.dialects.response_history import ResponseHistory, turn
from control.dialects.responses_answer import ResponsesStreamEncoder
from control.dialects.responses_body import Asked, Remembering, response_body
from control.dialects.responses_fields import as_raw, client_field, invalid
from control.dialects.responses_items import input_items, neutral_input, tools_in
from control.dialects.responses_tools import RawTool, neutral_tools
from control.errors import InvalidRequest
from engine import wire

PATH: Final = "/v1/responses"
ALTERNATIVES_LIMIT: Final = 20
# It is kept with the request, and shown; the path of a folder may be a name.
MODEL_NAME_LIMIT: Final = 4096
LOGPROBS: Final = "message.output_text.logprobs"

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ResponsesBody(msgspec.Struct, frozen=True):
    """The fields that have an effect, are refused, or are repeated in the answer. Every other key is ignored."""

    model: Annotated[str, msgspec.Meta(max_length=MODEL_NAME_LIMIT)]
    input: str | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    store: bool | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=ALTERNATIVES_LIMIT)] | None = None
    include: list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    metadata: Any = None
    truncation: Any = None
    user: Any = None
    prompt_cache_key: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    max_tool_calls: Any = None


@dataclass(frozen=True, slots=True)
class ResponsesExchange:
    """An `Exchange`. `message_fields` says where the client sent each of the prompt's messages."""

    model: str
    is_stream: bool
    generate: wire.GenerateRequest
    asked: Asked
    message_fields: tuple[str, ...]
    dialect: str = "responses"

    def encoder(self, *, heartbeat: HeartbeatMode) -> Encoder:
        if self.is_stream:
            return ResponsesStreamEncoder(self.asked, heartbeat=heartbeat)
        return BodyEncoder(partial(response_body, self.asked))

    def field(self, engine_field: str) -> str | None:
        return client_field(engine_field, messages=self.message_fields, tools=self.asked.tools.fields)


def parse_responses(
    body: bytes, request_id: str, *, history: ResponseHistory, wall: Callable[[], float] = time.time
) -> ResponsesExchange:
    """Raises InvalidRequest that names the field, and UnknownResponse. A large body takes a while: not on the loop."""
    try:
        return _exchange(_decode(body), request_id, history, created_at=int(wall()))
    except RecursionError as error:
        raise InvalidRequest(f"The body is nested too deeply; {NESTING_LIMIT} levels are supported.") from error


def _decode(body: bytes) -> ResponsesBody:
    try:
        return msgspec.json.decode(body, type=ResponsesBody)
    except msgspec.ValidationError as error:
        raise invalid(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from error


def _exchange(body: ResponsesBody, request_id: str, history: ResponseHistory, *, created_at: int) -> ResponsesExchange:
    _refuse_unsupported(body)
    before = () if body.previous_response_id is None else history.get(body.previous_response_id)
    skipped = Skipped()
    items = input_items(body.input or [], history)
    tools = neutral_tools(
        [*(RawTool(tool, f"tools[{index}]") for index, tool in enumerate(body.tools or ())), *tools_in(items)],
        body.tool_choice,
        skipped,
        is_parallel=body.parallel_tool_calls is not False,
    )
    said = neutral_input(items, tools, skipped)
    skipped.log(request_id)
    # Not carried over to the next response: each request has its own, or none.
    instructions = _instructions(body.instructions)
    earlier = tuple(message for each in before for message in each.messages)
    messages = (*instructions, *earlier, *said.messages)
    if not messages:
        raise InvalidRequest("There is nothing to answer: the input is empty.", param="input")
    is_stored = body.store is not False
    return ResponsesExchange(
        model=body.model,
        is_stream=bool(body.stream),
        generate=wire.GenerateRequest(
            id=request_id,
            prompt=wire.Prompt(
                messages=messages, tools=tools.tools, tool_choice=tools.choice, effort=_effort(body.reasoning)
            ),
            sampling=_sampling(body),
            max_tokens=_max_tokens(body.max_output_tokens),
            grammar=_grammar(body.text),
        ),
        asked=Asked(
            request_id=request_id,
            created_at=created_at,
            tools=tools,
            echo=_echo(body),
            remembering=Remembering(history, before, turn(said.messages)) if is_stored else None,
        ),
        message_fields=(
            *("instructions" for _ in instructions),
            *("previous_response_id" for _ in earlier),
            *said.fields,
        ),
    )


def _refuse_unsupported(body: ResponsesBody) -> None:
    """What would change the answer and is not done is refused; ignoring it silently would be a lie."""
    if body.background:
        raise InvalidRequest("Responses in the background are not supported; use stream.", param="background")
    if body.conversation is not None:
        raise InvalidRequest("Conversations are not supported; use previous_response_id.", param="conversation")
    if body.prompt is not None:
        raise InvalidRequest("Stored prompts are not supported; send the input.", param="prompt")
    if body.input is None and body.previous_response_id is None:
        raise InvalidRequest("The input is missing.", param="input")
    # They are handed on, or repeated in the answer.
    for name in ("tool_choice", "text", "reasoning", "metadata"):
        if is_too_deep(getattr(body, name)):
            raise InvalidRequest(f"At most {NESTING_LIMIT} levels are supported.", param=name)


def _instructions(instructions: str | None) -> tuple[wire.Message, ...]:
    if not instructions:
        return ()
    return (wire.Message(role="system", content=(wire.TextPart(text=instructions),)),)


def _effort(reasoning: dict[str, Any] | None) -> Effort | None:
    effort = (reasoning or {}).get("effort")
    return effort if effort in get_args(Effort) else None


def _sampling(body: ResponsesBody) -> wire.Sampling:
    has_logprobs = bool(body.top_logprobs) or LOGPROBS in (body.include or ())
    return wire.Sampling(
        temperature=body.temperature, top_p=body.top_p, logprobs=(body.top_logprobs or 0) if has_logprobs else None
    )


def _max_tokens(limit: int | None) -> int | None:
    """-1 is how clients of other local servers say no limit."""
    if limit == 0:
        raise InvalidRequest("At least one token must be allowed.", param="max_output_tokens")
    return None if limit == -1 else limit


def _grammar(text: dict[str, Any] | None) -> wire.Grammar | None:
    match (text or {}).get("format"):
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return wire.Grammar(kind="json_object")
        case {"type": "json_schema", "schema": dict(schema)}:
            return wire.Grammar(kind="json_schema", schema=schema)
        case {"type": "json_schema"}:
            raise InvalidRequest("A JSON schema is needed.", param="text.format.schema")
        case {"type": kind}:
            raise InvalidRequest(f"The format {kind!r} is not supported.", param="text.format.type")
    raise InvalidRequest("The format is an object with a type.", param="text.format")


def _echo(body: ResponsesBody) -> dict[str, msgspec.Raw]:
    """What the Response object repeats of the request, with OpenAI's defaults for what was not sent."""
    text = {"format": {"type": "text"}, **{key: value for key, value in (body.text or {}).items() if value is not None}}
    return {
        name: as_raw(value)
        for name, value in {
            "background": False,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "prompt_cache_key": body.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None, **(body.reasoning or {})},
            "safety_identifier": body.safety_identifier,
            "service_tier": body.service_tier or "default",
            "store": body.store is not False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": text,
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": body.truncation or "disabled",
            "user": body.user,
        }.items()
    }
