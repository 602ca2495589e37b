"""POST /v1/messages and its count_tokens: Anthropic's request in, the engine's neutral request out.

Format: Anthropic Messages, as Claude Code and the SDKs send it. It writes no answer (`messages_answer`,
`messages_body`). What has no effect here (`metadata`, `context_management`, `cache_control`, ...) is ignored.
"""

import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from control.dialects.answer_format import json_schema_grammar
from control.dialects.collected import BodyEncoder
from control.dialects.decoding import decoded
from control.dialects.estimate import estimated_tokens
from control.dialects.exchange import Encoder, HeartbeatMode
from control.dialects.fields import renamed
from control.dialects.limits import TOP_K_LIMIT, ModelName
from control.dialects.messages_answer import MessagesStreamEncoder
from control.dialects.messages_blocks import InputMessage, conversation_of
from control.dialects.messages_body import messages_body
from control.dialects.messages_tools import neutral_tools
from control.dialects.nesting import endless_refused
from control.dialects.sampling import Effort, effort_of, limit_of, stops_of
from control.dialects.skipped import Skipped
from control.errors import InvalidRequest
from engine import wire

PATH: Final = "/v1/messages"
COUNT_PATH: Final = "/v1/messages/count_tokens"

# Everything else of the engine's has the same name here, once its first part is gone.
_RENAMED: Final = (
    (re.compile(r"stop\b.*"), "stop_sequences"),
    (re.compile(r"grammar\b.*"), "output_config.format"),
    (re.compile(r"prompt\.effort\b"), "output_config.effort"),
    (re.compile(r"prompt(\.continue_last)?\Z"), "messages"),
    (re.compile(r"prompt\.|sampling\."), ""),
)
_NUMBERED: Final = re.compile(r"prompt\.(messages|tools)\[(\d+)\]")


class PromptBody(msgspec.Struct, kw_only=True):
    """What the prompt is made of: the whole body of count_tokens. Every other key of the client's is ignored."""

    model: ModelName
    messages: Annotated[list[InputMessage], msgspec.Meta(min_length=1)]
    system: str | list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None


class MessagesBody(PromptBody, kw_only=True):
    max_tokens: Annotated[int, msgspec.Meta(ge=1)]
    stream: bool | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0, le=TOP_K_LIMIT)] | None = None
    stop_sequences: list[str] | None = None
    output_format: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt; `places` and `tool_places` say where in the client's body its messages and tools stand."""

    prompt: wire.Prompt
    places: tuple[str, ...]
    tool_places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountAsked:
    model: str
    prompt: wire.Prompt


@dataclass(frozen=True, slots=True)
class MessagesExchange:
    """An `Exchange`."""

    model: str
    is_stream: bool
    generate: wire.GenerateRequest
    places: tuple[str, ...]
    tool_places: tuple[str, ...]
    dialect: str = "messages"

    def encoder(self, *, heartbeat: HeartbeatMode) -> Encoder:
        request_id = self.generate.id
        if self.is_stream:
            estimate = partial(estimated_tokens, self.generate.prompt)
            return MessagesStreamEncoder(request_id=request_id, heartbeat=heartbeat, estimate=estimate)
        return BodyEncoder(partial(messages_body, f"msg_{request_id}"))

    def field(self, engine_field: str) -> str | None:
        numbered = _NUMBERED.match(engine_field)
        if numbered is not None:
            # Within a message the engine's numbers are not the client's: a block may be several, or none.
            places = self.places if numbered[1] == "messages" else self.tool_places
            index = int(numbered[2])
            return places[index] if index < len(places) else numbered[1]
        if engine_field.startswith("prompt.template_arguments"):
            return None
        return renamed(engine_field, _RENAMED)


def parse_messages(body: bytes, request_id: str) -> MessagesExchange:
    """Raises InvalidRequest that names the field. It may take a second for a body made to be slow: not on the loop."""
    with endless_refused():
        return _exchange(decoded(body, MessagesBody), request_id)


def parse_count(body: bytes, request_id: str) -> CountAsked:
    """The prompt that /v1/messages would make of the same body. Raises InvalidRequest that names the field."""
    with endless_refused():
        asked = decoded(body, PromptBody)
        return CountAsked(asked.model, _asked(asked, request_id).prompt)


def count_body(prompt_tokens: int) -> bytes:
    return msgspec.json.encode({"input_tokens": prompt_tokens})


def _exchange(body: MessagesBody, request_id: str) -> MessagesExchange:
    asked = _asked(body, request_id)
    return MessagesExchange(
        model=body.model,
        is_stream=bool(body.stream),
        generate=wire.GenerateRequest(
            id=request_id,
            prompt=asked.prompt,
            sampling=wire.Sampling(temperature=body.temperature, top_p=body.top_p, top_k=body.top_k),
            max_tokens=limit_of(body.max_tokens, "max_tokens"),
            stop=stops_of(body.stop_sequences, "stop_sequences"),
            grammar=_grammar(body),
        ),
        places=asked.places,
        tool_places=asked.tool_places,
    )


def _asked(body: PromptBody, request_id: str) -> Asked:
    skipped = Skipped()
    conversation = conversation_of(body.system, body.messages, skipped)
    tools = neutral_tools(body.tools, body.tool_choice, skipped)
    skipped.log(request_id)
    prompt = wire.Prompt(
        messages=tuple(conversation.messages),
        tools=tools.tools,
        tool_choice=tools.choice,
        effort=_effort(body),
        continue_last=conversation.is_prefill,
    )
    return Asked(prompt, tuple(conversation.places), tools.places)


def _effort(body: PromptBody) -> Effort | None:
    """Without a word on thinking the model does what is usual for it. A budget of tokens for it cannot be kept."""
    if body.thinking is not None and body.thinking.get("type") == "disabled":
        return "none"
    return effort_of((body.output_config or {}).get("effort"))


def _grammar(body: MessagesBody) -> wire.Grammar | None:
    """`output_format` is the older name."""
    place, wanted = "output_config.format", (body.output_config or {}).get("format")
    if wanted is None:
        place, wanted = "output_format", body.output_format
    match wanted:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema"}:
            return json_schema_grammar(wanted.get("schema"), f"{place}.schema")
    raise InvalidRequest("The format of an answer is json_schema, with its schema.", param=place)
