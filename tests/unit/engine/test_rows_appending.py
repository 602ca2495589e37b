"""A row takes a token as mlx-lm's own cache does; rows of one length stay what they are alone, whoever leaves."""

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import KVCache, RotatingKVCache

from engine.layout import QuantizedRow, grow_to, new_caches
from engine.rows import AttentionRows, Positions, RowsLayout
from engine.step import prefill_slice
from tests.unit.engine.models import KINDS, VOCABULARY, build, with_wide_heads

TOLERANCE = 2e-4  # as in test_layouts
NUM_HEADS, HEAD_DIM = 2, 32
EQUAL_LEN = 45  # past the sliding window
ROOM_SLACK = 4  # rows are full after some steps, and grow


def random_kv(num_rows, num_tokens, seed):
    shape = (num_rows, NUM_HEADS, num_tokens, HEAD_DIM)
    keys, values = mx.random.split(mx.random.key(seed))
    return mx.random.normal(shape, key=keys), mx.random.normal(shape, key=values)


def a_cache(kind, length, room_len):
    cache = {"plain": KVCache, "quantised": lambda: QuantizedRow(8), "sliding": lambda: RotatingKVCache(16)}[kind]()
    if kind != "sliding":
        cache.step = room_len
    if length:
        cache.update_and_fetch(*random_kv(1, length, seed=length))
    return cache


def same(one, other):
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one.shape == other.shape and bool(mx.array_equal(one, other)) if isinstance(one, mx.array) else one == other


@st.composite
def a_row(draw):
    kind = draw(st.sampled_from(["plain", "plain", "quantised", "sliding"]))
    length = draw(st.integers(0, 24))
    return kind, length, max(1, length + draw(st.integers(0, 3)))


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(a_row(), min_size=2, max_size=4), num_tokens=st.integers(1, 2), room_len=st.integers(1, 30))
def test_rows_take_tokens_exactly_as_their_own_caches_do_whether_empty_full_or_neither(rows, num_tokens, room_len):
    together = AttentionRows(Positions())
    together.rows = [a_cache(*row) for row in rows]
    alone = [a_cache(*row) for row in rows]

    for step in range(4):
        grow_to(together.rows, room_len)
        grow_to(alone, room_len)
        keys, values = random_kv(len(rows), num_tokens, seed=1000 + step)
        all_keys, all_values = together.update_and_fetch(keys, values)
        for index, cache in enumerate(alone):
            fetched = cache.update_and_fetch(keys[index : index + 1], values[index : index + 1])
            assert same((all_keys[index], all_values[index]), fetched)

    for row, cache in zip(together.rows, alone, strict=True):
        assert same(row.state, cache.state)


class Pair:
    """One sequence twice: in the layout, and alone."""

    def __init__(self, model, prompt, kv_bits):
        self.room_len = len(prompt) + ROOM_SLACK
        self.caches, self.alone = (new_caches(model, room_len=self.room_len, kv_bits=kv_bits) for _ in range(2))
        self.next_token = prompt[-1]
        for caches in (self.caches, self.alone):
            prefill_slice(model, caches, prompt[:-1])


def a_prompt(length, seed):
    return tuple((index * 37 + seed * 101 + 1) % VOCABULARY for index in range(length))


def step_together(model, layout, present):
    """One token for every row; a full one grows. Returns how far the logits are from those of the streams alone."""
    for row, pair in enumerate(present):
        pair.room_len += 1
        layout.make_room(row, pair.room_len)
    logits = layout.forward(mx.array([pair.next_token for pair in present]))
    mx.eval(logits, layout.pending())
    plain = mx.stack([model(mx.array([[pair.next_token]]), cache=pair.alone)[0, -1] for pair in present])
    for pair, token in zip(present, mx.argmax(plain, axis=-1).tolist(), strict=True):
        pair.next_token = token
    return float(mx.abs(logits - plain).max())


def held(cache):
    """Everything that the cache computes with; the room that it has not used yet is left out."""
    if hasattr(cache, "keys_and_values"):
        return mx.concatenate([part.astype(mx.float32).flatten() for part in flat(cache.keys_and_values())])
    return mx.concatenate([part.flatten() for part in cache.cache])


def flat(parts):
    return [part for each in parts for part in flat(each)] if isinstance(parts, (list, tuple)) else [parts]


CASES = [*[(kind, None) for kind in KINDS], *[(kind, 8) for kind in KINDS]]


@pytest.mark.parametrize(("kind", "kv_bits"), CASES)
@pytest.mark.parametrize("leaves", [0, 1, 3])
def test_rows_of_one_length_compute_what_they_compute_alone_when_one_leaves_and_another_joins(kind, kv_bits, leaves):
    model = build(KINDS[kind] if kv_bits is None else with_wide_heads(kind))
    layout = RowsLayout(model, new_caches(model, room_len=1, kv_bits=kv_bits))
    present = [Pair(model, a_prompt(EQUAL_LEN, seed), kv_bits) for seed in range(4)]
    for pair in present:
        layout.join(pair.caches)

    worst = max(step_together(model, layout, present) for _ in range(6))
    layout.leave(leaves)
    present.pop(leaves)
    worst = max(worst, *(step_together(model, layout, present) for _ in range(3)))
    present.append(Pair(model, a_prompt(7, seed=9), kv_bits))
    layout.join(present[-1].caches)
    worst = max(worst, *(step_together(model, layout, present) for _ in range(6)))

    assert worst <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_among_rows_of_one_length_is_the_sequence_that_it_is_alone(kind):
    model = build(KINDS[kind])
    layout = RowsLayout(model, new_caches(model, room_len=1))
    present = [Pair(model, a_prompt(EQUAL_LEN, seed), None) for seed in range(3)]
    for pair in present:
        layout.join(pair.caches)
    for _ in range(6):
        step_together(model, layout, present)

    for row, pair in enumerate(present):
        for cache, alone in zip(layout.sequence(row), pair.alone, strict=True):
            assert held(cache).shape == held(alone).shape
            assert float(mx.abs(held(cache) - held(alone)).max()) <= TOLERANCE


def test_what_a_forward_leaves_pending_is_the_fixed_state_and_nothing_else():
    pending = {}
    for kind in KINDS:
        model = build(KINDS[kind])
        layout = RowsLayout(model, new_caches(model, room_len=1))
        for seed in range(2):
            layout.join(Pair(model, a_prompt(5, seed), None).caches)
        layout.forward(mx.array([1, 2]))
        pending[kind] = [array.shape[0] for array in layout.pending()]

    assert pending == {"dense": [], "hybrid": [2] * 4, "sliding": []}
