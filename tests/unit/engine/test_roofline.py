"""What a decode step reads, counted from the loaded model and compared with what its caches and weights really hold."""

import dataclasses
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from engine import roofline as roofline_room
from engine.layout import held_bytes, new_caches
from engine.memory import Limit, plan
from engine.model.layers import read_layers, text_config
from engine.model.preflight import Preflight
from engine.roofline import roofline
from engine.wire import SlidingWindow
from tests.unit.engine.models import DENSE, HYBRID, SLIDING, SLIDING_WINDOW, SPARSE, VOCABULARY, build, with_wide_heads

BANDWIDTH = 1e11
FLOAT32_BYTES = 4


@pytest.fixture(autouse=True)
def known_bandwidth(monkeypatch):
    monkeypatch.setattr(roofline_room, "measured_bandwidth", lambda *, room_bytes: BANDWIDTH)


def found_of(configuration) -> Preflight:
    return Preflight(
        path=Path("-"),
        name="tiny",
        architecture=configuration["model_type"],
        quantization=None,
        native_context_tokens=32768,
        weights_bytes=0,
        num_tensors=0,
        tensor_types=(),
        activation_bytes=FLOAT32_BYTES,
        hidden_size=64,
        vocabulary_size=VOCABULARY,
        layers=read_layers(configuration, FLOAT32_BYTES),
        generation_config={},
        has_chat_template=True,
        has_vision=False,
        is_demo=True,
    )


def of(configuration, model=None, *, kv_bits=None):
    model = build(configuration) if model is None else model
    found = found_of(configuration)
    return roofline(model, configuration, found, plan(found, Limit(1 << 40), kv_bits=kv_bits))


def bytes_of(module) -> int:
    return sum(parameter.nbytes for _, parameter in tree_flatten(module.parameters()))


def cache_bytes(model, num_tokens, *, kv_bits=None) -> int:
    """What the caches of one sequence hold after a prefill of so many tokens."""
    caches = new_caches(model, room_len=num_tokens, kv_bits=kv_bits)
    mx.eval(model(mx.zeros((1, num_tokens), mx.uint32), cache=caches))
    return held_bytes(caches)


def test_a_dense_model_with_one_table_for_words_and_logits_is_read_whole():
    model = build(DENSE)

    found = of(DENSE, model)

    assert found.shared_bytes == bytes_of(model)
    assert (found.num_experts, found.expert_bytes, found.experts_per_token) == (0, 0, 0)
    assert (found.windows, found.state_bytes) == ((), 0)
    assert found.bandwidth_bytes_per_s == BANDWIDTH


def test_a_table_that_is_only_looked_up_is_not_read_whole():
    untied = DENSE | {"tie_word_embeddings": False}
    model = build(untied)

    found = of(untied, model)

    assert found.shared_bytes == bytes_of(model) - VOCABULARY * 64 * FLOAT32_BYTES


def test_a_quantised_table_that_is_only_looked_up_is_not_read_whole_either():
    untied = DENSE | {"tie_word_embeddings": False}
    model = build(untied)
    nn.quantize(model, group_size=32, bits=4)

    found = of(untied, model)

    assert found.shared_bytes == bytes_of(model) - bytes_of(model.model.embed_tokens)
    assert found.shared_bytes < bytes_of(build(untied)) / 4


def test_what_contexts_take_is_what_the_caches_really_hold():
    model = build(DENSE)

    assert of(DENSE, model).kv_bytes_per_token * 64 == cache_bytes(model, 64)


@pytest.mark.parametrize("kv_bits", [8, 4])
def test_quantised_keys_and_values_are_read_at_their_size(kv_bits):
    wide = with_wide_heads("dense")
    model = build(wide)

    found = of(wide, model, kv_bits=kv_bits)

    assert found.kv_bytes_per_token * 64 == cache_bytes(model, 64, kv_bits=kv_bits)
    assert found.kv_bytes_per_token < of(wide, model).kv_bytes_per_token


@pytest.mark.parametrize("is_quantised", [False, True])
def test_experts_are_counted_apart_and_the_shared_one_with_the_rest(is_quantised):
    model = build(HYBRID)
    if is_quantised:
        nn.quantize(model, group_size=32, bits=4)

    found = of(HYBRID, model)

    experts = [layer.mlp.switch_mlp for layer in model.language_model.model.layers]
    assert (found.num_experts, found.experts_per_token) == (4, 2)
    assert found.expert_bytes * 4 == sum(map(bytes_of, experts))
    assert found.shared_bytes + found.num_experts * found.expert_bytes == bytes_of(model)


def test_fixed_state_is_read_whatever_the_context():
    model = build(HYBRID)
    found = of(HYBRID, model)

    short, long = cache_bytes(model, 32), cache_bytes(model, 64)

    assert long - short == 32 * found.kv_bytes_per_token
    assert short == found.state_bytes + 32 * found.kv_bytes_per_token


def test_a_window_is_read_up_to_its_size_and_is_no_state():
    found = of(SLIDING)

    # Two of the four layers have one: keys and values of one head of 16 numbers each.
    assert found.windows == (SlidingWindow(tokens=SLIDING_WINDOW, bytes_per_token=2 * 2 * 16 * FLOAT32_BYTES),)
    assert found.kv_bytes_per_token == 2 * 2 * 16 * FLOAT32_BYTES
    assert found.state_bytes == 0


def test_nothing_is_said_of_layers_whose_sizes_are_guessed():
    assert of(SPARSE, build(DENSE)) is None


def test_nothing_is_said_of_experts_when_nobody_knows_how_many_a_token_takes():
    unknown = {**HYBRID, "text_config": {k: v for k, v in HYBRID["text_config"].items() if k != "num_experts_per_tok"}}

    assert of(unknown, build(HYBRID)) is None


def test_nothing_is_said_where_there_is_no_room_to_measure(monkeypatch):
    monkeypatch.setattr(roofline_room, "measured_bandwidth", lambda *, room_bytes: None)

    assert of(DENSE) is None


def test_the_layers_of_a_model_that_config_json_does_not_describe_are_guessed_too():
    found = dataclasses.replace(found_of(DENSE), layers=())

    assert text_config(DENSE) is DENSE
    assert roofline(build(DENSE), DENSE, found, plan(found_of(DENSE), Limit(1 << 40))) is None
