"""What a decode step of the loaded model reads from memory, and how fast this machine reads: the roofline.

It computes no speed: who asks knows how many streams there are, and how long their contexts.
"""

from collections.abc import Mapping
from typing import Any, Final

from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from engine.bandwidth import measured_bandwidth
from engine.memory import coefficients
from engine.model.layers import Layer, text_config
from engine.model.preflight import Preflight
from engine.wire import MemoryPlan, Roofline, SlidingWindow

# What architectures call it. Source: the modules of mlx-lm 0.32.2.
EXPERTS_PER_TOKEN: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "top_k_experts",
)


def roofline(model: Any, config: Mapping[str, Any], found: Preflight, plan: MemoryPlan) -> Roofline | None:
    """Measures for up to 0.3 s. None when the layers are of a kind whose sizes are only guessed, when it is not known
    how many experts a token takes, and when the pool is too small to measure in.
    """
    if not found.layers or any(layer.kind == "unknown" for layer in found.layers):
        return None
    experts = [
        module for _, module in model.named_modules() if isinstance(module, SwitchLinear | QuantizedSwitchLinear)
    ]
    num_experts = {int(module.weight.shape[0]) for module in experts}
    experts_per_token = _experts_per_token(config) if experts else 0
    if len(num_experts) > 1 or experts_per_token is None:
        return None
    bandwidth = measured_bandwidth(room_bytes=plan.pool_bytes)
    if bandwidth is None:
        return None
    experts_bytes = sum(map(_held_bytes, experts))
    return Roofline(
        bandwidth_bytes_per_s=bandwidth,
        shared_bytes=_held_bytes(model) - experts_bytes - _bytes_read_by_row(model, found.vocabulary_size),
        kv_bytes_per_token=coefficients(found, kv_bits=plan.kv_bits).kv_bytes_per_token,
        state_bytes=sum(layer.state_bytes for layer in found.layers if layer.kind == "fixed"),
        windows=_windows(found.layers),
        expert_bytes=experts_bytes // max(num_experts, default=1),
        num_experts=max(num_experts, default=0),
        experts_per_token=experts_per_token,
    )


def _held_bytes(module: Any) -> int:
    entries: Any = tree_flatten(module.parameters())
    return sum(int(parameter.nbytes) for _, parameter in entries)


def _experts_per_token(config: Mapping[str, Any]) -> int | None:
    text = text_config(config)
    found = (text.get(name) for name in EXPERTS_PER_TOKEN)
    return next((number for number in found if isinstance(number, int) and number > 0), None)


def _bytes_read_by_row(model: Any, vocabulary_size: int | None) -> int:
    """Of tables that a step takes one row a stream from. One that is also the output layer is read whole."""
    modules = [module for _, module in model.named_modules()]
    output_sizes = {int(each.weight.shape[0]) for each in modules if isinstance(each, Linear | QuantizedLinear)}
    tables = [each for each in modules if isinstance(each, Embedding | QuantizedEmbedding)]
    return sum(
        _held_bytes(table)
        for table in tables
        if (rows := int(table.weight.shape[0])) != vocabulary_size or rows in output_sizes
    )


def _windows(layers: tuple[Layer, ...]) -> tuple[SlidingWindow, ...]:
    sizes: dict[int, int] = {}
    for layer in layers:
        if layer.kind == "window":
            num_tokens = layer.state_bytes // layer.window_bytes_per_token
            sizes[num_tokens] = sizes.get(num_tokens, 0) + layer.window_bytes_per_token
    return tuple(SlidingWindow(tokens=tokens, bytes_per_token=size) for tokens, size in sorted(sizes.items()))
