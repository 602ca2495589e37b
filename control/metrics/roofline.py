"""The most tokens a second that the memory's bandwidth allows, from what the engine says that a step reads.

It measures nothing: the engine did, when it loaded the model.
"""

from engine.wire import Roofline


def ceiling_tokens_per_second(roofline: Roofline, *, width: int, context_tokens: float) -> float:
    """Of `width` streams together, each with `context_tokens`, when every step gives each of them one token.

    Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009: attainable = bandwidth * intensity; at these widths
    decoding is bound by memory. A step that gives a stream more than one token (speculation) can be above it.
    """
    return width * roofline.bandwidth_bytes_per_s / step_bytes(roofline, width=width, context_tokens=context_tokens)


def step_bytes(roofline: Roofline, *, width: int, context_tokens: float) -> float:
    """What one step reads. Writes are left out: a token's keys and values, and fixed state, which are small beside."""
    windows = sum(min(context_tokens, window.tokens) * window.bytes_per_token for window in roofline.windows)
    stream_bytes = context_tokens * roofline.kv_bytes_per_token + roofline.state_bytes + windows
    return roofline.shared_bytes + union_of_experts(roofline, width) * roofline.expert_bytes + width * stream_bytes


def union_of_experts(roofline: Roofline, width: int) -> float:
    """How many different experts a layer reads, in the mean, when each stream's token chooses its own evenly.

    E * (1 - (1 - k / E) ** width): one is left out by a token with probability 1 - k / E, and by all of them together
    with that to the power of their number. Tokens of like texts choose alike, so it is rather fewer.
    """
    num_experts = roofline.num_experts
    if not num_experts:
        return 0.0
    return num_experts * float(1 - (1 - roofline.experts_per_token / num_experts) ** width)
