"""What /v1/chat/completions and /v1/completions have in common: how the answer is sampled, and where it ends.

It knows neither prompt nor tools, and no default but that of "no limit".
"""

from typing import Annotated, Final

import msgspec

from control.errors import InvalidRequest
from engine import wire

# OpenAI's own limit is 4; other servers allow more, and their clients use it.
STOPS_LIMIT: Final = 16
# It is kept with the request, and shown; the path of a folder may be a name.
MODEL_NAME_LIMIT: Final = 4096
ALTERNATIVES_LIMIT: Final = 20


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class SampledBody(msgspec.Struct, kw_only=True):
    """The fields that both have. Every key that is no field of a body is ignored."""

    model: Annotated[str, msgspec.Meta(max_length=MODEL_NAME_LIMIT)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=-1)] | None = None
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


def limit_of(limit: int | None, field: str) -> int | None:
    """-1 is how LM Studio's clients say no limit. Raises InvalidRequest."""
    if limit == 0:
        raise InvalidRequest("At least one token must be allowed.", param=field)
    return None if limit == -1 else limit


def stops_of(stop: str | list[str] | None) -> tuple[str, ...]:
    """Raises InvalidRequest. Empty ones would end every answer at once, and mean nothing."""
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > STOPS_LIMIT:
        raise InvalidRequest(f"At most {STOPS_LIMIT} stop sequences are supported.", param="stop")
    return tuple(each for each in stops if each)


def _logit_bias(biases: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in biases.items()}
    except ValueError as error:
        raise InvalidRequest("The keys of logit_bias are token ids.", param="logit_bias") from error
