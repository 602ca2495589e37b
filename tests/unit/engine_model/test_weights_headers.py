import json
from pathlib import Path

import pytest

from engine.errors import ModelRefused
from engine.model.weights import INDEX, read_weights
from tests.unit.engine_model.folders import write_safetensors

TWO_TENSORS = {"a.weight": ("F32", [4, 8]), "b.weight": ("BF16", [16])}


def refusal(folder: Path) -> ModelRefused:
    with pytest.raises(ModelRefused) as caught:
        read_weights(folder)
    return caught.value


def test_the_sizes_and_types_of_all_tensors_are_read(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", TWO_TENSORS)

    weights = read_weights(tmp_path)

    assert [(tensor.name, tensor.size_bytes) for tensor in weights.tensors] == [("a.weight", 128), ("b.weight", 32)]
    assert weights.types == ("BF16", "F32")
    assert weights.loaded_bytes == 160


def test_a_vision_tower_and_draft_layers_do_not_count_as_loaded(tmp_path):
    tensors = {"vision_tower.a.weight": ("F32", [100]), "mtp.b.weight": ("F32", [100]), "c.weight": ("F32", [2])}
    write_safetensors(tmp_path / "model.safetensors", tensors)

    weights = read_weights(tmp_path)

    assert weights.loaded_bytes == 8


@pytest.mark.parametrize(
    ("tensors", "activation_bytes"),
    [
        ({"a.weight": ("F32", [8])}, 4),
        ({"a.weight": ("BF16", [64]), "norm.weight": ("F32", [8])}, 2),
        ({"a.weight": ("U32", [64]), "a.scales": ("F16", [8]), "a.biases": ("F16", [8])}, 2),
    ],
)
def test_activations_have_the_type_of_most_floats(tmp_path, tensors, activation_bytes):
    write_safetensors(tmp_path / "model.safetensors", tensors)

    assert read_weights(tmp_path).activation_bytes == activation_bytes


@pytest.mark.parametrize("missing_bytes", [1, 160])
def test_a_file_that_is_cut_short_is_refused_with_both_sizes(tmp_path, missing_bytes):
    file = tmp_path / "model.safetensors"
    write_safetensors(file, TWO_TENSORS, missing_bytes=missing_bytes)
    have = file.stat().st_size

    error = refusal(tmp_path)

    assert error.reason == "damaged_weights"
    assert error.message == (
        f"{file} is cut short: it has {have:,} of {have + missing_bytes:,} bytes; download or copy it again."
    )


def test_a_file_that_goes_on_behind_its_end_is_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    write_safetensors(file, TWO_TENSORS, missing_bytes=-1)
    have = file.stat().st_size

    error = refusal(tmp_path)

    assert error.reason == "damaged_weights"
    assert f"it has {have:,} bytes where its header describes {have - 1:,}" in error.message


@pytest.mark.parametrize("file", ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
def test_a_shard_that_is_cut_short_is_named_whichever_it_is(tmp_path, file):
    shards = {f"model-0000{i}-of-00002.safetensors": name for i, name in ((1, "a"), (2, "b"))}
    for shard, name in shards.items():
        write_safetensors(tmp_path / shard, {name: ("F32", [100])}, missing_bytes=40 if shard == file else 0)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {name: shard for shard, name in shards.items()}}))

    error = refusal(tmp_path)

    assert error.reason == "damaged_weights"
    assert error.message.startswith(f"{tmp_path / file} is cut short")


def test_files_of_two_versions_of_a_model_are_refused(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", TWO_TENSORS)
    write_safetensors(tmp_path / "model-00001-of-00001.safetensors", {"b.weight": ("F16", [16])})

    error = refusal(tmp_path)

    assert error.reason == "damaged_weights"
    assert "holds b.weight twice, in model-00001-of-00001.safetensors and model.safetensors" in error.message


@pytest.mark.parametrize("offsets", [[4, 12], [-4, 4], [0, 8]], ids=["hole", "before the start", "over another"])
def test_tensors_that_do_not_fill_the_file_one_behind_the_other_are_refused(tmp_path, offsets):
    entries = {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": offsets},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
    }
    header = json.dumps(entries).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(12))

    assert refusal(tmp_path).reason == "damaged_weights"


@pytest.mark.parametrize("content", [b"", b"\x10", b"\x08" + bytes(7) + b"not json", b"\xff" * 64, b"<html>404</html>"])
def test_a_file_that_is_not_safetensors_is_refused(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)

    assert refusal(tmp_path).reason == "damaged_weights"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}, "wrong_type"),
        ({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}, "damaged_weights"),
        ({"dtype": "F32", "shape": [2]}, "damaged_weights"),
        ({"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}, "damaged_weights"),
        ("nonsense", "damaged_weights"),
    ],
)
def test_an_entry_that_mlx_could_not_read_is_refused(tmp_path, entry, reason):
    header = json.dumps({"a.weight": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))

    assert refusal(tmp_path).reason == reason


def test_a_missing_shard_is_named(tmp_path):
    write_safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a": ("F32", [1])})
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": shards}))

    error = refusal(tmp_path)

    assert error.reason == "missing_weights"
    assert error.message == f"{tmp_path} is incomplete: model-00002-of-00002.safetensors of its index is not there."


def test_a_tensor_that_only_the_index_knows_is_named(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", {"a": ("F32", [1])})
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}))

    error = refusal(tmp_path)

    assert error.reason == "missing_weights"
    assert "b among them" in error.message


def test_an_index_that_is_not_one_is_refused(tmp_path):
    (tmp_path / INDEX).write_text('{"weight_map": [')

    assert refusal(tmp_path).reason == "damaged_weights"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("model-q4.gguf", "GGUF"),
        ("pytorch_model.bin", "PyTorch pickles"),
        ("adapters.safetensors", "none is called model*.safetensors"),
        ("README.md", "no weights"),
    ],
)
def test_a_folder_without_weights_says_what_it_has_instead(tmp_path, file, words):
    (tmp_path / file).touch()

    error = refusal(tmp_path)

    assert error.reason == "no_weights"
    assert words in error.message
