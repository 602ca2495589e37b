"""A fast rule is put into a loaded model only when it proved equal there, and says which one serves."""

import mlx.core as mx
import pytest
from mlx_lm.models import gated_delta as mlx_lm_gated_delta
from mlx_lm.models import kimi_linear, olmo_hybrid, qwen3_5, qwen3_next

from engine.gated_delta import chunkwise as chunkwise_module
from engine.gated_delta import install
from engine.gated_delta.install import install_gated_delta, uninstall_gated_delta
from engine.gated_delta.rule import loop
from engine.layout import arrays_of, new_caches
from tests.unit.engine.models import DENSE, HYBRID, SLIDING, VOCABULARY, build
from tests.unit.engine_gated_delta.models import KIMI, OLMO
from tests.unit.engine_gated_delta.test_chunkwise import inverse_by_doubling_powers

PROMPT_LEN = 150
LOGITS_TOLERANCE = 1e-4

PLAIN = mlx_lm_gated_delta.gated_delta_update


@pytest.fixture(autouse=True)
def plain_afterwards():
    yield
    for module in (kimi_linear, olmo_hybrid, qwen3_5, qwen3_next):
        module.gated_delta_update = PLAIN


@pytest.fixture
def hybrid():
    return build(HYBRID)


def prefill(model, slices, *, batch=1):
    """Logits (B, T, V) and the states of all layers after the prompt, taken in slices of the given lengths."""
    tokens = mx.array([[(i * 37 + row * 11) % VOCABULARY for i in range(PROMPT_LEN)] for row in range(batch)])
    caches = new_caches(model, room_len=PROMPT_LEN)
    logits, start = [], 0
    for length in slices:
        logits.append(model(tokens[:, start : start + length], cache=caches))
        start += length
    states = [array for cache in caches for array in arrays_of(cache.state)]
    mx.eval(logits, states)
    return mx.concatenate(logits, axis=1), states


@pytest.mark.parametrize("slices", [(150,), (37, 64, 49), (1, 7, 8, 9, 15, 16, 17, 31, 33, 13), (75, 1, 74)])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_whole_hybrid_model_prefills_in_chunks_as_it_does_by_the_loop(hybrid, slices, batch):
    plain_logits, plain_states = prefill(hybrid, (PROMPT_LEN,), batch=batch)

    test = install_gated_delta(hybrid)
    logits, states = prefill(hybrid, slices, batch=batch)

    assert test.passed
    assert mx.abs(logits - plain_logits).max().item() < LOGITS_TOLERANCE
    for state, plain_state in zip(states, plain_states, strict=True):
        assert mx.abs(state - plain_state).max().item() < LOGITS_TOLERANCE


def test_rows_padded_on_the_right_prefill_in_chunks_as_they_do_by_the_loop(hybrid):
    def prefill_padded():
        caches = new_caches(hybrid, room_len=40)
        for cache in caches:
            if hasattr(cache, "prepare"):
                cache.prepare(lengths=[40, 25])
        tokens = mx.array([[(i * 37 + row * 11) % VOCABULARY for i in range(40)] for row in range(2)])
        recurrent = [cache for cache in caches if hasattr(cache, "lengths")]
        logits = hybrid(tokens, cache=caches)
        return [logits[0], logits[1, :25], *(array for cache in recurrent for array in arrays_of(cache.state))]

    plain = prefill_padded()

    install_gated_delta(hybrid)
    chunked = prefill_padded()

    for found, expected in zip(chunked, plain, strict=True):
        assert mx.abs(found - expected).max().item() < LOGITS_TOLERANCE


def test_control_a_state_that_is_forgotten_between_slices_is_far_off(hybrid):
    plain_logits, _ = prefill(hybrid, (PROMPT_LEN,))

    def forgetful(q, k, v, g, beta, state, mask):
        return chunkwise_module.chunkwise(q, k, v, g, beta, mx.zeros_like(state), mask)

    install.put_in_place(hybrid, install.with_rule(PLAIN, forgetful))
    logits, _ = prefill(hybrid, (75, 75))

    assert mx.abs(logits - plain_logits).max().item() > 100 * LOGITS_TOLERANCE


def test_what_serves_is_said_and_is_in_place(hybrid):
    test = install_gated_delta(hybrid)

    assert (test.name, test.passed) == ("gated_delta", True)
    assert test.error <= test.tolerance
    assert test.detail.startswith("the chunkwise form serves 2/4 heads of 16x16 float32")
    assert qwen3_5.gated_delta_update is not PLAIN
    assert mlx_lm_gated_delta.gated_delta_update is PLAIN


def test_installing_again_does_not_pile_up(hybrid):
    install_gated_delta(hybrid)

    install_gated_delta(hybrid)

    assert qwen3_5.gated_delta_update.__wrapped__ is PLAIN


