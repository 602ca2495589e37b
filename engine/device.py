"""What the device offers, as MLX tells it. It plans nothing: `memory.py` does, and needs no MLX.

The Metal and CUDA branches were never run where this was written; on a CPU there is nothing to ask.
"""

import mlx.core as mx


def working_set_bytes() -> int | None:
    """Bytes that the GPU recommends to use at most; None on a CPU, whose memory the operating system tells."""
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"])
    if mx.cuda.is_available():
        return int(mx.device_info()["free_memory"])
    return None
