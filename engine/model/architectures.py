"""Which of mlx-lm's modules runs a model, found by reading mlx-lm's sources.

It imports nothing of mlx-lm: that would import MLX, which a preflight does without.
"""

import ast
import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MODEL_TABLE = "MODEL_REMAPPING"
_ARCHITECTURE_TABLE = "MODEL_ARCHITECTURE_REMAPPING"


def module_name(config: Mapping[str, Any]) -> str | None:
    """Return the name of the module in `mlx_lm.models` for a config.json; None when mlx-lm has none.

    Source: mlx-lm 0.32.2, `utils._get_classes`.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return None
    tables = _remapping()
    architectures = config.get("architectures")
    for architecture in architectures if isinstance(architectures, list) else (architectures,):
        if not isinstance(architecture, str):
            continue
        if renamed := tables[_ARCHITECTURE_TABLE].get((model_type, architecture)):
            model_type = renamed
            break
    else:
        model_type = tables[_MODEL_TABLE].get(model_type, model_type)
    return model_type if source_file(model_type) is not None else None


def source_file(module: str) -> Path | None:
    """Return the file of a module in `mlx_lm.models`, if it is there and defines a model."""
    if not _MODULE.fullmatch(module):
        return None
    path = _package_folder() / "models" / f"{module}.py"
    return path if path.is_file() and "class ModelArgs" in path.read_text(encoding="utf-8") else None


def makes_its_own_cache(module: str) -> bool:
    """Whether the module decides what each layer keeps; otherwise mlx-lm gives every layer a growing KV cache."""
    path = source_file(module)
    return path is None or "def make_cache" in path.read_text(encoding="utf-8")


@cache
def default_sizes(module: str) -> Mapping[str, int]:
    """Return the whole numbers that mlx-lm takes where a config.json is silent: defaults of the module's arguments."""
    path = source_file(module)
    body = [] if path is None else ast.parse(path.read_text(encoding="utf-8")).body
    arguments = (node for node in body if isinstance(node, ast.ClassDef) and node.name == "ModelArgs")
    return {
        field.target.id: field.value.value
        for node in arguments
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(field.value, ast.Constant)
        and type(field.value.value) is int
    }


@cache
def _package_folder() -> Path:
    spec = importlib.util.find_spec("mlx_lm")  # a top-level name is found without being imported
    assert spec is not None and spec.origin is not None, "mlx-lm is a dependency of the engine"
    return Path(spec.origin).parent


@cache
def _remapping() -> dict[str, dict[Any, str]]:
    tables: dict[str, dict[Any, str]] = {_MODEL_TABLE: {}, _ARCHITECTURE_TABLE: {}}
    source = (_package_folder() / "utils.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in tables:
            tables[node.targets[0].id] = ast.literal_eval(node.value)
    return tables
