"""What is in the safetensors files of a model folder, read from their headers.

It reads no tensor, and it refuses files that are missing, cut short or of a kind that MLX cannot read.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.errors import ModelRefused
from engine.model.files import is_file, parsed, read_bytes, require_regular, shown, words_of

INDEX: Final = "model.safetensors.index.json"

# Format: safetensors, which caps it at 100 MB; a hundred thousand tensors take a tenth of that.
_LARGEST_HEADER_BYTES: Final = 64_000_000
_MOST_DIMENSIONS: Final = 16

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
FLOATS: Final = ("F32", "BF16", "F16")

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
    """One entry of a header. `type` is safetensors' name of it. `begin` and `end` are bytes behind the header."""

    name: str
    type: str
    shape: tuple[int, ...]
    begin: int
    end: int
    file: str

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin

    @property
    def is_float(self) -> bool:
        return self.type in FLOATS

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

    def bytes_of(self, type_name: str) -> int:
        """Bytes of what mlx-lm keeps that has this type in the files."""
        return sum(t.size_bytes for t in self.tensors if t.type == type_name and not t.is_left_out)

    @property
    def activation_bytes(self) -> int:
        """Size of one activation: that of the float type that most of the weights, or of their scales, have."""
        totals = dict.fromkeys(FLOATS, 0)
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
            f"{folder} is incomplete: {shown(missing[0])}{more} of its index is not there", reason="missing_weights"
        )
    if not files:
        raise ModelRefused(_why_no_weights(folder), reason="no_weights")
    weights = Weights(tuple(tensor for file in files for tensor in _read_header(file)))
    _check_names(folder, weights)
    absent = expected.keys() - {tensor.name for tensor in weights.tensors}
    if absent:
        raise ModelRefused(
            f"{folder} is incomplete: {len(absent)} tensors of its index are in no file, "
            f"{shown(min(absent))} among them",
            reason="missing_weights",
        )
    return weights


def _indexed_files(folder: Path) -> dict[str, str]:
    """Tensor name → file name, as the index says; empty without an index."""
    index = folder / INDEX
    if not is_file(index):
        return {}
    try:
        entries = parsed(read_bytes(index, reason="damaged_weights"))["weight_map"]
        return {str(name): str(file) for name, file in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelRefused(f"{index} is damaged: it is not an index of tensors", reason="damaged_weights") from error


def _why_no_weights(folder: Path) -> str:
    suffixes = {file.suffix for file in folder.glob("*") if is_file(file)}
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
    file_bytes = require_regular(file, reason="damaged_weights")
    try:
        with file.open("rb") as stream:
            (header_len,) = struct.unpack("<Q", stream.read(8))
            if header_len > min(file_bytes - 8, _LARGEST_HEADER_BYTES):
                raise ModelRefused(_cut_short(file, file_bytes, 8 + header_len), reason="damaged_weights")
            header = parsed(stream.read(header_len))
            if not isinstance(header, dict):
                raise ValueError("not an object")
    except OSError as error:
        raise ModelRefused(f"{file} cannot be read: {words_of(error)}", reason="damaged_weights") from error
    except (struct.error, ValueError) as error:
        raise ModelRefused(
            f"{file} is damaged: it does not begin with a safetensors header", reason="damaged_weights"
        ) from error
    tensors = [_read_entry(file, name, entry) for name, entry in header.items() if name != "__metadata__"]
    _check_places(file, tensors, begin=8 + header_len, file_bytes=file_bytes)
    return tensors


def _read_entry(file: Path, name: str, entry: Any) -> Tensor:
    try:
        type_name, (begin, end) = str(entry["dtype"]), map(int, entry["data_offsets"])
        shape = tuple(int(length) for length in entry["shape"])
        if min((begin, *shape)) < 0 or len(shape) > _MOST_DIMENSIONS:
            raise ValueError("negative, or far too many")
    except (KeyError, TypeError, ValueError) as error:
        raise ModelRefused(
            f"{file} is damaged: its header does not describe {shown(name)}", reason="damaged_weights"
        ) from error
    if type_name not in TYPE_BYTES:
        raise ModelRefused(
            f"{file} holds {shown(name)} as {shown(type_name)}, which MLX does not read", reason="wrong_type"
        )
    wanted_bytes = math.prod(shape) * TYPE_BYTES[type_name]
    if end - begin != wanted_bytes:
        raise ModelRefused(
            f"{file} is damaged: {shown(name)} has {end - begin:,} bytes where its shape needs {wanted_bytes:,}",
            reason="damaged_weights",
        )
    return Tensor(name, type_name, shape, begin, end, file.name)


def _check_places(file: Path, tensors: list[Tensor], *, begin: int, file_bytes: int) -> None:
    """Format: safetensors: the tensors fill the file to its end, without holes, and none lies over another."""
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)):
        if tensor.begin != end:
            raise ModelRefused(
                f"{file} is damaged: {shown(tensor.name)} begins at byte {tensor.begin:,}, "
                f"and the one before ends at {end:,}",
                reason="damaged_weights",
            )
        end = tensor.end
    wanted_bytes = begin + end
    if file_bytes < wanted_bytes:
        raise ModelRefused(_cut_short(file, file_bytes, wanted_bytes), reason="damaged_weights")
    if file_bytes > wanted_bytes:
        raise ModelRefused(
            f"{file} is damaged: it has {file_bytes:,} bytes where its header describes {wanted_bytes:,}; "
            "download or copy it again",
            reason="damaged_weights",
        )


def _check_names(folder: Path, weights: Weights) -> None:
    """mlx-lm reads all files in any order, so of two tensors with one name either could win."""
    first: dict[str, str] = {}
    for tensor in weights.tensors:
        if tensor.name in first:
            raise ModelRefused(
                f"{folder} holds {shown(tensor.name)} twice, in {first[tensor.name]} and {tensor.file}: "
                "the files are of two versions of the model; remove the ones that do not belong",
                reason="damaged_weights",
            )
        first[tensor.name] = tensor.file


def _cut_short(file: Path, file_bytes: int, wanted_bytes: int) -> str:
    return f"{file} is cut short: it has {file_bytes:,} of {wanted_bytes:,} bytes; download or copy it again"
