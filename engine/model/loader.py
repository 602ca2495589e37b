"""Loads a model's weights through mlx-lm, a few hundred megabytes at a time: real progress, and a low peak.

It belongs to the worker thread, which owns every MLX object. It loads no tokenizer (`engine.text` does), checks no file
that the preflight has checked, and runs no code that comes with a model.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_lm.utils import load_model

from engine.errors import ModelRefused

logger = logging.getLogger(__name__)

_BATCH_BYTES: Final = 256 * 2**20
"""Weights evaluated at once: enough for the disk to run at full speed, little enough for a progress bar to move."""

OnProgress = Callable[[int, int], None]
"""Takes bytes read and bytes in total, on the thread that loads. Must not block; what it raises ends the loading.

It is called with 0 first, when the model is built and reading begins: from then on the time is the disk's.
"""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory. `model` is mlx-lm's; `config` is config.json as mlx-lm completed it.

    `read_seconds` is the time in which the weights were read: weights_bytes / read_seconds is the speed of the disk.
    """

    path: Path
    model: Any
    config: dict[str, Any]
    weights_bytes: int
    read_seconds: float


def load(path: Path, on_progress: OnProgress) -> LoadedModel:
    """Load the weights of a folder that passed the preflight. Raises ModelRefused with one sentence."""
    began = time.monotonic()
    with _without_wildcards(path) as folder:
        try:
            model, config = load_model(folder, lazy=True)
        except Exception as error:  # a model's module may raise anything while it is built; the answer is one sentence
            raise ModelRefused(
                f"mlx-lm cannot build the model in {path}: {_one_line(error)}", reason="load_failed"
            ) from error
        _check_experts(path, model)
        began_to_read = time.monotonic()
        total_bytes = _read(path, model, on_progress)
    now = time.monotonic()
    logger.info(
        "weights loaded path=%s bytes=%d seconds=%.2f read_seconds=%.2f",
        *(path, total_bytes, now - began, now - began_to_read),
    )
    return LoadedModel(
        path=path, model=model, config=config, weights_bytes=total_bytes, read_seconds=now - began_to_read
    )


@contextmanager
def _without_wildcards(path: Path) -> Iterator[Path]:
    """The folder under a name that mlx-lm, which looks for weights with a glob, does not take for a pattern."""
    if not set("*?[") & set(str(path)):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="splash-model-") as folder:
        link = Path(folder) / "model"
        link.symlink_to(path.absolute(), target_is_directory=True)
        yield link


def _read(path: Path, model: Any, on_progress: OnProgress) -> int:
    """Evaluate all parameters, batch by batch; returns their bytes."""
    entries: Any = tree_flatten(model.parameters())
    parameters = [parameter for _, parameter in entries]
    total_bytes: int = sum(parameter.nbytes for parameter in parameters)
    read_bytes = 0
    on_progress(read_bytes, total_bytes)
    for batch in _batches(parameters):
        try:
            mx.eval(batch)
        except (RuntimeError, ValueError) as error:
            raise ModelRefused(
                f"the weights in {path} cannot be read: {_one_line(error)}", reason="load_failed"
            ) from error
        read_bytes += sum(parameter.nbytes for parameter in batch)
        on_progress(read_bytes, total_bytes)
    return total_bytes


def _batches(parameters: list[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    batch_bytes = 0
    for parameter in parameters:
        batch.append(parameter)
        batch_bytes += parameter.nbytes
        if batch_bytes >= _BATCH_BYTES:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch


def _check_experts(path: Path, model: Any) -> None:
    """MLX's CPU backend multiplies experts in float32, or quantised, only: it would fail at the first token."""
    if mx.default_device() != mx.cpu:
        return
    for name, module in model.named_modules():
        if isinstance(module, SwitchLinear) and module.weight.dtype != mx.float32:
            kind = str(module.weight.dtype).removeprefix("mlx.core.")
            raise ModelRefused(
                f"on a CPU, MLX runs experts in float32 or quantised, and {name} in {path} is {kind}: "
                "use a quantised version of the model",
                reason="wrong_type",
            )


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
