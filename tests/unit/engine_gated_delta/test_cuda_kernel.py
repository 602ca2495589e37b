"""The CUDA kernel's source computes the rule: here on emulated threads, on a GPU by benchmarks/gated_delta.py."""

import shutil

import mlx.core as mx
import pytest

from engine.gated_delta.cuda import CudaRule, Variant, tile_len
from tests.unit.engine_gated_delta.emulated_cuda import EmulatedKernel
from tests.unit.engine_gated_delta.regimes import REGIMES, draw, largest_error

TOLERANCE = 1e-5

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to emulate the kernel")


@pytest.fixture(scope="module")
def four_lanes(tmp_path_factory) -> EmulatedKernel:
    return EmulatedKernel.compiled(tmp_path_factory.mktemp("kernel"), key_dim=32, lanes=4, tile_len=16)


@needs_compiler
@pytest.mark.parametrize("regime", REGIMES)
def test_the_kernel_equals_the_rule_in_every_regime(four_lanes, regime):
    inputs = draw(regime, 41, batch=2, num_key_heads=1, num_value_heads=2, key_dim=32, value_dim=40)

    found = four_lanes(inputs)

    assert largest_error(found, inputs) < TOLERANCE


@needs_compiler
@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 32])
def test_the_kernel_equals_the_rule_whatever_the_last_tile_lacks(four_lanes, num_tokens):
    inputs = draw("mild", num_tokens, key_dim=32, value_dim=32)

    found = four_lanes(inputs)

    assert largest_error(found, inputs) < TOLERANCE


@needs_compiler
@pytest.mark.parametrize("lanes", [8, 16])
def test_the_kernel_equals_the_rule_with_other_numbers_of_lanes(tmp_path, lanes):
    kernel = EmulatedKernel.compiled(tmp_path, key_dim=64, lanes=lanes, tile_len=16)
    inputs = draw("mixed", 37, key_dim=64, value_dim=24)

    found = kernel(inputs)

    assert largest_error(found, inputs) < TOLERANCE


@needs_compiler
@pytest.mark.parametrize("regime", ["strong", "correlated"])
def test_the_kernel_takes_a_decay_per_key_dimension(tmp_path, regime):
    kernel = EmulatedKernel.compiled(tmp_path, key_dim=32, lanes=4, tile_len=8, is_decay_per_key=True)
    inputs = draw(regime, 21, num_key_heads=4, key_dim=32, value_dim=32, is_decay_per_key=True)

    found = kernel(inputs)

    assert largest_error(found, inputs) < TOLERANCE


@pytest.mark.parametrize(
    ("key_dim", "is_decay_per_key"), [(16, False), (128, False), (128, True), (192, True), (256, True)]
)
def test_a_tile_fits_into_shared_memory_and_is_shared_out_evenly(key_dim, is_decay_per_key):
    length = tile_len(key_dim, is_decay_per_key=is_decay_per_key, at_most=16)

    assert length >= 4
    assert length * key_dim % 128 == 0
    assert length * key_dim * 4 * (3 if is_decay_per_key else 2) <= 48 * 1024 - 8 * 1024


class RecordedKernel:
    """Stands where MLX's compiled kernel would, and keeps how it was called."""

    def __init__(self):
        self.calls = []

    def __call__(self, **call):
        self.calls.append(call)
        return [
            mx.zeros(shape, dtype) for shape, dtype in zip(call["output_shapes"], call["output_dtypes"], strict=True)
        ]


@pytest.fixture
def recorded(monkeypatch) -> RecordedKernel:
    kernel = RecordedKernel()
    monkeypatch.setattr(mx.fast, "cuda_kernel", lambda **made_with: kernel)
    return kernel


def test_inputs_of_other_types_get_a_kernel_of_another_name(recorded):
    rule = CudaRule(Variant())
    q, k, v, g, beta, state = draw("mild", 3, key_dim=32).arrays(mx.bfloat16)

    rule(q, k, v, g, beta, state)
    rule(q, k, v, g, beta.astype(mx.float32), state)

    names = [tuple(str(value) for _, value in call["template"]) for call in recorded.calls]
    assert names[0] != names[1]


def test_a_grid_covers_every_row_of_every_head(recorded):
    rule = CudaRule(Variant(lanes=8))
    inputs = draw("mild", 3, batch=3, num_key_heads=2, num_value_heads=6, key_dim=32, value_dim=40)

    rule(*inputs.arrays())

    (call,) = recorded.calls
    assert call["grid"] == (3 * 128, 3 * 6, 1)
    assert call["output_shapes"] == [(3, 3, 6, 40), (3, 6, 40, 32)]


@pytest.mark.parametrize("key_dim", [24, 288])
def test_shapes_that_the_kernel_does_not_take_go_through_the_loop(recorded, key_dim):
    inputs = draw("mild", 5, key_dim=key_dim)

    found = CudaRule()(*inputs.arrays())

    assert not recorded.calls
    assert largest_error(found, inputs) < TOLERANCE


def test_masked_tokens_reach_the_kernel_without_decay_and_strength(recorded):
    q, k, v, g, beta, state = draw("strong", 4, key_dim=32).arrays()
    mask = mx.array([[True, False, True, False]])

    CudaRule()(q, k, v, g, beta, state, mask)

    (call,) = recorded.calls
    assert mx.array_equal(call["inputs"][3], mx.where(mask[..., None], g, 1.0))
    assert mx.array_equal(call["inputs"][4], mx.where(mask[..., None], beta, 0.0))
