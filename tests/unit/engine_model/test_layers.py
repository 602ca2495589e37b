import pytest

from engine.model.layers import Layer, UnknownSize, read_layers

ATTENTION = {"num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
GROWING = Layer("growing", bytes_per_token=2 * 2 * 16 * 2)  # keys and values, heads, 64 / 4 wide, 2 bytes


def test_every_layer_of_a_dense_model_grows():
    layers = read_layers({"model_type": "qwen3", **ATTENTION}, element_bytes=2)

    assert layers == (GROWING,) * 6


def test_an_explicit_head_width_wins():
    layers = read_layers({"model_type": "qwen3", **ATTENTION, "head_dim": 128}, element_bytes=2)

    assert layers[0].bytes_per_token == 2 * 2 * 128 * 2


def test_a_window_of_gemma_is_a_state_of_fixed_size():
    config = {"model_type": "gemma3_text", **ATTENTION, "sliding_window": 100, "sliding_window_pattern": 3}

    layers = read_layers(config, element_bytes=2)

    window = Layer("window", state_bytes=100 * GROWING.bytes_per_token)
    assert layers == (window, window, GROWING) * 2


def test_layer_types_name_the_windows():
    types = ["sliding_attention", "full_attention"] * 3
    config = {"model_type": "gpt_oss", **ATTENTION, "sliding_window": 100, "layer_types": types}

    kinds = [layer.kind for layer in read_layers(config, element_bytes=2)]

    assert kinds == ["window", "growing"] * 3


def test_a_llama_without_layer_types_only_grows():
    layers = read_layers({"model_type": "llama", **ATTENTION, "sliding_window": 100}, element_bytes=2)

    assert layers == (GROWING,) * 6


def test_a_latent_cache_is_one_vector_for_all_heads():
    config = {"model_type": "deepseek_v3", **ATTENTION, "kv_lora_rank": 512, "qk_rope_head_dim": 64}

    layers = read_layers(config, element_bytes=2)

    assert layers == (Layer("growing", bytes_per_token=576 * 2),) * 6


def test_a_nested_language_model_is_the_one_that_counts():
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **ATTENTION, "sliding_window": 8}}

    kinds = [layer.kind for layer in read_layers(config, element_bytes=2)]

    assert kinds == ["window"] * 5 + ["growing"]


@pytest.mark.parametrize("model_type", ["mamba2", "falcon_h1", "minicpm3"])
def test_layers_of_a_family_that_is_not_known_are_counted_high(model_type):
    layers = read_layers({"model_type": model_type, **ATTENTION, "kv_lora_rank": 8}, element_bytes=2)

    assert layers == (Layer("unknown", bytes_per_token=2 * 4 * 16 * 2),) * 6


def test_a_config_without_sizes_is_an_error_and_not_a_guess():
    with pytest.raises(UnknownSize, match="num_attention_heads"):
        read_layers({"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64}, element_bytes=2)


def test_the_sizes_of_the_demo_are_those_that_mlx_lm_really_keeps(demo_home):
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    model, config = load_model(demo_home / "models" / "demo")
    caches = make_prompt_cache(model)
    num_tokens = 256  # mlx-lm's KV cache grows by that many
    mx.eval(model(mx.ones((1, num_tokens), dtype=mx.int32), cache=caches))
    real = [cache.nbytes for cache in caches]

    layers = read_layers(config, element_bytes=4)

    assert [layer.state_bytes + num_tokens * layer.bytes_per_token for layer in layers] == real
