"""The chunkwise form computes the rule: every regime, length, mask and head count, against float64 token by token."""

import io
import itertools
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gated_delta import chunkwise as module
from engine.gated_delta.chunkwise import CHUNK_LEN, chunkwise
from engine.gated_delta.rule import loop
from tests.unit.engine_gated_delta.regimes import REGIMES, draw, largest_error, token_by_token

TOLERANCE = 1e-5
"""Float32, inputs rounded before the reference sees them. mlx-lm's loop itself is off by up to 1.4e-6."""


@pytest.mark.parametrize("head_dim", [16, 128])
@pytest.mark.parametrize("regime", REGIMES)
def test_chunks_equal_the_rule_in_every_regime(regime, head_dim):
    inputs = draw(regime, 200, batch=2, key_dim=head_dim, value_dim=head_dim).rounded(mx.float32)

    found = chunkwise(*inputs.arrays())

    assert largest_error(found, inputs) < TOLERANCE


@pytest.mark.parametrize("chunk_len", [8, 32, 64])
@pytest.mark.parametrize("regime", REGIMES)
def test_the_length_of_a_chunk_changes_nothing(regime, chunk_len):
    inputs = draw(regime, 150, key_dim=32, value_dim=24).rounded(mx.float32)

    found = chunkwise(*inputs.arrays(), chunk_len=chunk_len)

    assert largest_error(found, inputs) < TOLERANCE


def test_keys_alike_with_strength_two_are_reflected_back_and_forth_without_harm():
    inputs = draw("correlated", 200)
    inputs = replace(inputs, beta=np.full_like(inputs.beta, 2.0), g=np.ones_like(inputs.g)).rounded(mx.float32)

    found = chunkwise(*inputs.arrays())

    assert largest_error(found, inputs) < 1e-4


def inverse_by_doubling_powers(below):
    """(I - A)(I + A^2)(I + A^4)...: right in exact arithmetic, and not in float32."""
    power, inverse, covered = -below, mx.eye(below.shape[-1]), 1
    while covered < below.shape[-1]:
        inverse = inverse + power @ inverse
        power, covered = power @ power, covered * 2
    return inverse


@pytest.mark.parametrize(("chunk_len", "least_error"), [(16, 3 * TOLERANCE), (64, 1.0)])
def test_control_doubling_powers_is_unsafe_with_keys_alike_and_this_test_can_tell(monkeypatch, chunk_len, least_error):
    monkeypatch.setattr(module, "_inverse_of_unit_lower", inverse_by_doubling_powers)
    inputs = draw("correlated", 200, key_dim=128, value_dim=128).rounded(mx.float32)

    found = chunkwise(*inputs.arrays(), chunk_len=chunk_len)

    assert largest_error(found, inputs) > least_error


def test_control_doubling_powers_hides_with_random_keys(monkeypatch):
    monkeypatch.setattr(module, "_inverse_of_unit_lower", inverse_by_doubling_powers)
    inputs = draw("mild", 200, key_dim=128, value_dim=128).rounded(mx.float32)

    found = chunkwise(*inputs.arrays())

    assert largest_error(found, inputs) < TOLERANCE


def decay_from_sums(decays):
    """From differences of sums of logarithms: right in exact arithmetic; in float32 large sums swallow small parts."""
    sums = mx.cumsum(mx.log(mx.maximum(decays, 1e-37)), axis=-2)
    return mx.tril(mx.exp(mx.minimum(sums - sums.swapaxes(-1, -2), 0.0)))


def test_control_differences_of_sums_lose_what_products_keep_in_the_mixed_regime(monkeypatch):
    monkeypatch.setattr(module, "_decay_between", decay_from_sums)
    inputs = draw("mixed", 200, key_dim=32, value_dim=32).rounded(mx.float32)

    found = chunkwise(*inputs.arrays(), chunk_len=64)

    assert largest_error(found, inputs) > 2 * TOLERANCE


def test_control_differences_of_sums_hide_with_mild_decay(monkeypatch):
    monkeypatch.setattr(module, "_decay_between", decay_from_sums)
    inputs = draw("mild", 200, key_dim=32, value_dim=32).rounded(mx.float32)

    found = chunkwise(*inputs.arrays(), chunk_len=64)

    assert largest_error(found, inputs) < TOLERANCE


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_half_precision_inputs_lose_nothing_but_the_rounding_of_the_outputs(dtype):
    inputs = draw("mild", 100, batch=2).rounded(dtype)

    y, state = chunkwise(*inputs.arrays(dtype))

    expected = token_by_token(inputs)
    assert (y.dtype, state.dtype) == (dtype, mx.float32)
    assert np.abs(np.array(state) - expected.state).max() < TOLERANCE * np.abs(expected.state).max()
    assert np.abs(np.array(y.astype(mx.float32)) - expected.y).max() < mx.finfo(dtype).eps * np.abs(expected.y).max()


def test_masked_tokens_leave_the_state_exactly_as_it_was():
    inputs = draw("strong", 50, batch=2).rounded(mx.float32)
    mask = np.zeros((2, 50), dtype=bool)

    _, state = chunkwise(*inputs.arrays(), mx.array(mask))

    assert mx.array_equal(state, inputs.arrays()[-1])


def test_a_masked_row_equals_the_row_without_its_padding():
    inputs = draw("mixed", 45, batch=2).rounded(mx.float32)
    mask = np.ones((2, 45), dtype=bool)
    mask[0, :20] = mask[1, 30:] = False
    masked = replace(inputs, mask=mask)

    found = chunkwise(*masked.arrays(), mx.array(mask))

    assert largest_error(found, masked) < TOLERANCE


@settings(max_examples=40, deadline=None)
@given(
    regime=st.sampled_from(REGIMES),
    num_tokens=st.integers(1, 70),
    cuts=st.lists(st.integers(1, 69), max_size=3),
    num_key_heads=st.integers(1, 3),
    shared_by=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_a_sequence_cut_anywhere_equals_the_whole(regime, num_tokens, cuts, num_key_heads, shared_by, seed):
    heads = {"num_key_heads": num_key_heads, "num_value_heads": num_key_heads * shared_by}
    inputs = draw(regime, num_tokens, **heads, key_dim=8, value_dim=12, seed=seed).rounded(mx.float32)
    *per_token, state = inputs.arrays()
    edges = sorted({0, num_tokens, *(cut for cut in cuts if cut < num_tokens)})

    outputs = []
    for start, end in itertools.pairwise(edges):
        y, state = chunkwise(*(array[:, start:end] for array in per_token), state)
        outputs.append(y)

    assert largest_error((mx.concatenate(outputs, axis=1), state), inputs) < TOLERANCE


def test_the_graph_of_a_long_prefill_is_a_tenth_of_the_loops_and_so_holds_the_interpreter_lock_a_tenth_as_long():
    inputs = draw("mild", 20 * CHUNK_LEN).arrays()

    in_chunks, by_token = chunkwise(*inputs)[0], loop(*inputs, None)[0]

    assert count_edges(in_chunks) < count_edges(by_token) / 10


def count_edges(array: mx.array) -> int:
    graph = io.StringIO()
    mx.export_to_dot(graph, array)
    return graph.getvalue().count("->")
