"""The settings of a load: which values each may have, and what a request comes to with what was left out filled in.

It keeps nothing: what a model had last is `control.remembered`, what runs now is `control.lifecycle`.
"""

import unicodedata
from typing import Final, TypeVar

from control.lifecycle import Wanted
from control.wire import DEFAULT, LoadRequest

KV_BITS: Final = (8, 4)
# Source: engine.launch, which refuses a launch file beyond them.
LEAST_GAP_MS: Final = 50.0
MOST_GAP_MS: Final = 10_000.0
MOST_SHARE: Final = 0.9
# More than any machine has, and still exact in JSON and in SQLite.
MOST_WHOLE: Final = 2**53

# No name, and no path that a person means: NUL ends an argument, line breaks end a line, the last is no text at all.
NOT_IN_NAMES: Final = {
    "Cc": "control characters",
    "Zl": "line breaks",
    "Zp": "line breaks",
    "Cs": "halves of characters",
}

Number = TypeVar("Number", int, float)
Value = TypeVar("Value")


def complaint(request: LoadRequest) -> str | None:
    """One sentence about the first setting that can't be what it says; None when all can."""
    impossible = _impossible_in(request.model or "")
    if impossible is not None:
        return f"The name of a model can't hold {impossible}: {request.model!r}."
    if not _is_within(_number(request.context), 1, MOST_WHOLE):
        return f"context must be a number of tokens, 1 or more, or {DEFAULT}."
    if not _is_within(_number(request.budget_bytes), 1, MOST_WHOLE):
        return f"budget_bytes must be a number of bytes, 1 or more, or {DEFAULT}."
    if _number(request.kv_bits) not in (None, *KV_BITS):
        return f"kv_bits must be 8 or 4, or {DEFAULT}: keys and values as the model computes them."
    if not _is_within(_number(request.max_gap_ms), LEAST_GAP_MS, MOST_GAP_MS):
        return f"max_gap_ms must be from {LEAST_GAP_MS:.0f} to {MOST_GAP_MS:.0f}, or {DEFAULT}."
    if not _is_within(_number(request.decode_share), 0.0, MOST_SHARE):
        return f"decode_share must be from 0 to {MOST_SHARE}, or {DEFAULT}."
    return None


def completed(request: LoadRequest, had: Wanted) -> Wanted:
    """What `had`, which names the model, becomes by the request: the rest of what it had stays."""
    plain = Wanted(had.model)
    return Wanted(
        model=had.model,
        context=_chosen(request.context, had.context, plain.context),
        budget_bytes=_chosen(request.budget_bytes, had.budget_bytes, plain.budget_bytes),
        kv_bits=_chosen(request.kv_bits, had.kv_bits, plain.kv_bits),
        max_gap_ms=_chosen(request.max_gap_ms, had.max_gap_ms, plain.max_gap_ms),
        decode_share=_chosen(request.decode_share, had.decode_share, plain.decode_share),
    )


def _impossible_in(name: str) -> str | None:
    return next((NOT_IN_NAMES[kind] for kind in map(unicodedata.category, name) if kind in NOT_IN_NAMES), None)


def _number(asked: Number | str | None) -> Number | None:
    return None if isinstance(asked, str) else asked


def _is_within(number: float | None, least: float, most: float) -> bool:
    """False for what is no number at all (NaN), too."""
    return number is None or least <= number <= most


def _chosen(asked: Value | str | None, had: Value, plain: Value) -> Value:
    if asked is None:
        return had
    return plain if isinstance(asked, str) else asked
