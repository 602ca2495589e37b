"""From a name to a checked model: resolve, preflight, plan. No MLX is imported.

It loads nothing: the worker does, with what comes out of here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelRefused
from engine.memory import device_limit_bytes, plan
from engine.model.library import resolve
from engine.model.preflight import Preflight, preflight
from engine.wire import Launch, MemoryPlan


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model that can be loaded, as far as its files and the memory plan tell."""

    preflight: Preflight
    plan: MemoryPlan


def within_device(checked: CheckedModel, launch: Launch, working_set_bytes: int | None) -> CheckedModel:
    """The same model, planned again when the GPU recommends less than the machine has free. Raises Refused.

    `working_set_bytes` None: a CPU, which the first plan was for.
    """
    if working_set_bytes is None or working_set_bytes >= checked.plan.limit_bytes:
        return checked
    return _planned(checked.preflight, launch, limit_bytes=working_set_bytes)


def check_model(launch: Launch, home: Path, on_progress: Callable[[int, int], None]) -> CheckedModel:
    """Find the model, downloading it if need be, and check it. Raises Refused with one sentence."""
    found = preflight(resolve(launch.model, home, on_progress=on_progress))
    return _planned(found, launch, limit_bytes=device_limit_bytes())


def _planned(found: Preflight, launch: Launch, *, limit_bytes: int) -> CheckedModel:
    memory_plan = plan(found, limit_bytes=limit_bytes, context=launch.context, budget_bytes=launch.budget_bytes)
    if not memory_plan.fits:
        raise ModelRefused(memory_plan.verdict, reason="does_not_fit")
    return CheckedModel(found, memory_plan)
