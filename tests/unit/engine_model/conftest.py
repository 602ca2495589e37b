"""What the tests of models share: the demo, made once, and small folders in the layout of a model."""

import json
import struct
from pathlib import Path

import pytest

from engine.model.demo import ensure_demo

TINY_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 8192,
}


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SPLASH_HOME that has the demo model in models/demo."""
    home = tmp_path_factory.mktemp("home")
    ensure_demo(home)
    return home


@pytest.fixture
def make_folder(tmp_path):
    """Makes a folder that passes the preflight; what is given as None is left out."""

    def make(name="tiny", *, config=None, tensors=None, tokenizer="{}"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(TINY_CONFIG if config is None else config))
        if tokenizer is not None:
            (folder / "tokenizer.json").write_text(tokenizer)
        write_safetensors(folder / "model.safetensors", tensors or {"model.embed_tokens.weight": ("F32", [4, 8])})
        return folder

    return make


def write_safetensors(file: Path, tensors: dict[str, tuple[str, list[int]]], *, missing_bytes: int = 0) -> None:
    """Write tensors of zeros. Format: safetensors. The last `missing_bytes` are left out, as a broken download does."""
    sizes = {"BOOL": 1, "U8": 1, "F16": 2, "BF16": 2, "F32": 4, "U32": 4, "F64": 8}
    header, end = {}, 0
    for name, (type_name, shape) in tensors.items():
        size = sizes[type_name]
        for length in shape:
            size *= length
        header[name] = {"dtype": type_name, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(end - missing_bytes))
