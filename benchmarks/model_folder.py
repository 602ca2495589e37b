"""A folder with the small hybrid of `models.py`, the demo's tokenizer and its template, for a real engine process.

It measures nothing.
"""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from benchmarks import models
from engine.model.demo import MARKER, build_demo


def write_hybrid(folder: Path) -> None:
    """Into `folder`, which is empty. At least 25M parameters in float32; whose vocabulary is the tokenizer's."""
    build_demo(folder)
    (folder / MARKER).unlink()
    file = folder / "config.json"
    demo: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    text_config = models.HYBRID_SMALL_TEXT | {"vocab_size": demo["text_config"]["vocab_size"]}
    config = {
        "model_type": "qwen3_5_moe",
        "architectures": demo["architectures"],
        "eos_token_id": demo["eos_token_id"],
        "tie_word_embeddings": True,
        "text_config": text_config,
    }
    file.write_text(json.dumps(config, indent=2), encoding="utf-8")
    model = models.of_configuration(config, is_quantised=False)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
