"""The text side of the demo model, made once: a real byte-level tokenizer with a real template, markers and parser."""

import pytest

from engine.model.demo import build_demo
from engine.text.tokenizer import load_text_model


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "demo"
    folder.mkdir()
    build_demo(folder)
    return load_text_model(folder)
