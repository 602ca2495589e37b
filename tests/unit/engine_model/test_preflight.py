import json

import pytest

from engine.errors import ModelNotFound, ModelRefused
from engine.model.preflight import preflight
from tests.unit.engine_model.folders import TINY_CONFIG


def test_the_demo_passes_and_says_what_it_is(demo_home):
    found = preflight(demo_home / "models" / "demo")

    assert found.is_demo
    assert found.name == "splash-demo"
    assert found.architecture == "qwen3_5_moe"
    assert found.quantization is None
    assert found.native_context_tokens == 262144
    assert found.tensor_types == ("F32",)
    assert found.has_chat_template
    assert not found.has_vision
    assert found.generation_config["top_k"] == 20
    assert [layer.kind for layer in found.layers] == ["fixed", "fixed", "fixed", "growing"] * 2


def test_a_plain_model_is_not_the_demo(make_folder):
    folder = make_folder("some-model")

    found = preflight(folder)

    assert (found.name, found.is_demo, found.has_chat_template) == ("some-model", False, False)


def test_a_path_that_is_no_folder_is_not_found(tmp_path):
    with pytest.raises(ModelNotFound, match="is not a folder"):
        preflight(tmp_path / "absent")


def test_a_folder_without_config_is_refused(tmp_path):
    with pytest.raises(ModelRefused, match=r"has no config\.json, so it is not a model folder"):
        preflight(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "", "\x00", '{"hidden_size": 8}', '{"model_type": 3}'])
def test_a_damaged_config_is_refused(make_folder, content):
    folder = make_folder()
    (folder / "config.json").write_text(content)

    with pytest.raises(ModelRefused) as caught:
        preflight(folder)

    assert caught.value.reason == "damaged_config"


@pytest.mark.parametrize("model_type", ["whisper", "base", "cache", "../llama", ""])
def test_a_type_that_mlx_lm_cannot_run_is_refused(make_folder, model_type):
    folder = make_folder(config={**TINY_CONFIG, "model_type": model_type})

    with pytest.raises(ModelRefused) as caught:
        preflight(folder)

    assert caught.value.reason == "unsupported_architecture"


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen3", "gemma3_text", "deepseek_v3", "kimi_k2"])
def test_types_that_mlx_lm_runs_itself_or_under_another_name_pass(make_folder, model_type):
    folder = make_folder(config={**TINY_CONFIG, "model_type": model_type})

    assert preflight(folder).architecture == model_type


def test_a_model_that_wants_to_run_its_own_code_is_refused(make_folder):
    folder = make_folder(config={**TINY_CONFIG, "model_file": "model.py"})

    with pytest.raises(ModelRefused, match="its own code"):
        preflight(folder)


def test_quantised_weights_without_a_word_in_the_config_are_refused(make_folder):
    folder = make_folder(tensors={"a.weight": ("U32", [4, 1]), "a.scales": ("F16", [4, 1])})

    with pytest.raises(ModelRefused, match=r"quantised, but its config\.json does not say how"):
        preflight(folder)


@pytest.mark.parametrize("type_name", ["I64", "I32", "U8", "BOOL", "F8_E4M3"])
def test_integers_and_bytes_where_floats_are_computed_with_are_refused(make_folder, type_name):
    folder = make_folder(tensors={"model.layers.0.mlp.up_proj.weight": (type_name, [4, 8])})

    with pytest.raises(ModelRefused) as caught:
        preflight(folder)

    assert caught.value.reason == "wrong_type"
    assert caught.value.message == (
        f"{folder} holds model.layers.0.mlp.up_proj.weight as {type_name}, where floats are computed with."
    )


def test_float64_is_refused(make_folder):
    folder = make_folder(tensors={"model.norm.weight": ("F64", [8])})

    with pytest.raises(ModelRefused, match="as F64, which MLX does not read"):
        preflight(folder)


@pytest.mark.parametrize(
    "tensors",
    [
        {"model.layers.0.attn.bias": ("BOOL", [1, 1, 4, 4])},
        {"model.embeddings.position_ids": ("I64", [1, 8])},
        {"visual.patch_embed.weight": ("I32", [4])},
    ],
    ids=["mask", "positions", "left out"],
)
def test_integers_that_nothing_is_computed_with_pass(make_folder, tensors):
    assert preflight(make_folder(tensors=tensors)).num_tensors == 1


@pytest.mark.parametrize("method", ["fp8", "compressed-tensors", "awq"])
def test_codes_of_a_method_that_mlx_lm_converts_pass(make_folder, method):
    config = {**TINY_CONFIG, "quantization_config": {"quant_method": method}}

    assert preflight(make_folder(config=config, tensors={"a.weight": ("F8_E4M3", [4, 8])})).num_tensors == 1


@pytest.mark.parametrize(
    ("fields", "factor"),
    [({"weight_block_size": [128, 128]}, 2), ({"weight_block_size": [32, 32], "scale_fmt": "ue8m0"}, 1)],
    ids=["become bfloat16", "stay packed"],
)
def test_weights_in_8_bit_floats_count_as_what_they_become(make_folder, fields, factor):
    config = {**TINY_CONFIG, "quantization_config": {"quant_method": "fp8", **fields}}
    tensors = {"a.weight": ("F8_E4M3", [4, 8]), "b.weight": ("BF16", [4])}

    assert preflight(make_folder(config=config, tensors=tensors)).weights_bytes == factor * 32 + 8


QUANTISED = {**TINY_CONFIG, "quantization": {"bits": 4, "group_size": 64}}
PACKED = {"a.weight": ("U32", [4, 16]), "a.scales": ("F16", [4, 2]), "a.biases": ("F16", [4, 2])}


