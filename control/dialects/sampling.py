"""How an answer is sampled, how much the model thinks, and where the answer ends.

It knows neither prompt nor tools, and no default but that of "no limit".
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from control.dialects.limits import (
    STOP_CHARS_LIMIT,
    STOPS_LIMIT,
    TOKENS_LIMIT,
    TOP_K_LIMIT,
    ModelName,
    TokenLimit,
    check_number,
)
from control.errors import InvalidRequest
from engine import wire

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_EFFORTS: Final = get_args(Effort)


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class SampledBody(msgspec.Struct, kw_only=True):
    """What /v1/chat/completions and /v1/completions both have. Every key that is no field of a body is ignored."""

    model: ModelName
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenLimit | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=TOP_K_LIMIT)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=2)] | None = None
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[float, msgspec.Meta(ge=-100, le=100)]] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @property
    def has_usage_chunk(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


def sampling_of(body: SampledBody, *, logprobs: int | None) -> wire.Sampling:
    """Raises InvalidRequest that names the field."""
    if body.n is not None and body.n > 1:
        raise InvalidRequest("Only one choice (n = 1) is supported.", param="n")
    return wire.Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        # -1 is how vLLM's clients say off.
        top_k=0 if body.top_k == -1 else body.top_k,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=_logit_bias(body.logit_bias or {}),
        seed=body.seed,
        logprobs=logprobs,
    )


def effort_of(effort: Any) -> Effort | None:
    """None for a word that means nothing here, and for none: the model does what is usual for it."""
    return effort if effort in _EFFORTS else None


def limit_of(limit: int | None, field: str) -> int | None:
    """Of an answer's tokens. Raises InvalidRequest."""
    if limit == 0:
        raise InvalidRequest("At least one token must be allowed.", param=field)
    return None if limit is None or limit == -1 else min(limit, TOKENS_LIMIT)


def stops_of(stops: Sequence[str] | None, field: str) -> tuple[str, ...]:
    """Raises InvalidRequest. Empty ones would end every answer at once, and mean nothing."""
    known = tuple(each for each in stops or () if each)
    check_number(len(known), STOPS_LIMIT, "stop sequences", field)
    if any(len(each) > STOP_CHARS_LIMIT for each in known):
        raise InvalidRequest(f"A stop sequence has at most {STOP_CHARS_LIMIT} characters.", param=field)
    return known


def _logit_bias(biases: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in biases.items()}
    except ValueError as error:
        raise InvalidRequest("The keys of logit_bias are token ids.", param="logit_bias") from error
