"""What is in the safetensors files of a model folder, read from their headers.

It reads no tensor, and it refuses files that are missing, cut short or of a kind that MLX cannot read.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.errors import ModelRefused

INDEX: Final = "model.safetensors.index.json"

_LARGEST_HEADER_BYTES: Final = 100_000_000  # Format: safetensors, which caps it there

# Source: mx.load of mlx 0.32.4, tried with one file per type; it refuses F64, F8_E5M2 and the 4-bit floats.
TYPE_BYTES: Final = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "C64": 8,
}
_FLOATS: Final = ("F32", "BF16", "F16")

# mlx-lm's language models leave these out when they load.
_LEFT_OUT: Final = (
    "vision_tower.",
    "vision_model.",
    "visual.",
    "model.visual.",
    "model.vision_tower.",
    "model.audio_tower.",
    "audio_tower.",
    "multi_modal_projector.",
    "model.embed_vision.",
    "mtp.",
    "model.mtp.",
    "language_model.mtp.",
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a header. `type` is safetensors' name of it."""

    name: str
    type: str
    size_bytes: int
    file: str

    @property
    def is_left_out(self) -> bool:
        return self.name.startswith(_LEFT_OUT)


@dataclass(frozen=True, slots=True)
class Weights:
    """All tensors of a model, in the order of files and headers."""

    tensors: tuple[Tensor, ...]

    @property
    def loaded_bytes(self) -> int:
        """Bytes of what mlx-lm keeps: towers for images and sound, and draft layers, are left out."""
        return sum(tensor.size_bytes for tensor in self.tensors if not tensor.is_left_out)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(sorted({tensor.type for tensor in self.tensors}))

    @property
    def has_left_out(self) -> bool:
        return any(tensor.is_left_out for tensor in self.tensors)

    @property
    def is_packed(self) -> bool:
        """Whether some weights are quantised the way MLX does it: integers with scales beside them."""
        names = {tensor.name for tensor in self.tensors if tensor.type == "U32"}
        return any(
            tensor.name.endswith(".scales") and f"{tensor.name.removesuffix('.scales')}.weight" in names
            for tensor in self.tensors
        )

    @property
    def activation_bytes(self) -> int:
        """Size of one activation: that of the float type that most of the weights, or of their scales, have."""
        totals = dict.fromkeys(_FLOATS, 0)
        for tensor in self.tensors:
            if tensor.type in totals and not tensor.is_left_out:
                totals[tensor.type] += tensor.size_bytes
        return TYPE_BYTES[max(totals, key=lambda name: totals[name])]


def read_weights(folder: Path) -> Weights:
    """Read every header that mlx-lm would read. Raises ModelRefused, with the file and the numbers."""
    files = sorted(folder.glob("model*.safetensors"))
    expected = _indexed_files(folder)
    missing = sorted(set(expected.values()) - {file.name for file in files})
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelRefused(
            f"{folder} is incomplete: {missing[0]}{more} of its index is not there", reason="missing_weights"
        )
    if not files:
        raise ModelRefused(_why_no_weights(folder), reason="no_weights")
    weights = Weights(tuple(tensor for file in files for tensor in _read_header(file)))
    absent = expected.keys() - {tensor.name for tensor in weights.tensors}
    if absent:
        raise ModelRefused(
            f"{folder} is incomplete: {len(absent)} tensors of its index are in no file, {min(absent)} among them",
            reason="missing_weights",
        )
    return weights


def _indexed_files(folder: Path) -> dict[str, str]:
    """Tensor name → file name, as the index says; empty without an index."""
    index = folder / INDEX
    if not index.is_file():
        return {}
    try:
        entries = json.loads(index.read_bytes())["weight_map"]
        return {str(name): str(file) for name, file in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelRefused(f"{index} is damaged: it is not an index of tensors", reason="damaged_weights") from error


def _why_no_weights(folder: Path) -> str:
    suffixes = {file.suffix for file in folder.iterdir() if file.is_file()}
    if ".safetensors" in suffixes:
        return f"{folder} has safetensors files, but none is called model*.safetensors, which is what mlx-lm reads"
    if ".gguf" in suffixes:
        return (
            f"{folder} holds GGUF weights, which mlx-lm does not read; use the MLX or the original version of the model"
        )
    if suffixes & {".bin", ".pt", ".pth"}:
        return f"{folder} holds PyTorch pickles, which are not read; convert the model to safetensors"
    return f"{folder} has a config.json but no weights: model*.safetensors is not there"


def _read_header(file: Path) -> list[Tensor]:
    """Format: safetensors: u64 length, JSON header, then the bytes that the header's offsets point into."""
    try:
        file_bytes = file.stat().st_size
        with file.open("rb") as stream:
            (header_len,) = struct.unpack("<Q", stream.read(8))
            if header_len > min(file_bytes - 8, _LARGEST_HEADER_BYTES):
                raise ModelRefused(_cut_short(file, file_bytes, 8 + header_len), reason="damaged_weights")
            header = json.loads(stream.read(header_len))
    except OSError as error:
        raise ModelRefused(f"{file} cannot be read: {error.strerror}", reason="damaged_weights") from error
    except (struct.error, ValueError) as error:
        raise ModelRefused(
            f"{file} is damaged: it does not begin with a safetensors header", reason="damaged_weights"
        ) from error
    tensors, end = [], 0
    for name, entry in header.items():
        if name != "__metadata__":
            tensor, tensor_end = _read_entry(file, name, entry)
            tensors.append(tensor)
            end = max(end, tensor_end)
    wanted_bytes = 8 + header_len + end
    if file_bytes < wanted_bytes:
        raise ModelRefused(_cut_short(file, file_bytes, wanted_bytes), reason="damaged_weights")
    return tensors


def _read_entry(file: Path, name: str, entry: Any) -> tuple[Tensor, int]:
    """Return the tensor and the offset at which it ends."""
    try:
        type_name, shape, (begin, end) = str(entry["dtype"]), entry["shape"], entry["data_offsets"]
        num_elements = 1
        for length in shape:
            num_elements *= int(length)
        size_bytes = int(end) - int(begin)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelRefused(
            f"{file} is damaged: its header does not describe {name}", reason="damaged_weights"
        ) from error
    if type_name not in TYPE_BYTES:
        raise ModelRefused(f"{file} holds {name} as {type_name}, which MLX does not read", reason="wrong_type")
    wanted_bytes = num_elements * TYPE_BYTES[type_name]
    if size_bytes != wanted_bytes:
        raise ModelRefused(
            f"{file} is damaged: {name} has {size_bytes:,} bytes where its shape needs {wanted_bytes:,}",
            reason="damaged_weights",
        )
    return Tensor(name, type_name, size_bytes, file.name), int(end)


def _cut_short(file: Path, file_bytes: int, wanted_bytes: int) -> str:
    return f"{file} is cut short: it has {file_bytes:,} of {wanted_bytes:,} bytes; download or copy it again"
