"""From a name to a checked model: resolve, preflight, plan. No MLX is imported.

It loads nothing: the worker does, with what comes out of here.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from engine.errors import ModelRefused
from engine.memory import Limit, available_bytes, device_limit, host_limit, plan
from engine.model.library import resolve
from engine.model.preflight import Preflight, preflight
from engine.wire import Launch, MemoryPlan

GPU_PACKAGES: Final = "mlx-cuda-"
"""Begins the names of the packages with which MLX uses a GPU that has memory of its own."""


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model that can be loaded, as far as its files and the memory plan tell."""

    preflight: Preflight
    plan: MemoryPlan


def within_device(
    checked: CheckedModel, launch: Launch, working_set_bytes: int | None, *, platform: str = sys.platform
) -> CheckedModel:
    """The same model, planned again for what the GPU gives. Raises Refused.

    `working_set_bytes` None: a CPU, which the first plan was for. A Mac's GPU shares the machine's memory, so both
    limits hold, and the reserve is the machine's; elsewhere the GPU's own memory is all that counts.
    """
    if working_set_bytes is None:
        return _accepted(checked)
    limit = device_limit(working_set_bytes)
    if platform == "darwin":
        if limit.limit_bytes >= checked.plan.limit_bytes:
            return _accepted(checked)
        limit = Limit(limit.limit_bytes, checked.plan.reserve_bytes)
    return _accepted(_planned(checked.preflight, launch, limit))


def check_model(launch: Launch, home: Path, on_progress: Callable[[int, int], None]) -> CheckedModel:
    """Find the model, downloading it if need be, and check it. Raises Refused with one sentence.

    What does not fit into the machine's memory is refused here, unless a GPU may have room: `within_device` knows.
    """
    found = preflight(resolve(launch.model, home, on_progress=on_progress))
    checked = _planned(found, launch, host_limit(available_bytes()))
    return checked if has_gpu_memory() else _accepted(checked)


def has_gpu_memory() -> bool:
    """Whether MLX here is built for a GPU with memory of its own; only MLX can tell whether there is one."""
    return any((package.name or "").startswith(GPU_PACKAGES) for package in distributions())


def _planned(found: Preflight, launch: Launch, limit: Limit) -> CheckedModel:
    memory_plan = plan(found, limit, context=launch.context, budget_bytes=launch.budget_bytes, kv_bits=launch.kv_bits)
    return CheckedModel(found, memory_plan)


def _accepted(checked: CheckedModel) -> CheckedModel:
    if not checked.plan.fits:
        raise ModelRefused(checked.plan.verdict, reason="does_not_fit")
    return checked
