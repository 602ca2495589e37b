"""A plan in sentences, from its numbers; and why a model can't be loaded, from the engine's reason.

It judges nothing: whether it fits is the engine's word. What has no reason keeps the engine's own sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from control.wire import NUM_SLOTS, MemoryPlan, PlanAnswer
from webui import numbers
from webui.text import Text

# Source: engine.errors.RefusalReason.
_REASON_TEXT: Final[Mapping[str, str]] = {
    "no_config": "plan.why_no_config",
    "damaged_config": "plan.why_damaged_config",
    "unsupported_architecture": "plan.why_unsupported_architecture",
    "needs_code": "plan.why_needs_code",
    "no_weights": "plan.why_no_weights",
    "missing_weights": "plan.why_missing_weights",
    "damaged_weights": "plan.why_damaged_weights",
    "wrong_type": "plan.why_wrong_type",
    "no_tokenizer": "plan.why_no_tokenizer",
    "damaged_tokenizer": "plan.why_damaged_tokenizer",
    "no_context_length": "plan.why_no_context_length",
    "kv_not_quantisable": "plan.why_kv_not_quantisable",
    "load_failed": "plan.why_load_failed",
}
# Source: engine.memory.SMALLEST_POOL_TOKENS.
SHORTEST_TOKENS: Final = 4096


@dataclass(frozen=True, slots=True)
class Why:
    """`detail` is the engine's own sentence, in English: it names the file that `sentence` does not."""

    sentence: str
    detail: str = ""


def why(answer: PlanAnswer, text: Text) -> Why:
    if answer.plan is not None:
        return Why(_verdict(answer.plan, text))
    if answer.outcome == "not_here":
        return Why(text("plan.not_here_why", model=answer.name))
    if answer.reason == "context_above_native" and answer.native_context_tokens is not None:
        native = numbers.tokens(answer.native_context_tokens)
        return Why(text("plan.why_context_above_native", model=answer.name, native=native))
    if answer.reason is not None and answer.reason in _REASON_TEXT:
        return Why(text(_REASON_TEXT[answer.reason], model=answer.name), answer.verdict)
    return Why(answer.verdict)


def request_bytes(plan: MemoryPlan) -> int:
    """What one running request of the whole context takes. Source: MemoryPlan, need(context, sequences)."""
    return 2 * plan.state_bytes_per_sequence + plan.maximum_context_tokens * plan.kv_bytes_per_token


def full_requests(plan: MemoryPlan) -> int:
    """How many of them run side by side."""
    full_bytes = request_bytes(plan)
    return min(plan.pool_bytes // full_bytes, NUM_SLOTS) if full_bytes else NUM_SLOTS


def _verdict(plan: MemoryPlan, text: Text) -> str:
    if plan.fits:
        sentences = _what_it_holds(plan, text)
    elif plan.pool_bytes <= _left_bytes(plan) and plan.smallest_pool_bytes <= _left_bytes(plan):
        sentences = (_too_small_a_pool(plan, text),)
    else:
        sentences = _what_is_lacking(plan, text)
    return text.join(*sentences, _caveat(plan, text))


def _left_bytes(plan: MemoryPlan) -> int:
    """For the pool; negative when not even the weights fit."""
    return plan.limit_bytes - plan.weights_bytes - plan.fixed_bytes


def _what_it_holds(plan: MemoryPlan, text: Text) -> tuple[str, ...]:
    pool = text("plan.says_pool", pool=numbers.size(plan.pool_bytes))
    full_bytes = request_bytes(plan)
    if not full_bytes:
        return (pool,)
    context, session = numbers.tokens(plan.maximum_context_tokens), numbers.tokens(plan.warm_session_tokens)
    if plan.longest_context_tokens < plan.maximum_context_tokens:
        room = text(
            "plan.says_longest",
            longest=numbers.tokens(plan.longest_context_tokens),
            context=context,
            more=numbers.size(full_bytes - plan.pool_bytes),
        )
    else:
        room = text.count("plan.says_full", full_requests(plan), context=context)
    if not plan.warm_sessions:
        return (pool, room, text("plan.says_no_warm", tokens=session))
    return (pool, room, text.count("plan.says_warm", plan.warm_sessions, tokens=session))


def _too_small_a_pool(plan: MemoryPlan, text: Text) -> str:
    return text(
        "plan.says_small_pool",
        pool=numbers.size(plan.pool_bytes),
        tokens=numbers.tokens(min(plan.maximum_context_tokens, SHORTEST_TOKENS)),
        needed=numbers.size(plan.smallest_pool_bytes),
    )


def _what_is_lacking(plan: MemoryPlan, text: Text) -> tuple[str, ...]:
    pool_bytes, left_bytes = max(plan.pool_bytes, plan.smallest_pool_bytes), _left_bytes(plan)
    needed_bytes = plan.weights_bytes + plan.fixed_bytes + pool_bytes
    is_budget = left_bytes >= plan.smallest_pool_bytes
    return (
        text(
            "plan.says_too_large",
            needed=numbers.size(needed_bytes),
            more=numbers.size(needed_bytes - plan.limit_bytes),
            limit=numbers.size(plan.limit_bytes),
        ),
        text("plan.says_less_budget", left=numbers.size(left_bytes)) if is_budget else text("plan.says_smaller_model"),
    )


def _caveat(plan: MemoryPlan, text: Text) -> str:
    if plan.is_known:
        return ""
    return text("plan.says_counted_large" if request_bytes(plan) else "plan.says_not_counted")
