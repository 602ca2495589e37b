"""The demo model: a tiny hybrid (gated-delta, full attention, experts) of random weights, made here on first use.

It downloads nothing, needs no MLX and has learned nothing: its text is a shuffle of word pieces.
"""

import hashlib
import json
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

DEMO_NAME: Final = "splash-demo"
MARKER: Final = "splash-demo.json"

_SEED: Final = 20261
_LAYOUT_VERSION: Final = 1
"""Raised when the same inputs below are turned into other weights; a changed input is noticed by itself."""

_CORPUS: Final = Path(__file__).with_name("demo_corpus.txt")
_TEMPLATE: Final = Path(__file__).with_name("demo_template.jinja")

_SPECIAL_TOKENS: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)
_ENDS: Final = (2, 0)  # <|im_end|>, <|endoftext|>

# For model_type qwen3_5* transformers puts this, and NFC, in place of what tokenizer.json says: so train with it.
# Source: transformers 5.24, models/qwen3_5/tokenization_qwen3_5.py
_WORD: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_TEXT_CONFIG: Final[dict[str, Any]] = {
    "model_type": "qwen3_5_moe_text",
    "vocab_size": 2048,
    "hidden_size": 128,
    "num_hidden_layers": 8,
    "full_attention_interval": 4,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
}
_CONFIG: Final[dict[str, Any]] = {
    "model_type": "qwen3_5_moe",
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "splash_demo": True,
    "eos_token_id": list(_ENDS),
    "tie_word_embeddings": False,
    "text_config": _TEXT_CONFIG,
}
_GENERATION_CONFIG: Final[dict[str, Any]] = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 0.95,
    "eos_token_id": list(_ENDS),
}
_TOKENIZER_CONFIG: Final[dict[str, Any]] = {
    "tokenizer_class": "Qwen3_5Tokenizer",
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "unk_token": None,
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 262144,
}

Weights = NDArray[np.float32]


def ensure_demo(home: Path) -> Path:
    """Return the demo model's folder under `home`; make it when it is absent, incomplete or of another version."""
    folder = home / "models" / "demo"
    if not _is_current(folder):
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(folder)
    return folder


def build_demo(folder: Path) -> None:
    """Write the demo model into the empty `folder`; the same bytes every time."""
    tokenizer = _train_tokenizer(_CORPUS.read_text(encoding="utf-8"))
    tokenizer.save(str(folder / "tokenizer.json"))
    shutil.copyfile(_TEMPLATE, folder / "chat_template.jinja")
    _write_json(folder / "tokenizer_config.json", _TOKENIZER_CONFIG)
    _write_json(folder / "generation_config.json", _GENERATION_CONFIG)
    _write_json(folder / "config.json", _CONFIG)
    save_file(_weights(tokenizer), folder / "model.safetensors", metadata={"format": "mlx"})
    _write_json(folder / MARKER, {"version": _version()})


def _is_current(folder: Path) -> bool:
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    return marker == {"version": _version()} and all((folder / name).is_file() for name in names)


def _replace(folder: Path) -> None:
    """Build beside `folder`, then rename: whoever looks sees a whole model. Several processes may do so at once."""
    workshop = Path(tempfile.mkdtemp(prefix=".demo-", dir=folder.parent))
    try:
        fresh, stale = workshop / "fresh", workshop / "stale"
        fresh.mkdir()
        build_demo(fresh)
        if folder.exists():
            folder.rename(stale)
        try:
            fresh.rename(folder)
        except OSError:
            if not _is_current(folder):  # else another process was quicker, with the same bytes
                raise
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _version() -> str:
    inputs = [_SEED, _LAYOUT_VERSION, _SPECIAL_TOKENS, _WORD, _CONFIG, _GENERATION_CONFIG, _TOKENIZER_CONFIG]
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode())
    for source in (_CORPUS, _TEMPLATE):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _train_tokenizer(corpus: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_TEXT_CONFIG["vocab_size"],
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_texts(corpus), trainer)
    assert tokenizer.get_vocab_size() == _TEXT_CONFIG["vocab_size"], "the corpus is too small for the vocabulary"
    return tokenizer


def _training_texts(corpus: str) -> Iterator[str]:
    """Lines, and characters of several bytes on their own, so that merges build characters before fragments."""
    yield from corpus.splitlines(keepends=True)
    for character in corpus:
        if not character.isascii():
            yield from (character,) * 3


def _weights(tokenizer: Tokenizer) -> dict[str, Weights]:
    """As mlx-lm's qwen3_5_moe takes them without conversion. float32: MLX's CPU backend has no other experts."""
    config = _TEXT_CONFIG
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    draw = _Uniform(_SEED)
    weights = {
        "language_model.model.embed_tokens.weight": draw.spread((vocabulary, hidden), deviation=1.0),
        "language_model.model.norm.weight": np.ones(hidden, np.float32),
        # Deviation of a logit: sqrt(hidden) * 0.25 = 2.8, so that a few tokens stand out and none always wins.
        "language_model.lm_head.weight": draw.spread((vocabulary, hidden), deviation=0.25),
    }
    # A row of zeros is a logit of zero, which the best of 1,700 others always beats: these are out of greedy reach.
    weights["language_model.lm_head.weight"][_unspeakable(tokenizer)] = 0.0
    for index in range(config["num_hidden_layers"]):
        is_attention = (index + 1) % config["full_attention_interval"] == 0
        layer = _attention(draw) if is_attention else _gated_delta(draw)
        layer |= _experts(draw)
        layer |= {
            f"{name}.weight": np.ones(hidden, np.float32) for name in ("input_layernorm", "post_attention_layernorm")
        }
        weights |= {f"language_model.model.layers.{index}.{name}": tensor for name, tensor in layer.items()}
    return weights


