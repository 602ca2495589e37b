import shutil
import time

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, save_model

from engine.errors import ModelRefused
from engine.model import loader
from engine.model.preflight import preflight
from tests.unit.engine_model.folders import write_safetensors


def ignore(bytes_read: int, bytes_total: int) -> None:
    pass


def test_it_computes_what_plain_mlx_lm_computes(demo_home):
    folder = demo_home / "models" / "demo"
    tokens = mx.array([[300, 400, 500]])

    loaded = loader.load(folder, ignore)

    plain, _ = load_model(folder)
    assert mx.array_equal(loaded.model(tokens), plain(tokens))
    assert loaded.path == folder
    assert loaded.config["splash_demo"] is True


def test_what_is_loaded_is_what_the_preflight_counted(demo_home):
    folder = demo_home / "models" / "demo"

    assert loader.load(folder, ignore).weights_bytes == preflight(folder).weights_bytes


def test_progress_rises_from_nothing_to_everything(demo_home, monkeypatch):
    monkeypatch.setattr(loader, "_BATCH_BYTES", 1_000_000)
    seen = []

    loaded = loader.load(demo_home / "models" / "demo", lambda done, total: seen.append((done, total)))

    done = [bytes_read for bytes_read, _ in seen]
    assert done[0] == 0
    assert done[-1] == loaded.weights_bytes
    assert done == sorted(done)
    assert len(seen) >= 5
    assert {total for _, total in seen} == {loaded.weights_bytes}


def test_the_time_of_reading_begins_with_the_first_progress_and_ends_with_the_last_byte(demo_home):
    reported_at = []
    began_at = time.monotonic()

    loaded = loader.load(demo_home / "models" / "demo", lambda done, total: reported_at.append(time.monotonic()))

    assert reported_at[-1] - reported_at[0] <= loaded.read_seconds
    assert loaded.read_seconds <= time.monotonic() - began_at


def test_a_folder_whose_name_looks_like_a_pattern_loads_too(demo_home, tmp_path):
    folder = tmp_path / "models [4-bit]" / "demo?"
    shutil.copytree(demo_home / "models" / "demo", folder)

    assert loader.load(folder, ignore).weights_bytes == preflight(folder).weights_bytes


def test_what_the_progress_raises_ends_the_loading(demo_home):
    def stop(bytes_read: int, bytes_total: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        loader.load(demo_home / "models" / "demo", stop)


def test_weights_that_do_not_belong_to_the_config_are_one_sentence(make_folder):
    config = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8}
    config |= {"num_attention_heads": 1, "rms_norm_eps": 1e-6, "vocab_size": 4}
    folder = make_folder(config=config, tensors={"model.embed_tokens.weight": ("F32", [4, 8])})

    with pytest.raises(ModelRefused, match="mlx-lm cannot build the model") as caught:
        loader.load(folder, ignore)

    assert caught.value.reason == "load_failed"
    assert "\n" not in caught.value.message


def test_a_file_that_lost_its_end_after_the_preflight_is_one_sentence(make_folder):
    folder = make_folder()
    write_safetensors(folder / "model.safetensors", {"a": ("F32", [1000])}, missing_bytes=100)

    with pytest.raises(ModelRefused) as caught:
        loader.load(folder, ignore)

    assert caught.value.reason == "load_failed"


@pytest.mark.skipif(mx.default_device() != mx.cpu, reason="a GPU runs these experts")
def test_half_precision_experts_are_refused_on_a_cpu(demo_home, tmp_path):
    demo = demo_home / "models" / "demo"
    model, _ = load_model(demo)
    model.update(dict_of_half(model))
    save_model(tmp_path, model)
    (tmp_path / "config.json").write_bytes((demo / "config.json").read_bytes())

    with pytest.raises(ModelRefused, match="bfloat16: use a quantised version") as caught:
        loader.load(tmp_path, ignore)

    assert caught.value.reason == "wrong_type"


def dict_of_half(model):
    from mlx.utils import tree_unflatten

    return tree_unflatten([(name, value.astype(mx.bfloat16)) for name, value in tree_flatten(model.parameters())])
