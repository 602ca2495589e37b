"""Checks what a /generate asks for beside its prompt, and names the field that is wrong.

It changes nothing: clamping and defaults are `engine.door.intake`'s and `engine.text.defaults`'s.
"""

import re
from typing import Final

from engine.errors import InvalidRequest
from engine.text.defaults import LARGEST_REPETITION_PENALTY, SMALLEST_REPETITION_PENALTY
from engine.wire import GenerateRequest, Grammar, Sampling

MOST_STOPS: Final = 16
MOST_STOP_CHARS: Final = 1024
MOST_LOGPROBS: Final = 20
LARGEST_BIAS: Final = 100.0
LARGEST_PENALTY: Final = 2.0
LARGEST_TOP_K: Final = 2**31 - 1  # what a device integer holds; more than any vocabulary
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def check_request(request: GenerateRequest, vocabulary_size: int) -> None:
    """Raises InvalidRequest."""
    check_id(request.id)
    if request.max_tokens is not None and request.max_tokens < 1:
        raise InvalidRequest("max_tokens must be at least 1", param="max_tokens")
    if len(request.stop) > MOST_STOPS:
        raise InvalidRequest(f"at most {MOST_STOPS} stop strings", param="stop")
    for position, stop in enumerate(request.stop):
        if not stop:
            raise InvalidRequest("a stop string must not be empty", param=f"stop[{position}]")
        if len(stop) > MOST_STOP_CHARS:
            raise InvalidRequest(f"a stop string has at most {MOST_STOP_CHARS} characters", param=f"stop[{position}]")
    _check_sampling(request.sampling, vocabulary_size)
    if request.grammar is not None:
        _check_grammar(request.grammar)


def check_id(request_id: str) -> None:
    """An id goes into a path and into the log."""
    if not _ID.fullmatch(request_id):
        raise InvalidRequest("an id is 1 to 128 letters, digits and . _ : -", param="id")


def _check_sampling(sampling: Sampling, vocabulary_size: int) -> None:
    _check_range("temperature", sampling.temperature, at_least=0)
    _check_range("top_p", sampling.top_p, above=0, at_most=1)
    _check_range("top_k", sampling.top_k, at_least=0, at_most=LARGEST_TOP_K)
    _check_range("min_p", sampling.min_p, at_least=0, at_most=1)
    _check_range(
        "repetition_penalty",
        sampling.repetition_penalty,
        at_least=SMALLEST_REPETITION_PENALTY,
        at_most=LARGEST_REPETITION_PENALTY,
    )
    _check_range("presence_penalty", sampling.presence_penalty, at_least=-LARGEST_PENALTY, at_most=LARGEST_PENALTY)
    _check_range("frequency_penalty", sampling.frequency_penalty, at_least=-LARGEST_PENALTY, at_most=LARGEST_PENALTY)
    _check_range("logprobs", sampling.logprobs, at_least=0, at_most=MOST_LOGPROBS)
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < vocabulary_size:
            raise InvalidRequest(f"token {token} is not in the model's vocabulary", param="sampling.logit_bias")
        _check_range("logit_bias", bias, at_least=-LARGEST_BIAS, at_most=LARGEST_BIAS)


def _check_grammar(grammar: Grammar) -> None:
    """What it says is for `engine.text.grammar` to find out."""
    if grammar.kind == "json_schema" and grammar.schema is None:
        raise InvalidRequest("json_schema needs a schema", param="grammar.schema")
    if grammar.kind == "regex" and not grammar.pattern:
        raise InvalidRequest("regex needs a pattern", param="grammar.pattern")


def _check_range(
    name: str,
    value: float | None,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> None:
    if value is None:
        return
    wanted = [
        f"{relation} {limit:g}"
        for relation, limit, holds in (
            ("above", above, above is None or value > above),
            ("at least", at_least, at_least is None or value >= at_least),
            ("at most", at_most, at_most is None or value <= at_most),
        )
        if not holds
    ]
    if wanted:
        raise InvalidRequest(f"{name} must be {wanted[0]}", param=f"sampling.{name}")