def _unspeakable(tokenizer: Tokenizer) -> list[int]:
    """Ids of tokens that would not read as plain text: markup, parts of a character, control characters."""
    special = range(len(_SPECIAL_TOKENS))
    texts = ((token, tokenizer.decode([token])) for token in range(len(special), tokenizer.get_vocab_size()))
    return [*special, *(token for token, text in texts if not all(map(_is_plain, text)))]


def _is_plain(character: str) -> bool:
    if character == "\ufffd":
        return False
    return character in "\n\t" or not unicodedata.category(character).startswith("C")


def _attention(draw: "_Uniform") -> dict[str, Weights]:
    config = _TEXT_CONFIG
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    return {
        "self_attn.q_proj.weight": draw.matrix((2 * queries, hidden)),  # half of it gates the output
        "self_attn.k_proj.weight": draw.matrix((keys, hidden)),
        "self_attn.v_proj.weight": draw.matrix((keys, hidden)),
        "self_attn.o_proj.weight": draw.matrix((hidden, queries)),
        # Above 1, so that a head looks at some tokens and not at the mean of a long context.
        "self_attn.q_norm.weight": np.full(head_dim, 1.5, np.float32),
        "self_attn.k_norm.weight": np.full(head_dim, 1.5, np.float32),
    }


def _gated_delta(draw: "_Uniform") -> dict[str, Weights]:
    config = _TEXT_CONFIG
    hidden, num_heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = num_heads * config["linear_value_head_dim"]
    return {
        "linear_attn.in_proj_qkv.weight": draw.matrix((2 * keys + values, hidden)),
        "linear_attn.in_proj_z.weight": draw.matrix((values, hidden)),
        "linear_attn.in_proj_b.weight": draw.matrix((num_heads, hidden)),
        "linear_attn.in_proj_a.weight": draw.matrix((num_heads, hidden)),
        "linear_attn.conv1d.weight": draw.spread(
            (2 * keys + values, config["linear_conv_kernel_dim"], 1), deviation=0.5
        ),
        "linear_attn.out_proj.weight": draw.matrix((hidden, values)),
        "linear_attn.norm.weight": np.ones(config["linear_value_head_dim"], np.float32),
        # Slow decay in most heads: the state still knows what it read thousands of tokens ago.
        "linear_attn.A_log": draw.between(-3.0, 0.0, num_heads),
        "linear_attn.dt_bias": draw.between(-6.0, -1.0, num_heads),
    }


def _experts(draw: "_Uniform") -> dict[str, Weights]:
    config = _TEXT_CONFIG
    hidden, num_experts = config["hidden_size"], config["num_experts"]
    width, shared_width = config["moe_intermediate_size"], config["shared_expert_intermediate_size"]
    return {
        "mlp.gate.weight": draw.matrix((num_experts, hidden)),
        "mlp.switch_mlp.gate_proj.weight": draw.matrix((num_experts, width, hidden)),
        "mlp.switch_mlp.up_proj.weight": draw.matrix((num_experts, width, hidden)),
        "mlp.switch_mlp.down_proj.weight": draw.matrix((num_experts, hidden, width)),
        "mlp.shared_expert.gate_proj.weight": draw.matrix((shared_width, hidden)),
        "mlp.shared_expert.up_proj.weight": draw.matrix((shared_width, hidden)),
        "mlp.shared_expert.down_proj.weight": draw.matrix((hidden, shared_width)),
        "mlp.shared_expert_gate.weight": draw.matrix((1, hidden)),
    }


class _Uniform:
    """Random float32 tensors, drawn one after another.

    Made from PCG64's raw integers with exact float operations: numpy promises the integers, not its distributions.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.PCG64(seed)

    def spread(self, shape: tuple[int, ...], *, deviation: float) -> Weights:
        """Values of mean 0 and the given standard deviation."""
        limit = deviation * 3**0.5
        return self.between(-limit, limit, *shape)

    def matrix(self, shape: tuple[int, ...]) -> Weights:
        """A weight `(..., out, in)` that keeps the scale of its input."""
        return self.spread(shape, deviation=shape[-1] ** -0.5)

    def between(self, low: float, high: float, *shape: int) -> Weights:
        raw = self._generator.random_raw(int(np.prod(shape)))
        fraction = (raw >> 40).astype(np.float32) * np.float32(2**-24)  # 24 bits: each is a float32 exactly
        return (np.float32(low) + np.float32(high - low) * fraction).reshape(shape)
