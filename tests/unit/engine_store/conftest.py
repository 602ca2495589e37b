"""Tiny models of every kind of cache, and how to compare a restored sequence with one that was never interrupted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from engine.blocks import BLOCK_TOKENS
from engine.layout import arrays_of, new_caches
from engine.prefix.index import Piece
from engine.prefix.store import PrefixStore
from engine.step import prefill_slice
from tests.unit.engine.models import KINDS, OTHER_KINDS, VOCABULARY, build, with_wide_heads

EXTENT_BLOCKS = 3
ROOM = 300


@dataclass(frozen=True)
class Subject:
    kind: str
    model: Any
    kv_bits: int | None

    def caches(self, room_len: int = ROOM) -> list[Any]:
        return new_caches(self.model, room_len=room_len, kv_bits=self.kv_bits)

    def store(self) -> PrefixStore:
        return PrefixStore(self.caches())


def prompt_of(length: int, *, seed: int = 0) -> list[int]:
    return [(i * 37 + i * i * 11 + seed * 101) % VOCABULARY for i in range(length)]


def next_logits(model: Any, caches: Sequence[Any], tokens: Sequence[int]) -> mx.array:
    """Logits (T, V) of `tokens`, appended one by one."""
    rows = []
    for token in tokens:
        rows.append(model(mx.array([[token]]), cache=caches)[0, -1])
        mx.eval(rows[-1], arrays_of([cache.state for cache in caches]))
    return mx.stack(rows)


def greedy(model: Any, caches: Sequence[Any], first: int, num_tokens: int) -> tuple[list[int], mx.array]:
    """The next tokens and the logits (T, V) that they are the argmax of."""
    tokens, rows = [first], []
    for _ in range(num_tokens):
        rows.append(next_logits(model, caches, tokens[-1:])[0])
        tokens.append(int(mx.argmax(rows[-1]).item()))
    return tokens[1:], mx.stack(rows)


def put_blocks(store: PrefixStore, caches: Sequence[Any], start: int, end: int, *, first_id: int = 0) -> list[Piece]:
    """Publish [start, end) in extents of at most 3 blocks; returns the pieces that restore it."""
    pieces = []
    step = EXTENT_BLOCKS * BLOCK_TOKENS
    for extent_id, begin in enumerate(range(start, end, step), first_id):
        stop = min(begin + step, end)
        store.put_extent(extent_id, caches, begin, stop)
        pieces.append(Piece(extent_id, 0, (stop - begin) // BLOCK_TOKENS))
    return pieces


def relative_error(logits: mx.array, plain: mx.array) -> float:
    return float((mx.abs(logits - plain).max() / mx.std(plain)).item())


def prefilled(subject: Subject, tokens: Sequence[int], *, slice_len: int = BLOCK_TOKENS) -> list[Any]:
    caches = subject.caches()
    for start in range(0, len(tokens), slice_len):
        prefill_slice(subject.model, caches, tokens[start : start + slice_len])
    return caches


def quantised(configuration: dict[str, Any]) -> Any:
    model = build(configuration)
    nn.quantize(model, group_size=32, bits=4, class_predicate=lambda _, part: hasattr(part, "to_quantized"))
    return model


SUBJECTS = {
    **{kind: (lambda c=c: build(c), None) for kind, c in {**KINDS, **OTHER_KINDS}.items()},
    "hybrid-q4": (lambda: quantised(KINDS["hybrid"]), None),
    "dense-kv4": (lambda: build(with_wide_heads("dense")), 4),
    "hybrid-kv8": (lambda: build(with_wide_heads("hybrid")), 8),
    "sliding-kv4": (lambda: build(with_wide_heads("sliding")), 4),
}


@pytest.fixture(scope="session", params=list(SUBJECTS))
def subject(request) -> Subject:
    make, kv_bits = SUBJECTS[request.param]
    return Subject(request.param, make(), kv_bits)


@pytest.fixture(scope="session")
def dense() -> Subject:
    return Subject("dense", build(KINDS["dense"]), None)


@pytest.fixture(scope="session")
def sliding() -> Subject:
    return Subject("sliding", build(KINDS["sliding"]), None)
