"""What the tests of models share: the demo, made once, and small folders in the layout of a model."""

import json
from pathlib import Path

import pytest

from engine.model.demo import ensure_demo
from tests.unit.engine_model.folders import TINY_CONFIG, TINY_TOKENIZER, write_safetensors


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SPLASH_HOME that has the demo model in models/demo."""
    home = tmp_path_factory.mktemp("home")
    ensure_demo(home)
    return home


@pytest.fixture
def make_folder(tmp_path):
    """Makes a folder that passes the preflight; what is given as None is left out."""

    def make(name="tiny", *, config=None, tensors=None, tokenizer=TINY_TOKENIZER):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(TINY_CONFIG if config is None else config))
        if tokenizer is not None:
            (folder / "tokenizer.json").write_text(tokenizer)
        write_safetensors(folder / "model.safetensors", tensors or {"model.embed_tokens.weight": ("F32", [256, 64])})
        return folder

    return make
