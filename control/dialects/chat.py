"""POST /v1/chat/completions: OpenAI's request in, the engine's neutral request out. Format: OpenAI Chat Completions.

It writes no answer (`chat_answer`), and refuses by name what it cannot do; what has no effect here is ignored.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from control.dialects.answer_format import grammar_of
from control.dialects.chat_answer import ChatStreamEncoder, chat_body
from control.dialects.chat_fields import client_field
from control.dialects.chat_messages import ChatMessage, neutral_messages
from control.dialects.chat_tools import CallForm, NeutralTools, legacy_tools, neutral_tools
from control.dialects.collected import BodyEncoder
from control.dialects.decoding import decoded
from control.dialects.exchange import Encoder, HeartbeatMode
from control.dialects.limits import Alternatives, TokenLimit
from control.dialects.nesting import check_depth, endless_refused
from control.dialects.sampling import SampledBody, effort_of, limit_of, sampling_of, stops_of
from control.dialects.skipped import Skipped
from control.errors import InvalidRequest
from engine import wire

PATH: Final = "/v1/chat/completions"


class ChatBody(SampledBody, kw_only=True):
    """The fields that have an effect, or are refused. Every other key of the client's is ignored."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    audio: Any = None
    reasoning_effort: Any = None
    chat_template_kwargs: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ChatExchange:
    """An `Exchange`."""

    model: str
    is_stream: bool
    has_usage_chunk: bool
    call_form: CallForm
    generate: wire.GenerateRequest
    wall: Callable[[], float] = time.time
    dialect: str = "chat"

    def encoder(self, *, heartbeat: HeartbeatMode) -> Encoder:
        answer_id = f"chatcmpl-{self.generate.id}"
        created = int(self.wall())
        if self.is_stream:
            return ChatStreamEncoder(answer_id, created, has_usage_chunk=self.has_usage_chunk, form=self.call_form)
        return BodyEncoder(partial(chat_body, answer_id, created, self.call_form))

    def field(self, engine_field: str) -> str | None:
        return client_field(engine_field)


def parse_chat(body: bytes, request_id: str) -> ChatExchange:
    """Raises InvalidRequest that names the field. It may take a second for a body made to be slow: not on the loop."""
    with endless_refused():
        return _exchange(decoded(body, ChatBody), request_id)


def _exchange(chat: ChatBody, request_id: str) -> ChatExchange:
    if chat.audio is not None or (isinstance(chat.modalities, list) and "audio" in chat.modalities):
        raise InvalidRequest("Audio is not supported.", param="modalities")
    check_depth(chat.chat_template_kwargs, "chat_template_kwargs")
    skipped = Skipped()
    tools = _tools(chat, skipped)
    prompt = wire.Prompt(
        messages=neutral_messages(chat.messages, skipped),
        tools=tools.tools,
        tool_choice=tools.choice,
        template_arguments=chat.chat_template_kwargs or {},
        effort=effort_of(chat.reasoning_effort),
    )
    skipped.log(request_id)
    return ChatExchange(
        model=chat.model,
        is_stream=bool(chat.stream),
        has_usage_chunk=chat.has_usage_chunk,
        call_form=tools.form,
        generate=wire.GenerateRequest(
            id=request_id,
            prompt=prompt,
            sampling=sampling_of(chat, logprobs=_logprobs(chat)),
            max_tokens=_max_tokens(chat),
            stop=stops_of([chat.stop] if isinstance(chat.stop, str) else chat.stop, "stop"),
            grammar=grammar_of(chat.response_format, "response_format", schema_key="json_schema"),
        ),
    )


def _tools(chat: ChatBody, skipped: Skipped) -> NeutralTools:
    if not chat.functions:
        is_parallel = chat.parallel_tool_calls is not False
        return neutral_tools(chat.tools or (), chat.tool_choice, skipped, is_parallel=is_parallel)
    if chat.tools:
        raise InvalidRequest("Either tools or functions can be given, not both.", param="functions")
    return legacy_tools(chat.functions, chat.function_call, skipped)


def _logprobs(chat: ChatBody) -> int | None:
    if chat.top_logprobs and not chat.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
    return (chat.top_logprobs or 0) if chat.logprobs else None


def _max_tokens(chat: ChatBody) -> int | None:
    """The newer name wins."""
    if chat.max_completion_tokens is None:
        return limit_of(chat.max_tokens, "max_tokens")
    return limit_of(chat.max_completion_tokens, "max_completion_tokens")
