"""What each layer of a model keeps between tokens, in bytes, read from config.json.

It knows the families that mlx-lm 0.32 serves most; of any other it says that it does not know, and counts high.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from engine.model.architectures import default_sizes, makes_its_own_cache, module_name

FLOAT32_BYTES: Final = 4
LARGEST_SIZE: Final = 2**31
"""Of anything that config.json counts; a larger number is none."""
MOST_LAYERS: Final = 10_000
MOST_CONTEXT_BYTES: Final = 2**60
"""What a sequence of the model's own length may keep; no machine has as much."""

GATED_DELTA: Final = frozenset({"qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"})
"""Every `full_attention_interval`-th layer attends; the others keep a recurrent and a convolution state."""

WINDOW_PATTERN: Final = {"gemma3_text": 6, "gemma3": 6, "cohere2": 4}
"""Every n-th layer attends to everything; the others to a window. The number is mlx-lm's default for n."""

LAYER_TYPES: Final = frozenset({"llama", "gpt_oss", "olmo3", "afmoe", "exaone_moe", "laguna", "mellum", "ministral3"})
"""config.json's `layer_types` says which layers attend to a window."""

LATENT: Final = frozenset({"deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite", "mistral4"})
"""Keeps one compressed key-value vector and one rotary key for all heads."""

EXPANDED: Final = frozenset({"deepseek_v2", "minicpm3", "youtu_llm"})
"""Compresses keys and values as well, but keeps them expanded: each head its own."""

OWN_ATTENTION: Final = frozenset({"gpt_oss", "gemma2", "olmo", "phi3small", "plamo", "stablelm"})
"""Its attention takes keys and values only as they are: attention sinks, or arithmetic of its own on them.

Source: the modules of mlx-lm 0.32.2; `scaled_dot_product_attention` refuses sinks with quantised keys.
"""

# Numbers that mlx-lm's wrapper of the architecture writes into `text_config` where they lack. Source: mlx-lm 0.32.2.
_WRAPPED_SIZES: Final = {"gemma3": {"num_attention_heads": 8, "num_key_value_heads": 4}}

KV_GROUP_SIZES: Final = (64, 32)

