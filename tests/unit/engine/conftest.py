"""Tiny models, built once a session, and what plain mlx-lm says about them."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import pytest

from engine.layout import new_caches
from engine.step import prefill_slice
from tests.unit.engine.models import KINDS, VOCABULARY, build

NUM_TOKENS = 64
# Mixed lengths; the longest is past the sliding window, the second gets past it while it decodes.
PROMPTS = tuple(tuple((i * 37 + length * 11) % VOCABULARY for i in range(length)) for length in (3, 20, 45, 90))


@dataclass(frozen=True)
class Plain:
    """One prompt, decoded greedily by plain mlx-lm: token `i` is the argmax of `logits[i]` (V,)."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logits: mx.array


@dataclass(frozen=True)
class Tiny:
    kind: str
    model: Any
    plain: tuple[Plain, ...]


def decode_plainly(model: Any, prompt: tuple[int, ...]) -> Plain:
    caches = new_caches(model, room_len=len(prompt) + NUM_TOKENS)
    prefill_slice(model, caches, prompt[:-1])
    tokens, logits = [prompt[-1]], []
    for _ in range(NUM_TOKENS):
        logits.append(model(mx.array([[tokens[-1]]]), cache=caches)[0, -1])
        tokens.append(int(mx.argmax(logits[-1]).item()))
    return Plain(prompt, tuple(tokens[1:]), mx.stack(logits))


@pytest.fixture(scope="session", params=list(KINDS))
def tiny(request) -> Tiny:
    model = build(KINDS[request.param])
    return Tiny(request.param, model, tuple(decode_plainly(model, prompt) for prompt in PROMPTS))


@pytest.fixture(scope="session")
def dense() -> Any:
    return build(KINDS["dense"])
