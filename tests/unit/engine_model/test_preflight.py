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
