"""Batched decoding equals plain single-stream decoding, for every layout, while streams join and leave."""

from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.cache import ChunkedKVCache, QuantizedKVCache, make_prompt_cache

from engine.layout import LayoutUnsupported, group_size_of, held_bytes, new_caches
from engine.padded import OneByOneLayout, PaddedLayout
from engine.rows import AttentionRows, Positions, RowsLayout, by_rows, replace_attention
from engine.step import prefill_slice
from tests.unit.engine.conftest import NUM_TOKENS, PROMPTS
from tests.unit.engine.models import DENSE, KINDS, build, with_wide_heads

LAYOUTS = [RowsLayout, PaddedLayout, OneByOneLayout]
# Logits of these models have a standard deviation of 0.1 to 2. Reference BLAS gives 0.0; others up to 5e-5.
TOLERANCE = 2e-4


def decode_together(layout, model, plain, *, joins_at, leaves_after):
    """Feed every stream the tokens of its plain decoding; yields (stream, step of the stream, logits (V,))."""
    present: list[int] = []
    done = [0] * len(plain)
    clock = 0
    while present or any(at >= clock for at in joins_at):
        for stream, at in enumerate(joins_at):
            if at == clock:
                caches = new_caches(model, room_len=len(plain[stream].prompt) + NUM_TOKENS)
                prefill_slice(model, caches, plain[stream].prompt[:-1])
                layout.join(caches)
                present.append(stream)
        if present:
            inputs = [(plain[s].prompt[-1:] + plain[s].tokens)[done[s]] for s in present]
            logits = layout.forward(mx.array(inputs))
            mx.eval(logits, layout.pending())
            for row, stream in enumerate(present):
                yield stream, done[stream], logits[row]
                done[stream] += 1
            for row in reversed(range(len(present))):
                if done[present[row]] == leaves_after[present[row]]:
                    layout.leave(row)
                    present.pop(row)
        clock += 1


@pytest.mark.parametrize("make_layout", LAYOUTS)
def test_streams_that_join_and_leave_at_different_times_compute_what_they_compute_alone(tiny, make_layout):
    layout = make_layout(tiny.model, make_prompt_cache(tiny.model))
    leaves_after = (NUM_TOKENS, 30, NUM_TOKENS, NUM_TOKENS)

    worst, num_compared, num_clear = 0.0, 0, 0
    for stream, step, logits in decode_together(
        layout, tiny.model, tiny.plain, joins_at=(0, 5, 7, 40), leaves_after=leaves_after
    ):
        plain = tiny.plain[stream].logits[step]
        worst = max(worst, float(mx.abs(logits - plain).max()))
        num_compared += 1
        second, first = mx.sort(plain)[-2:].tolist()
        if first - second > 2 * TOLERANCE:
            num_clear += 1
            assert int(mx.argmax(logits)) == tiny.plain[stream].tokens[step]

    assert worst <= TOLERANCE
    assert num_compared == sum(leaves_after)
    assert num_clear > 0.9 * num_compared
    assert len(layout) == 0
    assert layout.kv_bytes == 0


def test_different_prompts_differ_by_far_more_than_the_tolerance(tiny):
    first, second = tiny.plain[0].logits, tiny.plain[1].logits

    assert float(mx.abs(first - second).max(axis=-1).min()) > 100 * TOLERANCE


@pytest.mark.parametrize("make_layout", LAYOUTS)
def test_a_layout_can_be_filled_again_after_it_was_empty(tiny, make_layout):
    layout = make_layout(tiny.model, make_prompt_cache(tiny.model))
    for _ in decode_together(layout, tiny.model, tiny.plain[:2], joins_at=(0, 0), leaves_after=(2, 3)):
        pass

    again = list(decode_together(layout, tiny.model, tiny.plain[2:], joins_at=(0, 1), leaves_after=(3, 3)))

    for stream, step, logits in again:
        assert float(mx.abs(logits - tiny.plain[2 + stream].logits[step]).max()) <= TOLERANCE


