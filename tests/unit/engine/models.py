"""Tiny models with random weights of each kind that the engine must serve, as mlx-lm builds them. No files."""

from typing import Any

import mlx.core as mx
from mlx.utils import tree_map_with_path
from mlx_lm.utils import _get_classes

VOCABULARY = 512
SLIDING_WINDOW = 32

DENSE = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 262144,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
HYBRID = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 262144,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "tie_word_embeddings": True,
        "full_attention_interval": 2,
        "rope_parameters": {"type": "default", "rope_theta": 100000, "partial_rotary_factor": 0.25},
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 32,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    },
}
SLIDING = {
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 16,
    "sliding_window": SLIDING_WINDOW,
    "sliding_window_pattern": 2,
    "max_position_embeddings": 32768,
}
KINDS = {"dense": DENSE, "hybrid": HYBRID, "sliding": SLIDING}

PARALLEL = {
    "model_type": "falcon_h1",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "mamba_d_ssm": 64,
    "mamba_d_head": 16,
    "mamba_n_heads": 4,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
    "lm_head_multiplier": 1.0,
    "attention_out_multiplier": 1.0,
    "ssm_out_multiplier": 1.0,
    "key_multiplier": 1.0,
    "mlp_multipliers": [1.0, 1.0],
    "ssm_multipliers": [1.0, 1.0, 1.0, 1.0, 1.0],
}
SPARSE = {
    "model_type": "deepseek_v32",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "index_head_dim": 32,
    "index_n_heads": 4,
    "index_topk": 24,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "qk_nope_head_dim": 16,
    "max_position_embeddings": 32768,
}
CHUNKED = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text",
        "attention_bias": False,
        "attention_chunk_size": SLIDING_WINDOW,
        "head_dim": 16,
        "hidden_size": 64,
        "interleave_moe_layer_step": 1,
        "intermediate_size": 64,
        "intermediate_size_mlp": 128,
        "max_position_embeddings": 32768,
        "num_attention_heads": 4,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "use_qk_norm": True,
        "vocab_size": VOCABULARY,
    },
}
# Attention and recurrence side by side in each layer, a sparse indexer's own keys, chunked windows: no rows for these.
OTHER_KINDS = {"parallel": PARALLEL, "sparse": SPARSE, "chunked": CHUNKED}


def with_wide_heads(kind: str) -> dict[str, Any]:
    """The same configuration with heads that are wide enough for quantised KV."""
    configuration = KINDS[kind]
    if kind == "hybrid":
        return {**configuration, "text_config": {**configuration["text_config"], "head_dim": 32}}
    return {**configuration, "head_dim": 64 if kind == "dense" else 32}


def initial_weight(path: str, parameter: mx.array) -> mx.array:
    """Random, but so that attention and recurrent state carry information far enough to be missed when wrong."""
    if parameter.ndim >= 2:
        deviation = 0.5 if path.endswith("conv1d.weight") else 0.02 if "embed" in path else parameter.shape[-1] ** -0.5
        return mx.random.normal(parameter.shape) * deviation
    if path.endswith("A_log"):
        return mx.log(mx.random.uniform(0.05, 1.0, parameter.shape))
    if path.endswith("dt_bias"):
        return mx.random.uniform(-6.0, -1.0, parameter.shape)
    return parameter


def build(configuration: dict[str, Any], *, seed: int = 0) -> Any:
    """A float32 model with the given configuration. The same seed gives the same weights."""
    model_class, arguments_class = _get_classes(configuration)
    mx.random.seed(seed)
    model = model_class(arguments_class.from_dict(configuration))
    model.update(tree_map_with_path(initial_weight, model.parameters()))
    mx.eval(model.parameters())
    model.eval()
    return model