def test_a_half_precision_model_is_judged_on_its_own_numbers():
    model = build({"model_type": "qwen3_5", "text_config": HYBRID["text_config"] | {"num_experts": 0}})
    model.set_dtype(mx.bfloat16)

    test = install_gated_delta(model)

    assert test.passed
    assert "bfloat16" in test.detail
    assert test.error <= test.tolerance


@pytest.mark.parametrize("configuration", [DENSE, SLIDING])
def test_a_model_without_such_layers_is_left_alone(configuration):
    assert install_gated_delta(build(configuration)) is None


def test_an_unsafe_inversion_fails_the_self_test_and_the_loop_stays(hybrid, monkeypatch):
    monkeypatch.setattr(chunkwise_module, "_inverse_of_unit_lower", inverse_by_doubling_powers)

    test = install_gated_delta(hybrid)

    assert not test.passed
    assert test.error > test.tolerance
    assert test.detail.startswith("mlx-lm's loop serves: the chunkwise form is off by")
    assert qwen3_5.gated_delta_update is PLAIN


def altered(change):
    def rule(q, k, v, g, beta, state, mask):
        return change(*loop(q, k, v, g, beta, state, mask))

    return rule


@pytest.mark.parametrize(
    "broken",
    [
        altered(lambda y, state: (y, state * (1 + 1e-4))),
        altered(lambda y, state: (y * (1 + 1e-4), state)),
        altered(lambda y, state: (y * float("nan"), state)),
        lambda q, k, v, g, beta, state, mask: loop(q, k, v, g, beta, state, None),
        lambda q, k, v, g, beta, state, mask: loop(q, k, v, g, beta, mx.zeros_like(state), mask),
        lambda q, k, v, g, beta, state, mask: loop(q, k, v, mx.ones_like(g), beta, state, mask),
    ],
    ids=["state off", "outputs off", "not finite", "mask ignored", "state ignored", "decay ignored"],
)
def test_a_broken_rule_fails_the_self_test_and_the_loop_stays(hybrid, monkeypatch, broken):
    monkeypatch.setattr(install, "rule_of_the_device", lambda: ("the broken rule", broken, lambda form: True))

    test = install_gated_delta(hybrid)

    assert not test.passed
    assert qwen3_5.gated_delta_update is PLAIN


def test_a_kernel_that_does_not_compile_is_one_sentence_and_the_loop_stays(hybrid, monkeypatch):
    def refused():
        raise RuntimeError("Failed to compile kernel: line 3\nline 4\nline 5")

    monkeypatch.setattr(install, "rule_of_the_device", refused)

    test = install_gated_delta(hybrid)

    assert not test.passed
    assert test.detail == "mlx-lm's loop serves: RuntimeError: Failed to compile kernel: line 3"
    assert qwen3_5.gated_delta_update is PLAIN


def test_metal_keeps_the_kernel_of_mlx_lm(hybrid, monkeypatch):
    monkeypatch.setattr(install, "is_metal", lambda: True)

    test = install_gated_delta(hybrid)

    assert (test.passed, test.detail) == (True, "mlx-lm's Metal kernel serves")
    assert qwen3_5.gated_delta_update is PLAIN


def test_strengths_up_to_two_are_served_in_chunks():
    model = build(OLMO)
    plain_logits, _ = prefill(model, (PROMPT_LEN,))

    test = install_gated_delta(model)
    logits, _ = prefill(model, (70, 80))

    assert test.passed
    assert test.detail.startswith("the chunkwise form serves")
    assert olmo_hybrid.gated_delta_update is not PLAIN
    assert mx.abs(logits - plain_logits).max().item() < LOGITS_TOLERANCE


def test_a_decay_per_key_dimension_stays_with_the_loop_on_a_cpu_and_that_is_said():
    model = build(KIMI)

    test = install_gated_delta(model)

    assert (test.passed, test.error) == (True, None)
    assert test.detail.startswith("mlx-lm's loop serves 4/4 heads of 16x16 float32, decay per key dimension")
    assert kimi_linear.gated_delta_update is PLAIN


def test_a_model_in_training_keeps_the_loop_with_its_gradients(hybrid, monkeypatch):
    served = []

    def counted(*arguments):
        served.append(arguments)
        return loop(*arguments)

    install.put_in_place(hybrid, install.with_rule(PLAIN, counted))
    hybrid.train()

    hybrid(mx.array([[1, 2, 3]]))

    assert not served


def test_removing_it_gives_every_module_the_function_of_mlx_lm_back(hybrid):
    install_gated_delta(hybrid)

    uninstall_gated_delta(hybrid)

    assert qwen3_5.gated_delta_update is PLAIN
    assert qwen3_next.gated_delta_update is PLAIN