Kind = Literal["growing", "fixed", "window", "unknown"]


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer keeps for one sequence. A window counts as state, at its full length.

    growing: `bytes_per_token` for each token · fixed, window: `state_bytes`, whatever the length · unknown: as growing.
    `group_size` None: keys and values stay as they are; of a growing layer, `obstacle` says why.
    `window_bytes_per_token`: what a window holds of each token.
    """

    kind: Kind
    bytes_per_token: int = 0
    state_bytes: int = 0
    group_size: int | None = None
    element_bytes: int = 0
    window_bytes_per_token: int = 0
    obstacle: str | None = None

    def bytes_per_token_at(self, kv_bits: int | None) -> int:
        """Bytes of one token when growing layers are quantised: codes, and a scale and a bias for each group."""
        if kv_bits is None or self.group_size is None:
            return self.bytes_per_token
        num_elements = self.bytes_per_token // self.element_bytes
        return num_elements * kv_bits // 8 + 2 * self.element_bytes * num_elements // self.group_size


def kv_group_size(*head_dims: int) -> int | None:
    """Return how many elements of a head share a scale when KV is quantised; None: heads so wide stay as they are.

    Source: mx.quantize of mlx 0.32.4, whose groups have to divide the last axis, of keys and of values.
    """
    return next((size for size in KV_GROUP_SIZES if all(width % size == 0 for width in head_dims)), None)


def kv_obstacle(layers: Sequence[Layer]) -> str | None:
    """Return why the keys and values of no layer can be quantised; None when those of one can."""
    if any(layer.group_size is not None for layer in layers):
        return None
    if not layers or any(layer.kind == "unknown" for layer in layers):
        return "Splash does not know the layers of this architecture"
    return next((layer.obstacle for layer in layers if layer.obstacle), "none of its layers keeps the whole context")


class UnknownSize(Exception):
    """config.json lacks a number that the size of a layer depends on."""


class ImpossibleSize(Exception):
    """config.json has a number that no model can have."""


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of config.json that describes the language model: multimodal models nest it."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def read_layers(config: Mapping[str, Any], element_bytes: int) -> tuple[Layer, ...]:
    """Return one entry per layer; `element_bytes` is the size of an activation, which is also what mlx-lm caches.

    Raises UnknownSize when config.json does not give the sizes, and ImpossibleSize.
    """
    outer = module_name(config) or ""
    inner = module_name(text_config(config)) or outer
    text = {**default_sizes(inner), **_WRAPPED_SIZES.get(outer, {}), **text_config(config)}
    num_layers = _number(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if num_layers > MOST_LAYERS:
        raise ImpossibleSize(f"{num_layers:,} layers")
    names = {str(text.get("model_type")), inner, outer}
    # A wrapper that makes no cache is given growing ones, whatever the model inside it would have made.
    has_own_cache = makes_its_own_cache(outer)
    for family, read in _FAMILIES:
        if names & family and (has_own_cache or read not in (_window_pattern, _layer_types)):
            return _kept(names, [read(text, index, element_bytes) for index in range(num_layers)])
    if has_own_cache or "kv_lora_rank" in text:
        return (Layer("unknown", bytes_per_token=_attention_bytes(text, element_bytes, grouped=False)),) * num_layers
    return _kept(names, [_growing(text, element_bytes)] * num_layers)


def _kept(names: Set[str], layers: Sequence[Layer]) -> tuple[Layer, ...]:
    if not names & OWN_ATTENTION:
        return tuple(layers)
    obstacle = "mlx-lm's attention for this architecture takes them only as they are"
    return tuple(
        replace(layer, group_size=None, obstacle=obstacle) if layer.kind == "growing" else layer for layer in layers
    )


def _gated_delta(text: Mapping[str, Any], index: int, element_bytes: int) -> Layer:
    if (index + 1) % _number(text, "full_attention_interval", default=4) == 0:
        return _growing(text, element_bytes)
    key_dim, value_dim = _number(text, "linear_key_head_dim"), _number(text, "linear_value_head_dim")
    num_key_heads, num_value_heads = _number(text, "linear_num_key_heads"), _number(text, "linear_num_value_heads")
    channels = 2 * num_key_heads * key_dim + num_value_heads * value_dim
    convolution = (_number(text, "linear_conv_kernel_dim") - 1) * channels * element_bytes
    # mlx-lm keeps the recurrent state in float32, whatever the weights are.
    recurrent = num_value_heads * value_dim * key_dim * FLOAT32_BYTES
    return Layer("fixed", state_bytes=convolution + recurrent)


def _window_pattern(text: Mapping[str, Any], index: int, element_bytes: int) -> Layer:
    default = next((n for name, n in WINDOW_PATTERN.items() if name == text.get("model_type")), 6)
    pattern = _number(text, "sliding_window_pattern", default=default)
    return _attention(text, element_bytes, is_window=index % pattern != pattern - 1)


def _layer_types(text: Mapping[str, Any], index: int, element_bytes: int) -> Layer:
    types = text.get("layer_types")
    if types is None and text.get("model_type") == "gpt_oss":
        types = ["sliding_attention", "full_attention"] * (index + 1)
    if types is None and text.get("model_type") == "olmo3":
        types = [*["sliding_attention"] * 3, "full_attention"] * (index + 1)
    is_window = isinstance(types, list) and index < len(types) and types[index] == "sliding_attention"
    return _attention(text, element_bytes, is_window=is_window)


def _latent(text: Mapping[str, Any], index: int, element_bytes: int) -> Layer:
    width = _number(text, "kv_lora_rank") + _number(text, "qk_rope_head_dim")
    obstacle = "it keeps one compressed vector for all heads, which mlx-lm takes only as it is"
    return Layer("growing", bytes_per_token=width * element_bytes, obstacle=obstacle)


def _expanded(text: Mapping[str, Any], index: int, element_bytes: int) -> Layer:
    num_heads = _number(text, *_HEADS)
    key_dim = _number(text, "qk_nope_head_dim") + _number(text, "qk_rope_head_dim")
    value_dim = _number(text, "v_head_dim", default=_number(text, "hidden_size") // num_heads)
    return _growing_heads(num_heads, key_dim, value_dim, element_bytes)


_HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")

_FAMILIES: Final[tuple[tuple[frozenset[str], Callable[[Mapping[str, Any], int, int], Layer]], ...]] = (
    (GATED_DELTA, _gated_delta),
    (frozenset(WINDOW_PATTERN), _window_pattern),
    (LAYER_TYPES, _layer_types),
    (LATENT, _latent),
    (EXPANDED, _expanded),
)


def _attention(text: Mapping[str, Any], element_bytes: int, *, is_window: bool) -> Layer:
    if not is_window:
        return _growing(text, element_bytes)
    bytes_per_token = _attention_bytes(text, element_bytes)
    return Layer(
        "window",
        state_bytes=bytes_per_token * _number(text, "sliding_window"),
        window_bytes_per_token=bytes_per_token,
    )


def _growing(text: Mapping[str, Any], element_bytes: int) -> Layer:
    return _growing_heads(_num_kv_heads(text), _head_dim(text), _head_dim(text), element_bytes)


def _growing_heads(num_heads: int, key_dim: int, value_dim: int, element_bytes: int) -> Layer:
    group_size = kv_group_size(key_dim, value_dim)
    obstacle = None if group_size else f"heads of {key_dim} numbers can't be cut into groups of {KV_GROUP_SIZES[-1]}"
    return Layer(
        "growing",
        bytes_per_token=num_heads * (key_dim + value_dim) * element_bytes,
        group_size=group_size,
        element_bytes=element_bytes,
        obstacle=obstacle,
    )


def _attention_bytes(text: Mapping[str, Any], element_bytes: int, *, grouped: bool = True) -> int:
    """Bytes of one token's keys and values; not `grouped`: as if every query head had its own."""
    num_heads = _num_kv_heads(text) if grouped else _number(text, *_HEADS)
    return 2 * num_heads * _head_dim(text) * element_bytes


def _num_kv_heads(text: Mapping[str, Any]) -> int:
    return _number(text, "num_key_value_heads", "n_head_kv", default=_number(text, *_HEADS))


def _head_dim(text: Mapping[str, Any]) -> int:
    if text.get("head_dim") is not None:
        return _number(text, "head_dim")
    return _number(text, "hidden_size", "n_embd", "d_model", "dim") // _number(text, *_HEADS)


def _number(text: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_SIZE:
            return value
    if default is not None:
        return default
    raise UnknownSize(f"config.json has no number {names[0]}")