def test_joining_and_leaving_rows_copies_no_context_of_the_others(tiny):
    layout = RowsLayout(tiny.model, make_prompt_cache(tiny.model))
    sequences = []
    for plain in tiny.plain[:2]:
        caches = new_caches(tiny.model, room_len=len(plain.prompt) + NUM_TOKENS)
        prefill_slice(tiny.model, caches, plain.prompt[:-1])
        sequences.append(caches)
    layout.join(sequences[0])
    growing = [cache for cache in sequences[0] if hasattr(cache, "keys")]
    before = [id(cache.keys) for cache in growing]

    layout.join(sequences[1])
    layout.leave(1)

    assert [id(cache.keys) for cache in growing] == before


def test_a_short_row_beside_a_long_one_holds_only_its_own_tokens(dense):
    layout = RowsLayout(dense, make_prompt_cache(dense))
    alone = []
    for length in (10, 1200):
        caches = new_caches(dense, room_len=length + 16)
        prefill_slice(dense, caches, [1] * (length - 1))
        alone.append(sum(cache.nbytes for cache in caches))
        layout.join(caches)

    mx.eval(layout.forward(mx.array([1, 1])))

    assert layout.kv_bytes == sum(alone)
    assert alone[0] * 40 < alone[1]


def test_prefilling_in_slices_never_copies_the_row(dense):
    caches = new_caches(dense, room_len=1100)
    prefill_slice(dense, caches, [1] * 64)
    room = caches[0].keys.shape[2]

    prefill_slice(dense, caches, [1] * 935)

    assert room == 1100
    assert caches[0].keys.shape[2] == room


@pytest.mark.parametrize("make_layout", LAYOUTS)
def test_a_row_that_is_full_grows_to_the_room_that_it_is_given_and_no_further(dense, make_layout):
    layout = make_layout(dense, make_prompt_cache(dense))
    caches = new_caches(dense, room_len=101)
    prefill_slice(dense, caches, [1] * 99)
    layout.join(caches)

    rooms = []
    for room_len in (101, 101, 104, 104, 104, 150):
        layout.make_room(0, room_len)
        mx.eval(layout.forward(mx.array([1])))
        rooms.append(caches[0].keys.shape[2])

    assert rooms == [101, 101, 104, 104, 104, 150]


def test_a_padded_row_that_is_left_alone_grows_to_the_room_that_it_is_given(dense):
    layout = PaddedLayout(dense, make_prompt_cache(dense))
    for length in (20, 99):
        caches = new_caches(dense, room_len=length + 1)
        prefill_slice(dense, caches, [1] * length)
        layout.join(caches)
    mx.eval(layout.forward(mx.array([1, 1])))
    layout.leave(0)
    both_rows = layout.kv_bytes

    layout.make_room(0, 130)
    mx.eval(layout.forward(mx.array([1])))

    assert layout.kv_bytes == both_rows * 130 // 100


