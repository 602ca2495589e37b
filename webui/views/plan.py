"""The plan of a load: what memory goes to whom, what it is good for, and whether it can be loaded at all.

It computes no plan: the engine did. Where sliders can stand is all that is decided here.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from control.wire import MemoryPlan, PlanAnswer, PlanOutcome
from webui import numbers
from webui.text import Text
from webui.views.facts import Fact
from webui.views.memory import Part, Segment
from webui.views.plan_words import full_requests, request_bytes, why
from webui.views.shell import Tone

LEAST_CONTEXT_TOKENS: Final = 4096

_MIB: Final = 2**20
_GIB: Final = 2**30
_TONE: Final[dict[PlanOutcome, Tone]] = {"fits": "good", "too_large": "bad", "refused": "bad", "not_here": "idle"}
_SIGN: Final[dict[PlanOutcome, str]] = {"fits": "✓", "too_large": "✕", "refused": "✕", "not_here": "○"}
_HEADLINE: Final[dict[PlanOutcome, str]] = {
    "fits": "plan.fits",
    "too_large": "plan.too_large",
    "refused": "plan.refused",
    "not_here": "plan.not_here",
}


@dataclass(frozen=True, slots=True)
class Steps:
    """Where a slider can stand, as its field writes it, and where it stands now."""

    values: tuple[str, ...]
    at: int

    @property
    def data(self) -> str:
        return json.dumps(self.values, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class PlanBar:
    """`limit_percent` is where this machine's memory ends: before the end of the bar when something does not fit."""

    segments: tuple[Segment, ...]
    limit: str
    limit_percent: float
    summary: str


@dataclass(frozen=True, slots=True)
class PlanView:
    """`detail` is the engine's own sentence, in English. Without `bar` nothing is known in numbers."""

    tone: Tone
    sign: str
    headline: str
    reason: str
    is_loadable: bool
    detail: str = ""
    bar: PlanBar | None = None
    facts: tuple[Fact, ...] = ()
    context_steps: Steps | None = None
    budget_steps: Steps | None = None


def plan_view(answer: PlanAnswer, text: Text) -> PlanView:
    plan, native, reason = answer.plan, answer.native_context_tokens, why(answer, text)
    return PlanView(
        tone=_TONE[answer.outcome],
        sign=_SIGN[answer.outcome],
        headline=text(_HEADLINE[answer.outcome]),
        reason=reason.sentence,
        detail=reason.detail,
        is_loadable=answer.outcome in ("fits", "not_here"),
        bar=_bar(plan, text) if plan is not None else None,
        facts=_facts(plan, text) if plan is not None else (),
        context_steps=context_steps(native, plan.maximum_context_tokens) if plan is not None and native else None,
        budget_steps=budget_steps(plan) if plan is not None else None,
    )


def refused_plan(sentence: str, text: Text, *, detail: str = "") -> PlanView:
    """Control refuses the very question, or a field can't be used."""
    headline = text("plan.refused")
    return PlanView(tone="bad", sign="✕", headline=headline, reason=sentence, detail=detail, is_loadable=False)


def unknown_plan(text: Text) -> PlanView:
    """Control did not answer in time: whoever loads finds out."""
    headline = text("plan.unknown")
    return PlanView(tone="wait", sign="◒", headline=headline, reason=text("plan.unknown_why"), is_loadable=True)


def context_steps(native: int, current: int) -> Steps | None:
    """From 4,096 tokens to what the model was made for. None when there is nothing to choose."""
    if native <= LEAST_CONTEXT_TOKENS:
        return None
    return _steps(_grid(LEAST_CONTEXT_TOKENS, native), current, numbers.tokens)


def budget_steps(plan: MemoryPlan) -> Steps | None:
    """From the smallest pool that runs a request to all that weights and runtime leave. None when that is nothing."""
    left_bytes = plan.limit_bytes - plan.weights_bytes - plan.fixed_bytes
    least_bytes, most_bytes = _rounded(plan.smallest_pool_bytes, math.ceil), _rounded(left_bytes, math.floor)
    if least_bytes <= 0 or most_bytes <= least_bytes:
        return None
    return _steps(_grid(least_bytes, most_bytes), plan.pool_bytes, budget_text)


