"""POST /v1/chat/completions: OpenAI's request in, the engine's neutral request out. Format: OpenAI Chat Completions.

It writes no answer (`chat_answer`), and refuses by name what it cannot do; what has no effect here is ignored.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from control.dialects.chat_answer import ChatStreamEncoder, chat_body
from control.dialects.chat_fields import client_field
from control.dialects.chat_messages import ChatMessage, neutral_messages
from control.dialects.chat_tools import ChatTool, neutral_tools
from control.dialects.collected import BodyEncoder
from control.dialects.exchange import Encoder, HeartbeatMode
from control.dialects.nesting import NESTING_LIMIT, is_too_deep
from control.errors import InvalidRequest
from engine import wire

PATH: Final = "/v1/chat/completions"
# OpenAI's own limit is 4; other servers allow more, and their clients use it.
STOPS_LIMIT: Final = 16
ALTERNATIVES_LIMIT: Final = 20
# It is kept with the request, and shown; the path of a folder may be a name.
MODEL_NAME_LIMIT: Final = 4096

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """The fields that have an effect, or are refused. Every other key of the client's is ignored."""

    model: Annotated[str, msgspec.Meta(max_length=MODEL_NAME_LIMIT)]
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=2)] | None = None
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[float, msgspec.Meta(ge=-100, le=100)]] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=ALTERNATIVES_LIMIT)] | None = None
    tools: list[ChatTool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
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
    generate: wire.GenerateRequest
    wall: Callable[[], float] = time.time
    dialect: str = "chat"

    def encoder(self, *, heartbeat: HeartbeatMode) -> Encoder:
        answer_id = f"chatcmpl-{self.generate.id}"
        created = int(self.wall())
        if self.is_stream:
            return ChatStreamEncoder(answer_id, created, has_usage_chunk=self.has_usage_chunk)
        return BodyEncoder(partial(chat_body, answer_id, created))

    def field(self, engine_field: str) -> str | None:
        return client_field(engine_field)


def parse_chat(body: bytes, request_id: str) -> ChatExchange:
    """Raises InvalidRequest that names the field. It may take a second for a body made to be slow: not on the loop."""
    try:
        return _exchange(body, request_id)
    except RecursionError as error:
        raise InvalidRequest(f"The body is nested too deeply; {NESTING_LIMIT} levels are supported.") from error


def _exchange(body: bytes, request_id: str) -> ChatExchange:
    chat = _decode(body)
    _refuse_unsupported(chat)
    if is_too_deep(chat.chat_template_kwargs):
        raise InvalidRequest(f"At most {NESTING_LIMIT} levels are supported.", param="chat_template_kwargs")
    tools = neutral_tools(chat.tools, chat.tool_choice, is_parallel=chat.parallel_tool_calls is not False)
    prompt = wire.Prompt(
        messages=neutral_messages(chat.messages),
        tools=tools.tools,
        tool_choice=tools.choice,
        template_arguments=chat.chat_template_kwargs or {},
        effort=chat.reasoning_effort if chat.reasoning_effort in get_args(Effort) else None,
    )
    return ChatExchange(
        model=chat.model,
        is_stream=bool(chat.stream),
        has_usage_chunk=bool(chat.stream_options and chat.stream_options.include_usage),
        generate=wire.GenerateRequest(
            id=request_id,
            prompt=prompt,
            sampling=_sampling(chat),
            max_tokens=_max_tokens(chat),
            stop=_stops(chat.stop),
        ),
    )


def _decode(body: bytes) -> ChatBody:
    try:
        return msgspec.json.decode(body, type=ChatBody)
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).partition(" - at `$")
        raise InvalidRequest(f"{sentence}.", param=_field(sentence, path.rstrip("`"))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from error


def _field(sentence: str, path: str) -> str | None:
    """`messages[0].role` of msgspec's `$.messages[0].role`; what is missing stands in the sentence, not in the path."""
    # `[...]` stands for a key of the client's own.
    field = path.removeprefix(".").partition("[...]")[0]
    if "missing required field" in sentence:
        missing = sentence.split("`")[1]
        return f"{field}.{missing}" if field else missing
    return field or None


def _refuse_unsupported(chat: ChatBody) -> None:
    """What would change the answer and is not done is refused; ignoring it silently would be a lie."""
    if chat.n is not None and chat.n > 1:
        raise InvalidRequest("Only one choice (n = 1) is supported.", param="n")
    if chat.functions or chat.function_call is not None:
        raise InvalidRequest("functions and function_call are not supported; use tools.", param="functions")
    if chat.audio is not None or (isinstance(chat.modalities, list) and "audio" in chat.modalities):
        raise InvalidRequest("Audio is not supported.", param="modalities")
    kind = chat.response_format.get("type") if isinstance(chat.response_format, dict) else chat.response_format
    if kind not in (None, "text"):
        raise InvalidRequest(f"response_format {kind!r} is not supported yet.", param="response_format")


def _sampling(chat: ChatBody) -> wire.Sampling:
    if chat.top_logprobs is not None and not chat.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
    return wire.Sampling(
        temperature=chat.temperature,
        top_p=chat.top_p,
        # -1 is how vLLM's clients say off.
        top_k=0 if chat.top_k == -1 else chat.top_k,
        min_p=chat.min_p,
        repetition_penalty=chat.repetition_penalty,
        presence_penalty=chat.presence_penalty,
        frequency_penalty=chat.frequency_penalty,
        logit_bias=_logit_bias(chat.logit_bias or {}),
        seed=chat.seed,
        logprobs=(chat.top_logprobs or 0) if chat.logprobs else None,
    )


def _logit_bias(biases: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in biases.items()}
    except ValueError as error:
        raise InvalidRequest("The keys of logit_bias are token ids.", param="logit_bias") from error


def _max_tokens(chat: ChatBody) -> int | None:
    """The newer name wins. -1 is how LM Studio's clients say no limit."""
    name = "max_tokens" if chat.max_completion_tokens is None else "max_completion_tokens"
    limit: int | None = getattr(chat, name)
    if limit == 0:
        raise InvalidRequest("At least one token must be allowed.", param=name)
    return None if limit == -1 else limit


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > STOPS_LIMIT:
        raise InvalidRequest(f"At most {STOPS_LIMIT} stop sequences are supported.", param="stop")
    return tuple(each for each in stops if each)
