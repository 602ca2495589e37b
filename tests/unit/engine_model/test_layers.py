import pytest

from engine.model.layers import Layer, UnknownSize, kv_group_size, kv_obstacle, read_layers

ATTENTION = {"num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
# Keys and values, heads, 64 / 4 wide, 2 bytes. No group of mx.quantize divides a head of 16.
NARROW = "heads of 16 numbers can't be cut into groups of 32"
GROWING = Layer("growing", bytes_per_token=2 * 2 * 16 * 2, element_bytes=2, obstacle=NARROW)


def test_every_layer_of_a_dense_model_grows():
    layers = read_layers({"model_type": "qwen3", **ATTENTION}, element_bytes=2)

    assert layers == (GROWING,) * 6


def test_an_explicit_head_width_wins():
    layers = read_layers({"model_type": "qwen3", **ATTENTION, "head_dim": 128}, element_bytes=2)

    assert layers[0].bytes_per_token == 2 * 2 * 128 * 2


def test_a_window_of_gemma_is_a_state_of_fixed_size():
    config = {"model_type": "gemma3_text", **ATTENTION, "head_dim": 16, "sliding_window": 100}
    config["sliding_window_pattern"] = 3

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

    assert {(layer.kind, layer.bytes_per_token, layer.group_size) for layer in layers} == {("growing", 576 * 2, None)}


def test_a_nested_language_model_is_the_one_that_counts():
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **ATTENTION, "sliding_window": 8}}

    kinds = [layer.kind for layer in read_layers(config, element_bytes=2)]

    assert kinds == ["window"] * 5 + ["growing"]


def test_a_wrapper_that_makes_no_cache_has_no_windows_whatever_the_model_inside_has():
    types = ["sliding_attention", "full_attention"] * 3
    inner = {"model_type": "ministral3", **ATTENTION, "sliding_window": 8, "layer_types": types}

    layers = read_layers({"model_type": "mistral3", "text_config": inner}, element_bytes=2)

    assert [layer.kind for layer in read_layers(inner, element_bytes=2)] == ["window", "growing"] * 3
    assert layers == (GROWING,) * 6


def test_what_a_config_leaves_out_is_what_mlx_lm_takes_instead():
    """The config.json of gemma-3-4b-it says no more of its language model."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}

    layers = read_layers({"model_type": "gemma3", "text_config": text}, element_bytes=2)

    assert sum(layer.bytes_per_token for layer in layers) == 5 * 2 * 4 * 256 * 2
    assert sum(layer.state_bytes for layer in layers) == 29 * 1024 * 2 * 4 * 256 * 2


def test_without_layer_types_every_fourth_layer_of_olmo3_grows():
    config = {"model_type": "olmo3", **ATTENTION, "sliding_window": 8}

    kinds = [layer.kind for layer in read_layers(config, element_bytes=2)]

    assert kinds == ["window", "window", "window", "growing", "window", "window"]


WIDE = {**ATTENTION, "head_dim": 64}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "gpt_oss", **WIDE, "sliding_window": 8}, "mlx-lm's attention for this architecture"),
        ({"model_type": "gemma2", **WIDE}, "mlx-lm's attention for this architecture"),
        ({"model_type": "deepseek_v3", **WIDE, "kv_lora_rank": 64, "qk_rope_head_dim": 64}, "one compressed vector"),
        ({"model_type": "qwen3", **WIDE, "head_dim": 80}, "heads of 80 numbers can't be cut"),
        ({"model_type": "mimo_v2_flash", **WIDE}, "does not know the layers"),
        ({"model_type": "gemma3_text", **WIDE, "num_hidden_layers": 5}, "none of its layers keeps the whole context"),
    ],
    ids=lambda each: each["model_type"] if isinstance(each, dict) else "",
)
def test_where_no_keys_and_values_can_be_quantised_it_is_said_why(config, why):
    assert why in kv_obstacle(read_layers(config, element_bytes=2))


@pytest.mark.parametrize("model_type", ["qwen3", "qwen3_next", "gemma3_text", "cohere2"])
def test_where_some_can_nothing_stands_against_it(model_type):
    linear = dict.fromkeys(
        ["linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads", "linear_num_value_heads"], 8
    )
    config = {"model_type": model_type, **WIDE, **linear, "linear_conv_kernel_dim": 4}

    assert kv_obstacle(read_layers(config, element_bytes=2)) is None


@pytest.mark.parametrize("model_type", ["mamba2", "falcon_h1", "longcat_flash"])
def test_layers_of_a_family_that_is_not_known_are_counted_high(model_type):
    config = {"model_type": model_type, **ATTENTION, "head_dim": 16, "kv_lora_rank": 8}

    layers = read_layers(config, element_bytes=2)

    assert layers == (Layer("unknown", bytes_per_token=2 * 4 * 16 * 2),) * 6


def test_a_config_without_sizes_is_an_error_and_not_a_guess():
    with pytest.raises(UnknownSize, match="num_attention_heads"):
        read_layers({"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64}, element_bytes=2)


@pytest.mark.parametrize(("head_dim", "size"), [(256, 64), (128, 64), (64, 64), (96, 32), (32, 32), (80, None)])
def test_the_largest_group_that_divides_a_head_is_taken(head_dim, size):
    assert kv_group_size(head_dim) == size


def test_one_group_must_divide_keys_and_values():
    assert kv_group_size(192, 128) == 64
    assert kv_group_size(96, 64) == 32
    assert kv_group_size(64, 40) is None


def test_what_cannot_be_quantised_keeps_its_size():
    window = Layer("window", state_bytes=100, window_bytes_per_token=10)

    assert GROWING.bytes_per_token_at(4) == GROWING.bytes_per_token
    assert window.bytes_per_token_at(8) == 0
