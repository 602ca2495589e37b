"""What a model folder holds, checked before a weight is read: configuration, headers, tokenizer, chat template.

It needs no MLX and judges no memory: `engine.memory` does that with the numbers found here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.errors import ModelNotFound, ModelRefused
from engine.model.architectures import module_name
from engine.model.files import is_file, read_bytes, read_object, shown
from engine.model.layers import (
    LARGEST_SIZE,
    MOST_CONTEXT_BYTES,
    ImpossibleSize,
    Layer,
    UnknownSize,
    read_layers,
    text_config,
)
from engine.model.library import model_name
from engine.model.weights import Tensor, Weights, read_weights

_CONTEXT_FIELDS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "n_ctx",
    "seq_length",
    "max_sequence_length",
)
# Multimodal Gemma 3 leaves it out. Source: transformers 5.24, Gemma3TextConfig.
_USUAL_CONTEXTS: Final = {"gemma3": 131_072, "gemma3_text": 131_072}
_NO_LIMIT_TOKENS: Final = 10**9  # transformers writes 10^30 into model_max_length when it has no number
_COMPUTED_WITH: Final = (".weight", ".A_log", ".dt_bias")
_EMBEDDINGS: Final = tuple(
    f"{prefix}embed_tokens.weight" for prefix in ("model.", "language_model.model.", "model.language_model.")
)
_LARGEST_TOKENIZER_BYTES: Final = 512 * 1024 * 1024
_PACK_BITS: Final = 32
# Source: mx.quantize of mlx 0.32.4: bits times group size of every kind that it knows.
_BITS_OF_GROUP: Final = frozenset(bits * group for bits in (2, 3, 4, 5, 6, 8) for group in (16, 32, 64, 128))
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
    _check_types(path, config, weights)
    _check_embedding(path, config, weights)
    _check_tokenizer(path)
    text = text_config(config)
    tokenizer_config = _read_optional(path / "tokenizer_config.json")
    native_context_tokens = _native_context(path, config, tokenizer_config)
    return Preflight(
        path=path,
        name=model_name(path),
        architecture=str(config["model_type"]),
        quantization=_quantization(config),
        native_context_tokens=native_context_tokens,
        weights_bytes=_loaded_bytes(config, weights),
        num_tensors=len(weights.tensors),
        tensor_types=weights.types,
        activation_bytes=weights.activation_bytes,
        hidden_size=_integer(text.get("hidden_size")),
        vocabulary_size=_integer(text.get("vocab_size")),
        layers=_layers(path, config, weights.activation_bytes, native_context_tokens),
        generation_config=_read_optional(path / "generation_config.json"),
        has_chat_template=bool(tokenizer_config.get("chat_template"))
        or any(is_file(path / name) for name in ("chat_template.jinja", "chat_template.json")),
        has_vision="vision_config" in config,
        is_demo=config.get("splash_demo") is True,
    )


def _read_config(path: Path) -> Mapping[str, Any]:
    if not path.is_dir():
        raise ModelNotFound(f"{path} is not a folder")
    file = path / "config.json"
    if not is_file(file):
        raise ModelRefused(f"{path} has no config.json, so it is not a model folder", reason="no_config")
    config = read_object(file, reason="damaged_config")
    if not isinstance(config.get("model_type"), str):
        raise ModelRefused(f"{file} names no model_type", reason="damaged_config")
    if not isinstance(config.get("text_config"), dict | None):
        raise ModelRefused(f"{file} has a text_config that is not an object", reason="damaged_config")
    if "model_file" in config:
        raise ModelRefused(
            f"{path} wants to run its own code ({shown(config['model_file'])}), which Splash never does",
            reason="needs_code",
        )
    if module_name(config) is None:
        raise ModelRefused(
            f"the installed mlx-lm has no model of the type {shown(config['model_type'])} ({path})",
            reason="unsupported_architecture",
        )
    return config


def _read_optional(file: Path) -> dict[str, Any]:
    return read_object(file, reason="damaged_config") if is_file(file) else {}


def _check_types(path: Path, config: Mapping[str, Any], weights: Weights) -> None:
    """Weights are floats, or integers that MLX packed with scales beside them. mlx-lm converts other methods' codes."""
    is_declared = any("quantization" in part or "quantization_config" in part for part in (config, text_config(config)))
    has_method = _other_method(config) is not None or is_file(path / "hf_quant_config.json")
    by_name = {tensor.name: tensor for tensor in weights.tensors}
    for tensor in weights.tensors:
        if tensor.is_float or tensor.is_left_out or not tensor.name.endswith(_COMPUTED_WITH):
            continue
        scales = by_name.get(f"{tensor.name.removesuffix('.weight')}.scales")
        if tensor.type == "U32" and scales is not None:
            if not is_declared and not has_method:
                raise ModelRefused(
                    f"the weights in {path} are quantised, but its config.json does not say how", reason="wrong_type"
                )
            _check_packed(path, tensor, scales, by_name.get(f"{tensor.name.removesuffix('.weight')}.biases"))
        elif not has_method:
            why = "without the scales to unpack it" if tensor.type == "U32" else "where floats are computed with"
            raise ModelRefused(f"{path} holds {shown(tensor.name)} as {tensor.type}, {why}", reason="wrong_type")


