"""Small folders in the layout of a model, for tests that read headers and configurations only."""

import json
import struct
from pathlib import Path

TINY_TOKENIZER = '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'

TINY_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 8192,
}


def write_safetensors(file: Path, tensors: dict[str, tuple[str, list[int]]], *, missing_bytes: int = 0) -> None:
    """Write tensors of zeros. Format: safetensors. The last `missing_bytes` are left out, as a broken download does.

    Fewer than none: the file goes on behind its end.
    """
    sizes = {"BOOL": 1, "U8": 1, "F8_E4M3": 1, "I32": 4, "F16": 2, "BF16": 2, "F32": 4, "U32": 4, "I64": 8, "F64": 8}
    header, end = {}, 0
    for name, (type_name, shape) in tensors.items():
        size = sizes[type_name]
        for length in shape:
            size *= length
        header[name] = {"dtype": type_name, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(end - missing_bytes))
