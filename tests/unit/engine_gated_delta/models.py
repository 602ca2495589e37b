"""Tiny models whose gated delta layers differ from the hybrid's. It builds none; `tests.unit.engine.models` does."""

from tests.unit.engine.models import VOCABULARY

OLMO = {
    "model_type": "olmo_hybrid",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "linear_allow_neg_eigval": True,
    "tie_word_embeddings": True,
    "attention_bias": False,
}
"""Strengths up to two instead of one."""

KIMI = {
    "model_type": "kimi_linear",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "head_dim": 16,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "linear_attn_config": {"num_heads": 4, "head_dim": 16, "kda_layers": [1], "short_conv_kernel_size": 4},
    "model_max_length": 4096,
    "num_experts": 0,
    "moe_intermediate_size": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "tie_word_embeddings": True,
}
"""A decay per key dimension."""