def budget_text(num_bytes: int) -> str:
    """As exact as the field is read back: 512 MiB, 12.25 GiB."""
    if num_bytes < _GIB:
        return f"{num_bytes // _MIB} MiB"
    return f"{num_bytes / _GIB:.2f}".rstrip("0").rstrip(".") + " GiB"


def _rounded(num_bytes: int, way: Callable[[float], int]) -> int:
    """To what `budget_text` can say."""
    unit = _MIB if num_bytes < _GIB else _GIB / 100
    return int(way(num_bytes / unit) * unit)


def _grid(least: int, most: int) -> tuple[int, ...]:
    """Both ends, and between them four to each doubling: 4, 5, 6, 7, 8, 10, 12, 14, 16, …"""
    doublings = range(least.bit_length() - 1, most.bit_length())
    between = (quarters * 2**doubling // 4 for doubling in doublings for quarters in (4, 5, 6, 7))
    return (least, *(value for value in between if least < value < most), most)


def _steps(values: tuple[int, ...], current: int, written: Callable[[int], str]) -> Steps:
    at = min(range(len(values)), key=lambda position: abs(values[position] - current))
    return Steps(tuple(written(value) for value in values), at)


def _bar(plan: MemoryPlan, text: Text) -> PlanBar:
    pool_bytes = max(plan.pool_bytes, plan.smallest_pool_bytes)
    needed_bytes = plan.weights_bytes + plan.fixed_bytes + pool_bytes
    whole_bytes = max(needed_bytes, plan.limit_bytes, 1)
    pieces: tuple[tuple[Part, int, str, str], ...] = (
        ("weights", plan.weights_bytes, text("memory.weights"), text("memory.weights_hint")),
        ("fixed", plan.fixed_bytes, text("memory.fixed"), text("memory.fixed_hint")),
        ("cache", pool_bytes, text("plan.pool"), text("plan.pool_hint")),
        ("spare", whole_bytes - needed_bytes, text("memory.spare"), text("memory.spare_hint")),
    )
    segments, start_bytes = [], 0
    for part, num_bytes, label, hint in pieces if needed_bytes < whole_bytes else pieces[:-1]:
        segments.append(
            Segment(
                part=part,
                start_percent=round(start_bytes / whole_bytes * 100, 2),
                width_percent=round(num_bytes / whole_bytes * 100, 2),
                label=label,
                value=numbers.size(num_bytes),
                hint=hint,
            )
        )
        start_bytes += num_bytes
    limit = numbers.size(plan.limit_bytes)
    weights, fixed, pool = segments[:3]
    return PlanBar(
        segments=tuple(segments),
        limit=limit,
        limit_percent=round(plan.limit_bytes / whole_bytes * 100, 2),
        summary=text("plan.summary", weights=weights.value, fixed=fixed.value, pool=pool.value, limit=limit),
    )


def _facts(plan: MemoryPlan, text: Text) -> tuple[Fact, ...]:
    context = numbers.tokens(plan.maximum_context_tokens)
    one_request, at_once = numbers.size(request_bytes(plan)), full_requests(plan)
    warm = text.count("fact.warm_of", plan.warm_sessions, tokens=numbers.tokens_short(plan.warm_session_tokens))
    longest = text("plan.tokens", n=numbers.tokens(plan.longest_context_tokens))
    return (
        Fact(text("plan.longest"), longest, text("plan.longest_hint", context=context)),
        Fact(
            text("plan.at_once"),
            text("plan.at_once_of", n=at_once, context=context),
            text("plan.at_once_hint", size=one_request),
        ),
        Fact(text("fact.warm"), warm, text("fact.warm_hint", tokens=numbers.tokens(plan.warm_session_tokens))),
        Fact(text("plan.per_token"), numbers.size(plan.kv_bytes_per_token), text("plan.per_token_hint")),
        Fact(text("plan.per_request"), one_request, text("plan.per_request_hint", context=context)),
        Fact(text("plan.reserve"), numbers.size(plan.reserve_bytes), text("plan.reserve_hint")),
    )
