"""POST /v1/responses: OpenAI's request in, the engine's neutral request out. Format: OpenAI Responses.

It writes no answer (`responses_answer`, `responses_body`), and refuses by name what it cannot do; what has no effect
here is ignored.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from control.dialects.answer_format import grammar_of
from control.dialects.collected import BodyEncoder
from control.dialects.decoding import decoded
from control.dialects.exchange import Encoder, HeartbeatMode
from control.dialects.limits import Alternatives, ModelName, TokenLimit
from control.dialects.nesting import check_depth, endless_refused
from control.dialects.response_history import OwnHistory, turn
from control.dialects.responses_answer import ResponsesStreamEncoder
from control.dialects.responses_body import Asked, Remembering, response_body
from control.dialects.responses_fields import client_field
from control.dialects.responses_items import earlier_items, input_items, neutral_input, tools_in
from control.dialects.responses_tools import RawTool, neutral_tools
from control.dialects.sampling import effort_of, limit_of
from control.dialects.skipped import Skipped
from control.dialects.volatile import without_volatile_parts
from control.errors import InvalidRequest
from engine import wire

PATH: Final = "/v1/responses"
LOGPROBS: Final = "message.output_text.logprobs"


class ResponsesBody(msgspec.Struct, frozen=True):
    """The fields that have an effect, are refused, or are repeated in the answer. Every other key is ignored."""

    model: ModelName
    input: str | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    store: bool | None = None
    max_output_tokens: TokenLimit | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_logprobs: Alternatives | None = None
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
    body: bytes, request_id: str, *, history: OwnHistory, wall: Callable[[], float] = time.time
) -> ResponsesExchange:
    """Raises InvalidRequest that names the field, and UnknownResponse. A large body takes a while: not on the loop."""
    with endless_refused():
        return _exchange(decoded(body, ResponsesBody), request_id, history, created_at=int(wall()))


def _exchange(body: ResponsesBody, request_id: str, history: OwnHistory, *, created_at: int) -> ResponsesExchange:
    _refuse_unsupported(body)
    before = () if body.previous_response_id is None else history.get(body.previous_response_id)
    skipped = Skipped()
    said = input_items(body.input or [], history)
    # Read together, as if the client had sent them all: what it gets is the same then.
    items = [*earlier_items(before), *said]
    tools = neutral_tools(
        [*(RawTool(tool, f"tools[{index}]") for index, tool in enumerate(body.tools or ())), *tools_in(items)],
        body.tool_choice,
        skipped,
        is_parallel=body.parallel_tool_calls is not False,
    )
    conversation = neutral_input(items, tools, skipped)
    skipped.log(request_id)
    # Not carried over to the next response: each request has its own, or none.
    instructions = _instructions(body.instructions)
    messages = (*instructions, *conversation.messages)
    if not messages:
        raise InvalidRequest("There is nothing to answer: the input is empty.", param="input")
    is_stored = body.store is not False
    return ResponsesExchange(
        model=body.model,
        is_stream=bool(body.stream),
        generate=wire.GenerateRequest(
            id=request_id,
            prompt=wire.Prompt(
                messages=messages,
                tools=tools.tools,
                tool_choice=tools.choice,
                effort=effort_of((body.reasoning or {}).get("effort")),
            ),
            sampling=_sampling(body),
            max_tokens=limit_of(body.max_output_tokens, "max_output_tokens"),
            grammar=grammar_of((body.text or {}).get("format"), "text.format"),
        ),
        asked=Asked(
            request_id=request_id,
            created_at=created_at,
            tools=tools,
            echo=_echo(body),
            remembering=Remembering(history, before, turn(each.item for each in said)) if is_stored else None,
        ),
        message_fields=(*("instructions" for _ in instructions), *conversation.fields),
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
        check_depth(getattr(body, name), name)


def _instructions(instructions: str | None) -> tuple[wire.Message, ...]:
    content = without_volatile_parts((wire.TextPart(text=instructions or ""),))
    return (wire.Message(role="system", content=content),) if content else ()


def _sampling(body: ResponsesBody) -> wire.Sampling:
    has_logprobs = bool(body.top_logprobs) or LOGPROBS in (body.include or ())
    return wire.Sampling(
        temperature=body.temperature, top_p=body.top_p, logprobs=(body.top_logprobs or 0) if has_logprobs else None
    )


def _echo(body: ResponsesBody) -> dict[str, msgspec.Raw]:
    """What the Response object repeats of the request, with OpenAI's defaults for what was not sent."""
    text = {"format": {"type": "text"}, **{key: value for key, value in (body.text or {}).items() if value is not None}}
    return {
        # Encoded once, for what is written several times.
        name: msgspec.Raw(msgspec.json.encode(value))
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
