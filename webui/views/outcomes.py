"""How a request ended, in words: the outcome with its mark, and the reason.

It knows no page; what the gateway's codes mean is in `control.errors`.
"""

from dataclasses import dataclass
from typing import Final

from control.wire import Outcome, RequestRow
from webui.text import Text
from webui.views.shell import Tone

OUTCOME_TEXT: Final[dict[Outcome, str]] = {
    "completed": "outcome.completed",
    "cancelled": "outcome.cancelled",
    "failed": "outcome.failed",
    "rejected": "outcome.rejected",
}
_OUTCOME_TONE: Final[dict[Outcome, Tone]] = {
    "completed": "good",
    "cancelled": "idle",
    "failed": "bad",
    "rejected": "wait",
}
_OUTCOME_SIGN: Final[dict[Outcome, str]] = {"completed": "✓", "cancelled": "–", "failed": "✕", "rejected": "!"}
# Source: control.errors. A code that is not here is shown as it is.
_REASON_TEXT: Final[dict[str, str]] = {
    "client_gone": "reason.client_gone",
    "context_length_exceeded": "reason.context_length_exceeded",
    "engine_died": "reason.engine_died",
    "engine_error": "reason.engine_error",
    "engine_stopped": "reason.engine_stopped",
    "gateway_restarts": "reason.gateway_restarts",
    "internal_error": "reason.internal_error",
    "invalid_request": "reason.invalid_request",
    "key_limit_reached": "reason.key_limit_reached",
    "model_changed": "reason.model_changed",
    "no_model": "reason.no_model",
    "quitting": "reason.quitting",
    "rate_limit_exceeded": "reason.rate_limit_exceeded",
    "waited_too_long": "reason.waited_too_long",
}
# The word for the outcome says all of it.
_CODES_WITHOUT_REASON: Final = frozenset({"request_cancelled"})


@dataclass(frozen=True, slots=True)
class Ending:
    """`reason` is a word for `code`, which a program would see; both are empty when there is nothing to say."""

    word: str
    reason: str
    code: str
    sign: str
    tone: Tone


def ending_of(row: RequestRow, text: Text) -> Ending:
    return Ending(
        word=text(OUTCOME_TEXT[row.outcome]),
        reason=_reason(row.error_code, text),
        code=row.error_code or "",
        sign=_OUTCOME_SIGN[row.outcome],
        tone=_OUTCOME_TONE[row.outcome],
    )


def _reason(code: str | None, text: Text) -> str:
    if code is None or code in _CODES_WITHOUT_REASON:
        return ""
    return text(_REASON_TEXT[code]) if code in _REASON_TEXT else code