def test_padded_rows_grow_together_to_the_longest_room_that_they_are_given(dense):
    """Each by mlx-lm's own 256 tokens would be more than the memory pool has counted."""
    layout = PaddedLayout(dense, make_prompt_cache(dense))
    for length in (90, 100):
        caches = new_caches(dense, room_len=length)
        prefill_slice(dense, caches, [1] * length)
        bytes_per_token = held_bytes(caches) // length
        layout.join(caches)
    held_tokens = []

    for _ in range(31):
        layout.make_room(0, 105)
        layout.make_room(1, 130)
        mx.eval(layout.forward(mx.array([1, 1])), layout.pending())
        held_tokens.append(layout.kv_bytes // bytes_per_token)

    assert held_tokens == [2 * 130] * 30 + [2 * 131]


def test_padding_a_row_that_joins_takes_little_more_than_a_layer_at_a_time():
    """All layers at once would be another batch beside the one that the memory pool has counted."""
    num_layers, length = 12, 4000
    model = build({**DENSE, "num_hidden_layers": num_layers})
    layout = PaddedLayout(model, make_prompt_cache(model))
    waiting = [new_caches(model, room_len=length + 1) for _ in range(2)]
    filled = mx.zeros((1, 2, length, 16))
    mx.eval([cache.update_and_fetch(filled, filled) for caches in waiting for cache in caches])
    both_bytes = sum(map(held_bytes, waiting))
    mx.clear_cache()
    others_bytes = mx.get_active_memory() - both_bytes

    layout.join(waiting.pop())
    mx.reset_peak_memory()
    layout.join(waiting.pop())
    layout.make_room(1, length + 1)
    mx.eval(layout.forward(mx.array([1, 1])), layout.pending())

    assert mx.get_peak_memory() - others_bytes - both_bytes < 1.5 * both_bytes / num_layers


def test_quantised_rows_grow_to_the_room_that_they_are_given():
    model = build(with_wide_heads("dense"))
    layout = RowsLayout(model, new_caches(model, room_len=1, kv_bits=4))
    caches = new_caches(model, room_len=101, kv_bits=4)
    prefill_slice(model, caches, [1] * 99)
    layout.join(caches)

    rooms = []
    for room_len in (101, 101, 104, 150):
        layout.make_room(0, room_len)
        mx.eval(layout.forward(mx.array([1])))
        rooms.append({array.shape[2] for array in caches[0].keys + caches[0].values})

    assert rooms == [{101}, {101}, {104}, {104}]
    assert layout.kv_bytes == held_bytes(caches) == 3 * 2 * 2 * 104 * (64 // 2 + 2 * 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make_layout", [RowsLayout, OneByOneLayout])
def test_streams_with_quantised_kv_compute_in_a_batch_what_they_compute_alone(kind, make_layout):
    model = build(with_wide_heads(kind))
    layout = make_layout(model, new_caches(model, room_len=1, kv_bits=8))
    alone = []
    for prompt in PROMPTS:
        for joins in (True, False):
            caches = new_caches(model, room_len=len(prompt) + 8, kv_bits=8)
            prefill_slice(model, caches, prompt[:-1])
            if joins:
                layout.join(caches)
            else:
                alone.append(caches)

    worst = 0.0
    for step in range(8):
        tokens = mx.array([prompt[-1 - step] for prompt in PROMPTS[1:]])
        tokens = mx.concatenate([mx.array([7 + step]), tokens])
        logits = layout.forward(tokens)
        plain = [model(token[None, None], cache=caches)[0, -1] for token, caches in zip(tokens, alone, strict=True)]
        worst = max(worst, float(mx.abs(logits - mx.stack(plain)).max()))

    assert worst <= TOLERANCE


def test_wide_heads_are_quantised_in_larger_groups_than_narrow_ones():
    assert [group_size_of(128, 128), group_size_of(96, 64), group_size_of(32, 32)] == [64, 32, 32]
    with pytest.raises(LayoutUnsupported, match="heads of 80"):
        group_size_of(80, 80)


def test_attention_that_is_not_given_rows_is_the_models_own():
    calls = []

    def attention(queries, keys, values, cache, scale, mask, sinks=None):
        calls.append((keys, scale, mask, sinks))
        return queries

    queries, keys = mx.zeros((2, 1, 1, 4)), mx.ones((2, 1, 3, 4))
    result = by_rows(attention)(queries, keys, keys, cache=None, scale=0.5, mask="causal", sinks=7)

    assert result is queries
    assert calls == [(keys, 0.5, "causal", 7)]


def test_replacing_attention_twice_wraps_it_once(dense):
    first = replace_attention(dense)
    import mlx_lm.models.llama as module

    attention = module.scaled_dot_product_attention
    second = replace_attention(dense)

    assert first == second == ("mlx_lm.models.llama",)
    assert module.scaled_dot_product_attention is attention


def test_masks_are_kept_apart_when_a_row_needs_one():
    rows = AttentionRows(Positions())
    rows.rows = [SimpleNamespace(make_mask=lambda n, **_: None), SimpleNamespace(make_mask=lambda n, **_: "its own")]

    assert tuple(rows.make_mask(1)) == (None, "its own")


def test_rows_refuse_a_cache_that_they_do_not_know(dense):
    with pytest.raises(LayoutUnsupported, match="QuantizedKVCache"):
        RowsLayout(dense, [QuantizedKVCache()])


def test_rows_refuse_a_model_that_does_attention_its_own_way():
    class OwnWay(nn.Module):
        pass

    with pytest.raises(LayoutUnsupported, match="scaled_dot_product_attention"):
        RowsLayout(OwnWay(), new_caches(SimpleNamespace(layers=[None]), room_len=2))


def test_padding_refuses_a_cache_that_cannot_be_merged(dense):
    with pytest.raises(LayoutUnsupported, match="ChunkedKVCache"):
        PaddedLayout(dense, [ChunkedKVCache(16)])
