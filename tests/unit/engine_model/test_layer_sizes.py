"""What is planned for a layer is what mlx-lm's caches really take, for each kind of layer, to the byte."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import models
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache
from mlx_lm.utils import load_model

from engine.layout import new_caches
from engine.memory import PREFILL_TOKENS, RUNNING_STREAMS, Coefficients, Limit, plan
from engine.memory_text import GIB
from engine.model.architectures import source_file
from engine.model.layers import OWN_ATTENTION, Layer, kv_group_size, kv_obstacle, read_layers
from engine.model.preflight import Preflight
from engine.pace import LARGEST_SLICE_TOKENS
from engine.padded import OneByOneLayout, PaddedLayout
from engine.rows import RowsLayout
from engine.selftest import quantised_kv_test
from engine.step import prefill_slice
from tests.unit.engine.models import KINDS, SLIDING, SLIDING_WINDOW, VOCABULARY, build, with_wide_heads

MLX_LM_MODELS = Path(models.__path__[0])

NUM_TOKENS = 256  # mlx-lm's KV cache grows by that many
COMMON = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
}
LATENT = {
    **COMMON,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 32,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": None,
    "first_k_dense_replace": 4,
}
EXPANDED = {
    **LATENT,
    "model_type": "deepseek_v2",
    "v_head_dim": 32,
    "rope_scaling": {"original_max_position_embeddings": 4096, "factor": 1.0},
}
LAYER_TYPES = {
    **COMMON,
    "model_type": "llama",
    "rms_norm_eps": 1e-6,
    "sliding_window": SLIDING_WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
WINDOW_PATTERN = {**COMMON, "model_type": "cohere2", "hidden_size": 128, "sliding_window": SLIDING_WINDOW}
GPT_OSS = {
    **COMMON,
    "model_type": "gpt_oss",
    "sliding_window": SLIDING_WINDOW,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "rope_scaling": None,
}
GEMMA2 = {**COMMON, "model_type": "gemma2", "rms_norm_eps": 1e-6}
STABLELM = {
    **COMMON,
    "model_type": "stablelm",
    "hidden_size": 128,
    "rope_theta": 10000.0,
    "use_qkv_bias": False,
    "partial_rotary_factor": 0.5,
    "layer_norm_eps": 1e-5,
}
PLAMO = {
    **COMMON,
    "model_type": "plamo",
    "hidden_size": 128,
    "num_key_value_heads": 1,
    "n_shared_head": 4,
    "rms_norm_eps": 1e-6,
}
TAKE_NO_QUANTISED_KV = {
    "gpt_oss": GPT_OSS,
    "gemma2": GEMMA2,
    "stablelm": STABLELM,
    "plamo": PLAMO,
    "latent": LATENT,
}
MODELS = {
    **KINDS,
    "latent": LATENT,
    "expanded": EXPANDED,
    "gpt_oss": GPT_OSS,
    "layer types": LAYER_TYPES,
    "window pattern": WINDOW_PATTERN,
}

TINY = Preflight(
    path=Path("tiny"),
    name="tiny",
    architecture="gemma3_text",
    quantization=None,
    native_context_tokens=32768,
    weights_bytes=0,
    num_tensors=1,
    tensor_types=("F32",),
    activation_bytes=4,
    hidden_size=64,
    vocabulary_size=VOCABULARY,
    layers=(),
    generation_config={},
    has_chat_template=True,
    has_vision=False,
    is_demo=False,
)


def with_head_dim(configuration: dict[str, Any], head_dim: int) -> dict[str, Any]:
    changed = deepcopy(configuration)
    changed.get("text_config", changed)["head_dim"] = head_dim
    return changed


def run(model: Any) -> list[Any]:
    """Caches after NUM_TOKENS, the last of them one by one, as decoding leaves them."""
    caches = make_prompt_cache(model)
    model(mx.ones((1, NUM_TOKENS - 2), dtype=mx.int32), cache=caches)
    for _ in range(2):
        model(mx.ones((1, 1), dtype=mx.int32), cache=caches)
    mx.eval([cache.state for cache in caches])
    return caches


@pytest.mark.parametrize("configuration", MODELS.values(), ids=MODELS)
def test_the_sizes_of_layers_are_those_that_mlx_lm_really_keeps(configuration):
    caches = run(build(configuration))

    layers = read_layers(configuration, element_bytes=4)

    planned = [layer.state_bytes + NUM_TOKENS * layer.bytes_per_token for layer in layers]
    assert planned == [cache.nbytes for cache in caches]


def test_half_precision_halves_all_but_the_recurrent_state():
    model = build(with_head_dim(KINDS["dense"], 64))
    model.set_dtype(mx.bfloat16)

    caches = run(model)

    layers = read_layers(with_head_dim(KINDS["dense"], 64), element_bytes=2)
    assert [NUM_TOKENS * layer.bytes_per_token for layer in layers] == [cache.nbytes for cache in caches]


@pytest.mark.parametrize("kv_bits", [8, 4])
@pytest.mark.parametrize("head_dim", [32, 64, 96])
@pytest.mark.parametrize("kind", KINDS)
def test_quantised_keys_and_values_take_what_is_planned_and_the_rest_stays_plain(kind, head_dim, kv_bits):
    configuration = with_head_dim(KINDS[kind], head_dim)
    caches = [
        cache.to_quantized(group_size=kv_group_size(head_dim), bits=kv_bits) if type(cache) is KVCache else cache
        for cache in run(build(configuration))
    ]

    layers = read_layers(configuration, element_bytes=4)

    planned = [layer.state_bytes + NUM_TOKENS * layer.bytes_per_token_at(kv_bits) for layer in layers]
    assert planned == [cache.nbytes for cache in caches]


@pytest.mark.parametrize("kv_bits", [8, 4])
def test_expanded_keys_and_values_of_different_width_are_quantised_as_planned(kv_bits):
    model = build(EXPANDED)
    caches = new_caches(model, room_len=NUM_TOKENS, kv_bits=kv_bits)

    model(mx.ones((1, NUM_TOKENS), dtype=mx.int32), cache=caches)

    layers = read_layers(EXPANDED, element_bytes=4)
    assert [NUM_TOKENS * layer.bytes_per_token_at(kv_bits) for layer in layers] == [cache.nbytes for cache in caches]


@pytest.mark.parametrize("configuration", TAKE_NO_QUANTISED_KV.values(), ids=TAKE_NO_QUANTISED_KV)
def test_what_the_self_test_would_refuse_to_quantise_is_known_from_the_configuration(configuration):
    test = quantised_kv_test(build(configuration), 8)

    assert not test.passed
    assert kv_obstacle(read_layers(configuration, element_bytes=4)) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_what_passes_the_self_test_is_not_refused(kind):
    assert quantised_kv_test(build(with_wide_heads(kind)), 8).passed
    assert kv_obstacle(read_layers(with_wide_heads(kind), element_bytes=4)) is None


def test_every_architecture_with_attention_sinks_is_known_or_its_layers_are_not():
    sources = (file for file in MLX_LM_MODELS.glob("*.py") if "sinks=" in file.read_text())
    modules = {file.stem for file in sources if source_file(file.stem) is not None}

    # The other two make caches of their own, of which nothing is planned as quantised.
    assert modules - OWN_ATTENTION == {"mimo_v2_flash", "deepseek_v41"}


def test_a_window_holds_a_whole_prefill_chunk_beyond_its_size_until_the_next_step():
    model = build(SLIDING)
    caches = make_prompt_cache(model)
    model(mx.ones((1, SLIDING_WINDOW), dtype=mx.int32), cache=caches)

    model(mx.ones((1, NUM_TOKENS), dtype=mx.int32), cache=caches)

    windows = [layer for layer in read_layers(SLIDING, element_bytes=4) if layer.kind == "window"]
    beyond = [
        cache.nbytes - layer.state_bytes
        for layer, cache in zip(windows, [c for c in caches if type(c) is RotatingKVCache], strict=True)
    ]
    assert beyond == [(NUM_TOKENS - 1) * layer.window_bytes_per_token for layer in windows]


LAYOUTS = {"rows": RowsLayout, "padded": PaddedLayout, "one by one": OneByOneLayout}


def half_way(model: Any, layers: tuple[Layer, ...]) -> list[Any]:
    """Caches of a prompt that stands half-way, two of the largest slices far: what attention would put into them."""
    caches = make_prompt_cache(model)
    for layer, cache in zip(layers, caches, strict=True):
        width = (layer.window_bytes_per_token or layer.bytes_per_token) // 8
        for _ in range(2):
            keys = mx.zeros((1, 1, PREFILL_TOKENS, width))
            mx.eval(cache.update_and_fetch(keys, keys))
    return caches


def window_bytes(caches: list[Any]) -> int:
    return sum(cache.nbytes for cache in caches if type(cache) is RotatingKVCache)


@pytest.mark.parametrize("window", [SLIDING_WINDOW, 1024])
def test_pool_and_runtime_have_room_for_the_windows_of_as_many_prompts_half_way_as_may_run(window):
    configuration = {**SLIDING, "sliding_window": window}
    model = build(configuration)
    found = replace(TINY, layers=read_layers(configuration, element_bytes=4))
    planned, windowless = plan(found, Limit(GIB)), plan(replace(found, layers=()), Limit(GIB))

    held = sum(window_bytes(half_way(model, found.layers)) for _ in range(RUNNING_STREAMS))

    one_token = RUNNING_STREAMS * sum(layer.window_bytes_per_token for layer in found.layers)
    in_pool = RUNNING_STREAMS * Coefficients.of(planned).running_bytes(0)
    assert held + one_token == in_pool + planned.fixed_bytes - windowless.fixed_bytes


@pytest.mark.parametrize("layout_class", LAYOUTS.values(), ids=LAYOUTS)
def test_windows_are_of_their_size_again_after_the_first_decode_step(layout_class):
    model = build(SLIDING)
    state_bytes = sum(layer.state_bytes for layer in read_layers(SLIDING, element_bytes=4))
    layout = layout_class(model, new_caches(model, room_len=1))
    for _ in range(2):
        caches = new_caches(model, room_len=3 * SLIDING_WINDOW)
        prefill_slice(model, caches, [1] * 2 * SLIDING_WINDOW)
        assert window_bytes(caches) == 2 * state_bytes
        layout.join(caches)

    mx.eval(layout.forward(mx.array([1, 1])), layout.pending())

    assert [window_bytes(layout.sequence(row)) for row in range(2)] == [state_bytes] * 2


def test_no_slice_is_longer_than_scratch_memory_is_planned_for():
    assert LARGEST_SLICE_TOKENS == PREFILL_TOKENS


def test_the_sizes_of_the_demo_are_those_that_mlx_lm_really_keeps(demo_home):
    model, config = load_model(demo_home / "models" / "demo")

    caches = run(model)

    layers = read_layers(config, element_bytes=4)
    assert [layer.state_bytes + NUM_TOKENS * layer.bytes_per_token for layer in layers] == [
        cache.nbytes for cache in caches
    ]