def _check_packed(path: Path, packed: Tensor, scales: Tensor, biases: Tensor | None) -> None:
    """Format: mx.quantize: (..., columns × bits / 32) integers, (..., columns / group) scales, and as many biases."""
    num_scales = scales.shape[-1] if scales.shape else 0
    bits_of_group = packed.shape[-1] * _PACK_BITS / num_scales if packed.shape and num_scales else 0
    if packed.shape[:-1] != scales.shape[:-1] or bits_of_group not in _BITS_OF_GROUP:
        raise ModelRefused(
            f"{path} is damaged: {shown(scales.name)} {list(scales.shape)} does not belong to {shown(packed.name)} "
            f"{list(packed.shape)}",
            reason="damaged_weights",
        )
    if scales.is_float and (biases is None or biases.shape != scales.shape):
        raise ModelRefused(
            f"{path} is damaged: {shown(packed.name)} has no biases that belong to its scales", reason="damaged_weights"
        )
    if not scales.is_float and scales.type != "U8":
        raise ModelRefused(
            f"{path} holds {shown(scales.name)} as {scales.type}, where scales are needed", reason="wrong_type"
        )


def _check_embedding(path: Path, config: Mapping[str, Any], weights: Weights) -> None:
    """The one tensor whose shape every config.json tells: it shows weights and configuration of different models."""
    text = text_config(config)
    rows, columns = _integer(text.get("vocab_size")), _integer(text.get("hidden_size"))
    for tensor in weights.tensors:
        if tensor.name not in _EMBEDDINGS or len(tensor.shape) != 2:
            continue
        is_other = rows is not None and tensor.shape[0] != rows
        is_other |= tensor.is_float and columns is not None and tensor.shape[1] != columns
        if is_other:
            raise ModelRefused(
                f"{path} is not one model: its config.json says {rows} tokens of {columns} numbers, "
                f"and {shown(tensor.name)} is {list(tensor.shape)}",
                reason="damaged_weights",
            )


def _other_method(config: Mapping[str, Any]) -> str | None:
    """The quantisation method of another program than MLX, as transformers names it."""
    for part in (config, text_config(config)):
        entry = part.get("quantization_config")
        if isinstance(entry, Mapping) and entry.get("quant_method") is not None:
            return str(entry["quant_method"])
    return None


def _loaded_bytes(config: Mapping[str, Any], weights: Weights) -> int:
    """Bytes that mlx-lm keeps: 8-bit floats become bfloat16 while they load, but for blocks that MLX multiplies itself.

    Source: mlx-lm 0.32.2, `utils.load_model`.
    """
    entry = config.get("quantization_config")
    if "quantization" in config or not isinstance(entry, Mapping) or entry.get("quant_method") != "fp8":
        return weights.loaded_bytes
    if entry.get("scale_fmt") == "ue8m0" and entry.get("weight_block_size") == [32, 32]:
        return weights.loaded_bytes
    return weights.loaded_bytes + weights.bytes_of("F8_E4M3")


def _check_tokenizer(path: Path) -> None:
    file = path / "tokenizer.json"
    if is_file(file):
        content = read_bytes(file, largest_bytes=_LARGEST_TOKENIZER_BYTES, reason="damaged_tokenizer")
        try:
            msgspec.json.decode(content, type=_TokenizerFile)  # reads over it without building the vocabulary
        except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
            raise ModelRefused(f"{file} is damaged: {error}", reason="damaged_tokenizer") from error
        return
    has_pieces = any(is_file(path / name) for name in _SENTENCEPIECE) or any(path.glob("*.tiktoken"))
    has_merges = is_file(path / "vocab.json") and is_file(path / "merges.txt")
    if not has_pieces and not has_merges:
        raise ModelRefused(f"{path} has no tokenizer: tokenizer.json is not there", reason="no_tokenizer")


class _TokenizerModel(msgspec.Struct):
    """What every kind of model in a tokenizer.json has. Format: Hugging Face tokenizers."""

    vocab: msgspec.Raw


class _TokenizerFile(msgspec.Struct):
    model: _TokenizerModel


def _layers(
    path: Path, config: Mapping[str, Any], activation_bytes: int, native_context_tokens: int
) -> tuple[Layer, ...]:
    try:
        layers = read_layers(config, activation_bytes)
        context_bytes = sum(each.bytes_per_token * native_context_tokens + each.state_bytes for each in layers)
        if context_bytes > MOST_CONTEXT_BYTES:
            raise ImpossibleSize(f"layers that keep {context_bytes:,} bytes of one context")
    except UnknownSize:
        return ()
    except ImpossibleSize as error:
        raise ModelRefused(
            f"{path / 'config.json'} is of no model: it says {error}", reason="damaged_config"
        ) from error
    return layers


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
    if (usual := _USUAL_CONTEXTS.get(str(config["model_type"]))) is not None:
        return usual
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
    whole = original * factor if isinstance(factor, int | float) else length
    return int(whole) if whole <= LARGEST_SIZE else length


def _quantization(config: Mapping[str, Any]) -> str | None:
    for part in (config, text_config(config)):
        if isinstance(entry := part.get("quantization"), Mapping):
            return _mlx_label(entry)
        if isinstance(entry := part.get("quantization_config"), Mapping):
            method, bits = entry.get("quant_method"), _integer(entry.get("bits"))
            return _mlx_label(entry) if method is None else f"{shown(method)} {bits}-bit" if bits else shown(method)
    return None


def _mlx_label(entry: Mapping[str, Any]) -> str:
    """`4-bit`, `4-bit mxfp4`, `4-bit mixed` when some layers have other bits than the rest."""
    bits, mode = _integer(entry.get("bits")), entry.get("mode", "affine")
    if mode != "affine":
        return f"{bits}-bit {shown(mode)}"
    others = (other.get("bits", bits) for other in entry.values() if isinstance(other, Mapping))
    return f"{bits}-bit mixed" if any(other != bits for other in others) else f"{bits}-bit"


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_SIZE else None
