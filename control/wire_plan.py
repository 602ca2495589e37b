"""A load that is planned and not ordered: a part of control's door, which `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only.
"""

from typing import Literal

from engine.wire import Frozen, MemoryPlan

# too_large: with these settings it does not fit. refused: it can't be loaded with them at all.
PlanOutcome = Literal["fits", "too_large", "refused", "not_here"]


class PlanRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /plan: what a load with the same settings would find. A setting means what it means in a LoadRequest."""

    model: str
    context: int | Literal["default"] | None = None
    budget_bytes: int | Literal["default"] | None = None
    kv_bits: int | Literal["default"] | None = None


class PlanAnswer(Frozen, frozen=True, omit_defaults=False):
    """The engine's own plan. A refusal is an answer, too: `verdict` is one sentence, with the numbers.

    `plan` None: refused, or not on this machine yet, so that only a load can tell. `reason`: why it was refused, one of
    `engine.errors.RefusalReason`; for a context above the native one, `native_context_tokens` is there, too.
    """

    outcome: PlanOutcome
    verdict: str
    name: str
    plan: MemoryPlan | None = None
    native_context_tokens: int | None = None
    reason: str | None = None
