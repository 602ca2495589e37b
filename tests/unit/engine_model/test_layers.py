import pytest

from engine.model.layers import Layer, UnknownSize, kv_group_size, read_layers

ATTENTION = {"num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
# Keys and values, heads, 64 / 4 wide, 2 bytes. No group of mx.quantize divides a head of 16.
GROWING = Layer("growing", bytes_per_token=2 * 2 * 16 * 2, element_bytes=2)


def test_every_layer_of_a_dense_model_grows():
    layers = read_layers({"model_type": "qwen3", **ATTENTION}, element_bytes=2)

    assert layers == (GROWING,) * 6


def test_an_explicit_head_width_wins():
    layers = read_layers({"model_type": "qwen3", **ATTENTION, "head_dim": 128}, element_bytes=2)

    assert layers[0].bytes_per_token == 2 * 2 * 128 * 2


def test_a_window_of_gemma_is_a_state_of_fixed_size():
    config = {"model_type": "gemma3_text", **ATTENTION, "sliding_window": 100, "sliding_window_pattern": 3}

    layers = read_layers(config, element_bytes=2)

    bytes_per_token = GROWING.bytes_per_token
    window = Layer("window", state_bytes=100 * bytes_per_token, window_bytes_per_token=bytes_per_token)
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


@pytest.mark.parametrize(("head_dim", "size"), [(256, 64), (128, 64), (64, 64), (96, 32), (32, 32), (80, None)])
def test_the_largest_group_that_divides_a_head_is_taken(head_dim, size):
    assert kv_group_size(head_dim) == size


def test_what_cannot_be_quantised_keeps_its_size():
    window = Layer("window", state_bytes=100, window_bytes_per_token=10)

    assert GROWING.bytes_per_token_at(4) == GROWING.bytes_per_token
    assert window.bytes_per_token_at(8) == 0