@pytest.mark.parametrize(
    "tensors",
    [
        PACKED,
        {"a.weight": ("U32", [4, 16]), "a.scales": ("U8", [4, 4])},
        {"a.weight": ("U32", [4, 12]), "a.scales": ("BF16", [4, 2]), "a.biases": ("BF16", [4, 2])},
    ],
    ids=["4 bits", "mxfp4", "3 bits"],
)
def test_weights_packed_by_mlx_pass(make_folder, tensors):
    assert preflight(make_folder(config=QUANTISED, tensors=tensors)).quantization == "4-bit"


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"a.scales": None}, "wrong_type", "as U32, without the scales to unpack it"),
        (
            {"a.scales": ("F16", [5, 2])},
            "damaged_weights",
            r"a\.scales \[5, 2\] does not belong to a\.weight \[4, 16\]",
        ),
        ({"a.scales": ("F16", [4, 3])}, "damaged_weights", "does not belong to"),
        ({"a.scales": ("F16", [4, 0])}, "damaged_weights", "does not belong to"),
        ({"a.biases": None}, "damaged_weights", "no biases that belong to its scales"),
        ({"a.biases": ("F16", [4, 1])}, "damaged_weights", "no biases that belong to its scales"),
        ({"a.scales": ("I32", [4, 2])}, "wrong_type", "as I32, where scales are needed"),
        ({"b.weight": ("I32", [4, 2])}, "wrong_type", r"b\.weight as I32, where floats"),
    ],
)
def test_packed_weights_whose_scales_are_of_another_model_are_refused(make_folder, changes, reason, words):
    tensors = {name: entry for name, entry in {**PACKED, **changes}.items() if entry is not None}
    folder = make_folder(config=QUANTISED, tensors=tensors)

    with pytest.raises(ModelRefused, match=words) as caught:
        preflight(folder)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "entry", [("F32", [255, 64]), ("F32", [256, 32]), ("U32", [255, 8])], ids=["tokens", "width", "packed"]
)
def test_weights_and_config_of_different_models_are_refused(make_folder, entry):
    name = "model.embed_tokens"
    beside = {f"{name}.{part}": ("F32", [entry[1][0], 1]) for part in ("scales", "biases")}
    tensors = {f"{name}.weight": entry} | (beside if entry[0] == "U32" else {})
    folder = make_folder(config=QUANTISED, tensors=tensors)

    with pytest.raises(ModelRefused, match=r"is not one model: its config\.json says 256 tokens of 64 numbers"):
        preflight(folder)


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"quantization": {"bits": 4, "group_size": 64}}, "4-bit"),
        ({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}, "4-bit mxfp4"),
        ({"quantization": {"bits": 4, "group_size": 64, "a": {"bits": 8}, "b": False}}, "4-bit mixed"),
        ({"quantization": {"bits": 4, "group_size": 64, "a": {"bits": 4, "group_size": 32}}}, "4-bit"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq 4-bit"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({}, None),
    ],
)
def test_the_quantisation_is_labelled_for_people(make_folder, fields, label):
    folder = make_folder(config={**TINY_CONFIG, **fields})

    assert preflight(folder).quantization == label


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024}}, 8192),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}}, 32768),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 32768),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}}, 8192),
        ({"text_config": {**TINY_CONFIG, "max_position_embeddings": 4096}, "max_position_embeddings": 1}, 4096),
    ],
)
def test_the_native_context_is_what_the_config_says(make_folder, fields, tokens):
    folder = make_folder(config={**TINY_CONFIG, **fields})

    assert preflight(folder).native_context_tokens == tokens


def test_multimodal_gemma_3_leaves_its_context_to_transformers(make_folder):
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}
    tensors = {"language_model.model.embed_tokens.weight": ("BF16", [8, 2560])}
    folder = make_folder(config={"model_type": "gemma3", "text_config": text}, tensors=tensors)

    found = preflight(folder)

    assert found.native_context_tokens == 131_072
    assert [layer.kind for layer in found.layers[:6]] == ["window"] * 5 + ["growing"]


def test_the_tokenizer_tells_the_context_when_the_config_does_not(make_folder):
    config = {name: value for name, value in TINY_CONFIG.items() if name != "max_position_embeddings"}
    folder = make_folder(config=config)
    tokenizer_config = folder / "tokenizer_config.json"

    tokenizer_config.write_text(json.dumps({"model_max_length": 2048}))
    assert preflight(folder).native_context_tokens == 2048

    tokenizer_config.write_text(json.dumps({"model_max_length": 10**30}))
    with pytest.raises(ModelRefused, match="does not say how long a context"):
        preflight(folder)


def test_a_missing_tokenizer_is_refused(make_folder):
    with pytest.raises(ModelRefused, match="has no tokenizer"):
        preflight(make_folder(tokenizer=None))


@pytest.mark.parametrize("content", ['{"model": {"vocab": {"a": 1,', "{}", '{"model": {}}', "[]"])
def test_a_damaged_tokenizer_is_refused_before_a_running_model_is_let_go(make_folder, content):
    with pytest.raises(ModelRefused, match=r"tokenizer\.json is damaged"):
        preflight(make_folder(tokenizer=content))


@pytest.mark.parametrize("names", [["tokenizer.model"], ["vocab.json", "merges.txt"], ["qwen.tiktoken"]])
def test_other_kinds_of_tokenizers_pass(make_folder, names):
    folder = make_folder(tokenizer=None)
    for name in names:
        (folder / name).write_text("{}")

    assert preflight(folder).num_tensors == 1


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json"])
def test_a_chat_template_is_found_in_a_file_of_its_own(make_folder, name):
    folder = make_folder()
    (folder / name).write_text("{}")

    assert preflight(folder).has_chat_template
