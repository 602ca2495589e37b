"""Models with random weights, built in memory: one of each kind of layer, in a size for a CPU and one for a GPU.

It measures nothing and downloads nothing. Small models are float32 (at least 25M parameters); those for a GPU are
bfloat16 with 4-bit weights in groups of 64, whose bits are drawn directly: nothing is ever held unquantised.
"""

import time
from collections.abc import Callable
from typing import Any, Final, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import _get_classes

Kind = Literal["dense", "hybrid", "sliding"]
Size = Literal["small", "gpu"]

GROUP_SIZE: Final = 64
BITS: Final = 4

DENSE_SMALL: Final = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "vocab_size": 8192,
    "max_position_embeddings": 262144,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}
# The shape of an 8B dense model: 36 layers, 4 query heads to a key head.
DENSE_GPU: Final = DENSE_SMALL | {
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
HYBRID_SMALL_TEXT: Final = {
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 384,
    "num_hidden_layers": 8,
    "intermediate_size": 768,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "vocab_size": 8192,
    "max_position_embeddings": 262144,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
    "full_attention_interval": 4,
    "rope_parameters": {"type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 256,
    "moe_intermediate_size": 256,
    "norm_topk_prob": True,
}
# The shape of a 35B mixture with 3B active: 30 gated-delta and 10 attention layers, 8 of 256 experts.
HYBRID_GPU_TEXT: Final = HYBRID_SMALL_TEXT | {
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "intermediate_size": 6144,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 248320,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "tie_word_embeddings": False,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "shared_expert_intermediate_size": 512,
    "moe_intermediate_size": 512,
}
SLIDING_SMALL: Final = {
    "model_type": "gemma3_text",
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "vocab_size": 8192,
    "query_pre_attn_scalar": 64,
    "sliding_window": 512,
    "sliding_window_pattern": 4,
    "max_position_embeddings": 262144,
}
SLIDING_GPU: Final = SLIDING_SMALL | {
    "hidden_size": 2560,
    "num_hidden_layers": 34,
    "intermediate_size": 10240,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "query_pre_attn_scalar": 256,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
}
CONFIGURATIONS: Final[dict[tuple[Kind, Size], dict[str, Any]]] = {
    ("dense", "small"): DENSE_SMALL,
    ("dense", "gpu"): DENSE_GPU,
    ("hybrid", "small"): {"model_type": "qwen3_5_moe", "text_config": HYBRID_SMALL_TEXT},
    ("hybrid", "gpu"): {"model_type": "qwen3_5_moe", "text_config": HYBRID_GPU_TEXT},
    ("sliding", "small"): SLIDING_SMALL,
    ("sliding", "gpu"): SLIDING_GPU,
}

# Standard deviation of a number drawn evenly from 0 .. 2^bits - 1: what a step of the scale has to be divided by.
_SPREAD: Final = {4: 4.61, 8: 73.9}


def default_size() -> Size:
    return "small" if mx.default_device() == mx.cpu else "gpu"


def vocabulary_of(kind: Kind, size: Size) -> int:
    configuration = CONFIGURATIONS[kind, size]
    return int(configuration.get("text_config", configuration)["vocab_size"])


def build(kind: Kind, size: Size, *, say: Callable[[str], None] = print) -> Any:
    """The model, evaluated and ready. The same weights every time on one device."""
    began_at = time.perf_counter()
    model = of_configuration(CONFIGURATIONS[kind, size], is_quantised=size == "gpu")
    say(f"{kind} {size}: {num_parameters(model) / 1e6:,.0f}M parameters in {time.perf_counter() - began_at:.1f} s")
    return model


def of_configuration(configuration: dict[str, Any], *, is_quantised: bool, seed: int = 0) -> Any:
    model_class, arguments_class = _get_classes(configuration)
    mx.random.seed(seed)
    model = model_class(arguments_class.from_dict(configuration))
    if is_quantised:
        predicate = getattr(model, "quant_predicate", None) or _can_quantise
        nn.quantize(model, GROUP_SIZE, BITS, class_predicate=lambda path, module: _chosen(predicate, path, module))
    bits_of = {
        path: module.bits for path, module in model.named_modules() if hasattr(module, "bits") and "scales" in module
    }
    # Nothing was computed so far: the initial weights are lazy, and replaced one by one before they ever exist.
    for path, parameter in tree_flatten(model.parameters()):
        module_path, _, name = path.rpartition(".")
        weight = _quantised(model, module_path, name, parameter, bits_of) if module_path in bits_of else None
        if weight is None:
            weight = _plain(path, parameter)
            if is_quantised and weight.dtype == mx.float32 and not path.endswith("A_log"):
                weight = weight.astype(mx.bfloat16)
        mx.eval(weight)
        model.update(tree_unflatten([(path, weight)]))
    model.eval()
    return model


def num_parameters(model: Any) -> int:
    bits_of = {path: module.bits for path, module in model.named_modules() if hasattr(module, "bits")}
    total = 0
    for path, parameter in tree_flatten(model.parameters()):
        module_path, _, name = path.rpartition(".")
        if module_path not in bits_of:
            total += parameter.size
        elif name == "weight":
            total += parameter.size * 32 // bits_of[module_path]
    return total


def _can_quantise(_path: str, _module: Any) -> bool:
    return True


def _chosen(predicate: Callable[[str, Any], Any], path: str, module: Any) -> Any:
    if not hasattr(module, "to_quantized") or module.weight.shape[-1] % GROUP_SIZE:
        return False
    return predicate(path, module)


def _quantised(model: Any, module_path: str, name: str, parameter: mx.array, bits_of: dict[str, int]) -> Any:
    """Random bits, and the scale and offset that make them weights of mean 0 and variance 1 / fan-in."""
    bits = bits_of[module_path]
    if name == "weight":
        halves = [mx.random.randint(0, 1 << 16, parameter.shape, mx.uint32) for _ in range(2)]
        return halves[0] | (halves[1] << 16)
    if name not in ("scales", "biases"):
        return None
    groups = parameter.shape[-1] * GROUP_SIZE
    scale = (0.02 if "embed" in module_path else groups**-0.5) / _SPREAD[bits]
    value = scale if name == "scales" else -scale * ((1 << bits) - 1) / 2
    return mx.full(parameter.shape, value, dtype=mx.bfloat16)


def _plain(path: str, parameter: mx.array) -> mx.array:
    """Random, but so that attention and recurrent state carry information far, and logits stay finite."""
    if parameter.ndim >= 2:
        deviation = 0.5 if path.endswith("conv1d.weight") else 0.02 if "embed" in path else parameter.shape[-1] ** -0.5
        return mx.random.normal(parameter.shape) * deviation
    if path.endswith("A_log"):
        return mx.log(mx.random.uniform(0.05, 1.0, parameter.shape))
    if path.endswith("dt_bias"):
        return mx.random.uniform(-6.0, -1.0, parameter.shape)
    return parameter
