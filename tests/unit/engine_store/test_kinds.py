"""A sliding window, a chunked one and recurrent state that were saved and set again behave as if never touched."""

import copy

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import ArraysCache, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from engine.kinds import is_growing, is_settable, saved_state, set_saved_state
from engine.layout import arrays_of

SLICES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def tokens_from(start, count):
    """Keys (1, 1, T, 2) that say which token they are of."""
    positions = mx.arange(start, start + count, dtype=mx.float32)
    return mx.stack([positions, positions + 0.5], axis=-1)[None, None]


def fed(cache, slices, *, start=0):
    """What attention sees after each slice."""
    seen = []
    for count in slices:
        mask = cache.make_mask(count) if hasattr(cache, "make_mask") else None
        keys, values = cache.update_and_fetch(tokens_from(start, count), -tokens_from(start, count))
        seen.append((mask.tolist() if isinstance(mask, mx.array) else mask, keys.tolist(), values.tolist()))
        if hasattr(cache, "maybe_trim_front"):
            cache.maybe_trim_front()
        start += count
    return seen


@settings(deadline=None, max_examples=150)
@given(max_size=st.integers(3, 10), keep=st.integers(0, 2), before=SLICES, after=SLICES)
def test_a_restored_sliding_window_shows_attention_the_same_as_the_original(max_size, keep, before, after):
    original = RotatingKVCache(max_size=max_size, keep=keep)
    original.step = 4
    fed(original, before)
    saved = saved_state(original)
    restored = RotatingKVCache(max_size=max_size, keep=keep)
    restored.step = 4

    set_saved_state(restored, saved)

    start = sum(before)
    assert restored.offset == original.offset
    assert saved[0].shape[2] <= max_size
    assert fed(restored, after, start=start) == fed(original, after, start=start)


@settings(deadline=None, max_examples=100)
@given(chunk_size=st.integers(3, 10), before=SLICES, after=SLICES)
def test_a_restored_chunked_window_shows_attention_the_same_as_the_original(chunk_size, before, after):
    original = ChunkedKVCache(chunk_size)
    fed(original, before)
    saved = saved_state(original)
    restored = ChunkedKVCache(chunk_size)

    set_saved_state(restored, saved)

    start = sum(before)
    assert restored.offset == original.offset
    assert fed(restored, after, start=start) == fed(original, after, start=start)


def test_writing_into_a_restored_window_does_not_reach_what_was_saved():
    original = RotatingKVCache(max_size=4)
    fed(original, [1, 1, 1, 1])
    saved = saved_state(original)
    mx.eval(saved[:2])
    before = saved[0].tolist()
    restored = RotatingKVCache(max_size=4)
    set_saved_state(restored, saved)

    fed(restored, [1, 1], start=4)
    fed(original, [1, 1, 1], start=4)

    assert saved[0].tolist() == before


def test_recurrent_state_keeps_what_it_has_and_what_it_has_not():
    original = ArraysCache(size=3, left_padding=[2])
    original[0] = mx.ones((1, 3, 4))
    original[2] = mx.arange(6, dtype=mx.bfloat16).reshape(1, 6)
    original.lengths = mx.array([5])
    saved = saved_state(original)
    restored = ArraysCache(size=3)

    set_saved_state(restored, saved)
    original[0] = mx.zeros((1, 3, 4))

    assert restored[0].tolist() == mx.ones((1, 3, 4)).tolist()
    assert restored[1] is None
    assert restored[2].dtype == mx.bfloat16
    assert (restored.left_padding.tolist(), restored.lengths.tolist()) == ([2], [5])
    assert [array.shape for array in arrays_of(saved)] == [(1, 3, 4), (1, 6), (1,), (1,)]


def test_an_empty_window_is_saved_as_empty():
    restored = RotatingKVCache(max_size=4)

    set_saved_state(restored, saved_state(RotatingKVCache(max_size=4)))

    assert restored.empty()


@pytest.mark.parametrize(
    ("cache", "grows"),
    [
        (KVCache(), True),
        (QuantizedKVCache(), True),
        (RotatingKVCache(max_size=4), False),
        (ArraysCache(size=1), False),
        (ChunkedKVCache(4), False),
    ],
)
def test_only_what_has_one_place_a_token_grows(cache, grows):
    assert is_growing(cache) == grows
    assert is_settable(cache)


def test_a_state_that_can_only_be_read_is_not_settable():
    class ReadOnly:
        @property
        def state(self):
            return ()

    assert not is_settable(ReadOnly())
    assert not is_settable(copy)
