"""What is planned for a layer is what mlx-lm's caches really take, for each kind of layer, to the byte."""

from copy import deepcopy
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache
from mlx_lm.utils import load_model

from engine.model.layers import kv_group_size, read_layers
from tests.unit.engine.models import KINDS, SLIDING, SLIDING_WINDOW, VOCABULARY, build

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
LAYER_TYPES = {
    **COMMON,
    "model_type": "llama",
    "rms_norm_eps": 1e-6,
    "sliding_window": SLIDING_WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
WINDOW_PATTERN = {**COMMON, "model_type": "cohere2", "hidden_size": 128, "sliding_window": SLIDING_WINDOW}
MODELS = {**KINDS, "latent": LATENT, "layer types": LAYER_TYPES, "window pattern": WINDOW_PATTERN}


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


def test_the_sizes_of_the_demo_are_those_that_mlx_lm_really_keeps(demo_home):
    model, config = load_model(demo_home / "models" / "demo")

    caches = run(model)

    layers = read_layers(config, element_bytes=4)
    assert [layer.state_bytes + NUM_TOKENS * layer.bytes_per_token for layer in layers] == [
        cache.nbytes for cache in caches
    ]
