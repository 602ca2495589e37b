"""What a model folder holds, checked before a weight is read: configuration, headers, tokenizer, chat template.

It needs no MLX and judges no memory: `engine.memory` does that with the numbers found here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.errors import ModelNotFound, ModelRefused
from engine.model.architectures import module_name
from engine.model.layers import Layer, UnknownSize, read_layers, text_config
from engine.model.library import model_name
from engine.model.weights import Weights, read_weights

_CONTEXT_FIELDS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "n_ctx",
    "seq_length",
    "max_sequence_length",
)
_NO_LIMIT_TOKENS: Final = 10**9  # transformers writes 10^30 into model_max_length when it has no number
_SENTENCEPIECE: Final = ("tokenizer.model", "tiktoken.model")


@dataclass(frozen=True, slots=True)
class Preflight:
    """Everything known about a model without loading it.

    `layers` is empty when config.json does not give the sizes. `tensor_types` are safetensors' names. `quantization` is
    a label for people, None for plain floats. `generation_config` is that file as it is: the model's sampling defaults.
    """

    path: Path
    name: str
    architecture: str
    quantization: str | None
    native_context_tokens: int
    weights_bytes: int
    num_tensors: int
    tensor_types: tuple[str, ...]
    activation_bytes: int
    hidden_size: int | None
    vocabulary_size: int | None
    layers: tuple[Layer, ...]
    generation_config: Mapping[str, Any]
    has_chat_template: bool
    has_vision: bool
    is_demo: bool


def preflight(path: Path) -> Preflight:
    """Read and check the folder `path`. Raises ModelNotFound and ModelRefused, each with one sentence."""
    config = _read_config(path)
    weights = read_weights(path)
    _check_packing(path, config, weights)
    _check_tokenizer(path)
    text = text_config(config)
    tokenizer_config = _read_optional(path / "tokenizer_config.json")
    return Preflight(
        path=path,
        name=model_name(path),
        architecture=str(config["model_type"]),
        quantization=_quantization(config),
        native_context_tokens=_native_context(path, config, tokenizer_config),
        weights_bytes=weights.loaded_bytes,
        num_tensors=len(weights.tensors),
        tensor_types=weights.types,
        activation_bytes=weights.activation_bytes,
        hidden_size=_integer(text.get("hidden_size")),
        vocabulary_size=_integer(text.get("vocab_size")),
        layers=_layers(config, weights.activation_bytes),
        generation_config=_read_optional(path / "generation_config.json"),
        has_chat_template=bool(tokenizer_config.get("chat_template"))
        or any((path / name).is_file() for name in ("chat_template.jinja", "chat_template.json")),
        has_vision="vision_config" in config,
        is_demo=config.get("splash_demo") is True,
    )


def _read_config(path: Path) -> Mapping[str, Any]:
    if not path.is_dir():
        raise ModelNotFound(f"{path} is not a folder")
    file = path / "config.json"
    if not file.is_file():
        raise ModelRefused(f"{path} has no config.json, so it is not a model folder", reason="no_config")
    config = _read_json(file)
    if not isinstance(config.get("model_type"), str):
        raise ModelRefused(f"{file} names no model_type", reason="damaged_config")
    if "model_file" in config:
        raise ModelRefused(
            f"{path} wants to run its own code ({config['model_file']}), which Splash never does", reason="needs_code"
        )
    if module_name(config) is None:
        raise ModelRefused(
            f"the installed mlx-lm has no model of the type {config['model_type']} ({path})",
            reason="unsupported_architecture",
        )
    return config


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelRefused(f"{file} cannot be read: {error.strerror}", reason="damaged_config") from error
    except ValueError as error:
        raise ModelRefused(f"{file} is not valid JSON: {error}", reason="damaged_config") from error
    if not isinstance(value, dict):
        raise ModelRefused(f"{file} is not a JSON object", reason="damaged_config")
    return value


def _read_optional(file: Path) -> dict[str, Any]:
    return _read_json(file) if file.is_file() else {}


def _check_packing(path: Path, config: Mapping[str, Any], weights: Weights) -> None:
    is_declared = (
        any("quantization" in part or "quantization_config" in part for part in (config, text_config(config)))
        or (path / "hf_quant_config.json").is_file()
    )
    if weights.is_packed and not is_declared:
        raise ModelRefused(
            f"the weights in {path} are quantised, but its config.json does not say how", reason="wrong_type"
        )


def _check_tokenizer(path: Path) -> None:
    file = path / "tokenizer.json"
    if file.is_file():
        try:
            msgspec.json.decode(file.read_bytes(), type=_TokenizerFile)  # reads over it without building the vocabulary
        except (OSError, msgspec.DecodeError) as error:
            raise ModelRefused(f"{file} is damaged: {error}", reason="damaged_tokenizer") from error
        return
    has_pieces = any((path / name).is_file() for name in _SENTENCEPIECE) or any(path.glob("*.tiktoken"))
    has_merges = (path / "vocab.json").is_file() and (path / "merges.txt").is_file()
    if not has_pieces and not has_merges:
        raise ModelRefused(f"{path} has no tokenizer: tokenizer.json is not there", reason="no_tokenizer")


class _TokenizerModel(msgspec.Struct):
    """What every kind of model in a tokenizer.json has. Format: Hugging Face tokenizers."""

    vocab: msgspec.Raw


class _TokenizerFile(msgspec.Struct):
    model: _TokenizerModel


def _layers(config: Mapping[str, Any], activation_bytes: int) -> tuple[Layer, ...]:
    try:
        return read_layers(config, activation_bytes)
    except UnknownSize:
        return ()


def _native_context(path: Path, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> int:
    """Tokens that the model was made for.

    As transformers has it, `max_position_embeddings` is the whole length and rope scaling is how it got there; except
    that YaRN is often added to a config.json whose number was left alone: then it is original length × factor.
    """
    text = text_config(config)
    for part in (text, config):
        for field in _CONTEXT_FIELDS:
            if (length := _integer(part.get(field))) is not None:
                return max(length, _yarn_context(text, length))
    length = _integer(tokenizer_config.get("model_max_length"))
    if length is not None and length < _NO_LIMIT_TOKENS:
        return length
    raise ModelRefused(
        f"{path / 'config.json'} does not say how long a context the model was made for", reason="no_context_length"
    )


def _yarn_context(text: Mapping[str, Any], length: int) -> int:
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(scaling, Mapping) or "yarn" not in str(scaling.get("rope_type") or scaling.get("type")):
        return length
    original = _integer(scaling.get("original_max_position_embeddings")) or length
    factor = scaling.get("factor")
    return int(original * factor) if isinstance(factor, int | float) else length


def _quantization(config: Mapping[str, Any]) -> str | None:
    for part in (config, text_config(config)):
        if isinstance(entry := part.get("quantization"), Mapping):
            return _mlx_label(entry)
        if isinstance(entry := part.get("quantization_config"), Mapping):
            method, bits = entry.get("quant_method"), _integer(entry.get("bits"))
            return _mlx_label(entry) if method is None else f"{method} {bits}-bit" if bits else str(method)
    return None


def _mlx_label(entry: Mapping[str, Any]) -> str:
    """`4-bit`, `4-bit mxfp4`, `4-bit mixed` when some layers have other bits than the rest."""
    bits, mode = entry.get("bits"), entry.get("mode", "affine")
    if mode != "affine":
        return f"{bits}-bit {mode}"
    others = {other.get("bits", bits) for other in entry.values() if isinstance(other, Mapping)}
    return f"{bits}-bit mixed" if others - {bits} else f"{bits}-bit"


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
