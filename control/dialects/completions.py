"""POST /v1/completions: a raw prompt in, the engine's neutral request out. Format: OpenAI Completions (legacy).

It writes no answer (`completions_answer`), and refuses by name what it cannot do; what has no effect here is ignored.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

import msgspec

from control.dialects.collected import BodyEncoder
from control.dialects.completions_answer import CompletionStreamEncoder, completion_body
from control.dialects.decoding import decoded
from control.dialects.exchange import Encoder, HeartbeatMode
from control.dialects.fields import renamed
from control.dialects.limits import Alternatives
from control.dialects.nesting import endless_refused
from control.dialects.sampling import SampledBody, limit_of, sampling_of, stops_of
from control.errors import InvalidRequest
from engine import wire

PATH: Final = "/v1/completions"
# OpenAI's; clients that leave it out expect an answer as short as that.
DEFAULT_MAX_TOKENS: Final = 16

_TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_RENAMED: Final = ((re.compile(r"prompt\.(text|tokens)\b"), "prompt"), (re.compile(r"sampling\."), ""))


class CompletionsBody(SampledBody, kw_only=True):
    """The fields that have an effect, or are refused. Every other key of the client's is ignored."""

    prompt: str | list[str | _TokenId | list[_TokenId]] | None = None
    logprobs: Alternatives | None = None
    echo: bool | None = None
    best_of: Annotated[int, msgspec.Meta(ge=1)] | None = None
    suffix: str | None = None


@dataclass(frozen=True, slots=True)
class CompletionsExchange:
    """An `Exchange`. `echo` is what stands before the answer's own text."""

    model: str
    is_stream: bool
    has_usage_chunk: bool
    echo: str
    generate: wire.GenerateRequest
    wall: Callable[[], float] = time.time
    dialect: str = "completions"

    def encoder(self, *, heartbeat: HeartbeatMode) -> Encoder:
        answer_id = f"cmpl-{self.generate.id}"
        created = int(self.wall())
        if self.is_stream:
            return CompletionStreamEncoder(answer_id, created, echo=self.echo, has_usage_chunk=self.has_usage_chunk)
        return BodyEncoder(partial(completion_body, answer_id, created, self.echo))

    def field(self, engine_field: str) -> str | None:
        return renamed(engine_field, _RENAMED)


def parse_completions(body: bytes, request_id: str) -> CompletionsExchange:
    """Raises InvalidRequest that names the field. It may take a second for a body made to be slow: not on the loop."""
    with endless_refused():
        asked = decoded(body, CompletionsBody)
    _refuse_unsupported(asked)
    prompt = _prompt(asked.prompt)
    return CompletionsExchange(
        model=asked.model,
        is_stream=bool(asked.stream),
        has_usage_chunk=asked.has_usage_chunk,
        echo=_echo(asked, prompt),
        generate=wire.GenerateRequest(
            id=request_id,
            prompt=prompt,
            sampling=sampling_of(asked, logprobs=asked.logprobs),
            max_tokens=DEFAULT_MAX_TOKENS if asked.max_tokens is None else limit_of(asked.max_tokens, "max_tokens"),
            stop=stops_of([asked.stop] if isinstance(asked.stop, str) else asked.stop, "stop"),
        ),
    )


def _refuse_unsupported(asked: CompletionsBody) -> None:
    """What would change the answer and is not done is refused; ignoring it silently would be a lie."""
    if asked.best_of is not None and asked.best_of > 1:
        raise InvalidRequest("Only one choice (best_of = 1) is supported.", param="best_of")
    if asked.suffix:
        raise InvalidRequest("Text behind the completion is not supported.", param="suffix")


def _prompt(prompt: str | list[str | int | list[int]] | None) -> wire.Prompt:
    """One prompt, as text or token ids, alone or as the only one of a list. Raises InvalidRequest."""
    match prompt:
        case str(text) | [str(text)]:
            return wire.Prompt(text=text)
        case [list(tokens)] if tokens:
            return wire.Prompt(tokens=tuple(tokens))
        case [int(), *_]:
            tokens = [token for token in prompt if isinstance(token, int)]
            if len(tokens) == len(prompt):
                return wire.Prompt(tokens=tuple(tokens))
    raise InvalidRequest("One prompt is expected: a text, or a list of token ids that is not empty.", param="prompt")


def _echo(asked: CompletionsBody, prompt: wire.Prompt) -> str:
    if not asked.echo:
        return ""
    if prompt.text is None:
        raise InvalidRequest("echo needs a prompt that is a text.", param="echo")
    if asked.logprobs is not None:
        raise InvalidRequest("The prompt has no log probabilities: echo and logprobs exclude each other.", param="echo")
    return prompt.text
