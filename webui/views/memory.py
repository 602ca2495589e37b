"""The memory bar: what the plan gives to whom, and what is really used.

It computes no plan; it draws the engine's own, so that the bar and the engine cannot drift apart.
"""

from dataclasses import dataclass
from typing import Literal

from control.wire import EngineView, MemoryPlan
from webui import numbers
from webui.text import Text

Part = Literal["weights", "fixed", "cache", "free", "spare"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the bar, in percent of the whole working set."""

    part: Part
    start_percent: float
    width_percent: float
    label: str
    value: str
    hint: str


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """`measured_percent` is where the device's own figure stands on the same scale; None while nothing is measured."""

    segments: tuple[Segment, ...]
    limit: str
    measured: str
    measured_percent: float | None
    summary: str


def memory_bar(engine: EngineView, text: Text) -> MemoryBar | None:
    """None while there is no plan: nothing is loaded and nothing is loading."""
    plan = engine.memory_plan
    if plan is None or plan.limit_bytes <= 0:
        return None
    actual = engine.memory_actual
    limit = numbers.size(plan.limit_bytes)
    measured = numbers.size(actual.active_bytes if actual is not None else None)
    segments = _segments(engine, plan, text)
    return MemoryBar(
        segments=segments,
        limit=limit,
        measured=measured,
        measured_percent=_percent(actual.active_bytes, plan.limit_bytes) if actual is not None else None,
        summary=text(
            "memory.summary",
            weights=segments[0].value,
            fixed=segments[1].value,
            cache=segments[2].value,
            pool=numbers.size(plan.pool_bytes),
            limit=limit,
            measured=measured,
        ),
    )


def no_plan_words(engine: EngineView | None, text: Text) -> str:
    """Why there is no bar, where there is none."""
    if engine is None:
        return text("memory.unknown")
    if engine.state == "failed":
        return text("memory.failed")
    is_coming = engine.is_downloading or engine.state in ("loading", "crashed")
    return text("memory.coming") if is_coming else text("memory.empty")


def _segments(engine: EngineView, plan: MemoryPlan, text: Text) -> tuple[Segment, ...]:
    actual = engine.memory_actual
    kept_bytes = engine.cache.used_bytes if engine.cache is not None else 0
    filled_bytes = min(actual.kv_bytes + kept_bytes, plan.pool_bytes) if actual is not None else 0
    pool_free_bytes = plan.pool_bytes - filled_bytes
    planned_bytes = plan.weights_bytes + plan.fixed_bytes + plan.pool_bytes
    cache_value = text(
        "memory.of",
        part=numbers.size(filled_bytes if actual is not None else None),
        whole=numbers.size(plan.pool_bytes),
    )
    cache_hint = text(
        "memory.cache_hint",
        running=numbers.size(actual.kv_bytes if actual is not None else None),
        kept=numbers.size(kept_bytes if actual is not None else None),
    )
    pieces: tuple[tuple[Part, int, str, str, str], ...] = (
        (
            "weights",
            plan.weights_bytes,
            text("memory.weights"),
            numbers.size(plan.weights_bytes),
            text("memory.weights_hint"),
        ),
        ("fixed", plan.fixed_bytes, text("memory.fixed"), numbers.size(plan.fixed_bytes), text("memory.fixed_hint")),
        ("cache", filled_bytes, text("memory.cache"), cache_value, cache_hint),
        ("free", pool_free_bytes, text("memory.free"), numbers.size(pool_free_bytes), text("memory.free_hint")),
        (
            "spare",
            max(plan.limit_bytes - planned_bytes, 0),
            text("memory.spare"),
            numbers.size(max(plan.limit_bytes - planned_bytes, 0)),
            text("memory.spare_hint"),
        ),
    )
    segments = []
    start_bytes = 0
    for part, num_bytes, label, value, hint in pieces:
        segments.append(
            Segment(
                part=part,
                start_percent=_percent(start_bytes, plan.limit_bytes),
                width_percent=_percent(num_bytes, plan.limit_bytes),
                label=label,
                value=value,
                hint=hint,
            )
        )
        start_bytes += num_bytes
    return tuple(segments)


def _percent(part_bytes: int, whole_bytes: int) -> float:
    return round(min(part_bytes / whole_bytes, 1.0) * 100, 2)
