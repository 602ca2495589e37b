"""What the device offers, as MLX tells it. It plans nothing: `memory.py` does, and needs no MLX.

The Metal branches were never run where this was written; on a CPU there is nothing to ask.
"""

from typing import Literal

import mlx.core as mx

from engine.wire_status import DeviceStatus


def device_status() -> DeviceStatus:
    """What computes here, and how much of its memory it recommends to use."""
    kind: Literal["cpu", "metal", "cuda"] = (
        "metal" if mx.metal.is_available() else "cuda" if mx.cuda.is_available() else "cpu"
    )
    return DeviceStatus(kind=kind, working_set_bytes=working_set_bytes())


def working_set_bytes() -> int | None:
    """Bytes that the GPU recommends to use at most; None on a CPU, whose memory the operating system tells."""
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"])
    return free_gpu_bytes()


def free_gpu_bytes() -> int | None:
    """Bytes free now in a GPU that has memory of its own; None where the device uses the machine's memory."""
    return int(mx.device_info()["free_memory"]) if mx.cuda.is_available() else None


def keep_resident() -> None:
    """Let Metal wire the model's memory, up to the working set: an idle Mac would page it out, and wake up slow.

    Source: mlx-lm's `generate` and its server do the same. Metal only; never run where this was written.
    """
    if mx.metal.is_available():
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
