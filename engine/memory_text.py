"""The words of the memory plan: sizes as people write them, and the one sentence that says whether a model fits.

It computes no plan: `memory.py` does, and hands over the numbers.
"""

import re
from dataclasses import dataclass
from typing import Final

GIB: Final = 2**30
MIB: Final = 2**20
KIB: Final = 2**10

_UNITS: Final = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": 2**40}
_SIZE: Final = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kmgt]?)i?b?", re.IGNORECASE)

_UNKNOWN: Final = (
    " Splash does not know the layers of this architecture: its context is counted as large as can be.",
    " Splash does not know the layers of this architecture: what its context takes is not counted.",
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the sentences are made of. Bytes and tokens.

    `left_bytes` is what weights and runtime leave of the limit; negative when not even they fit. `short_tokens` is the
    shortest sequence that must run, `short_bytes` what it takes. `longest_tokens` is the longest that the pool holds
    alone, `full_bytes` what one of the whole context takes, `full_sequences` how many of them run at once. `is_known`
    False: the layers are not.
    """

    name: str
    weights_bytes: int
    fixed_bytes: int
    limit_bytes: int
    left_bytes: int
    pool_bytes: int
    short_tokens: int
    short_bytes: int
    context: int
    full_bytes: int
    full_sequences: int
    longest_tokens: int
    warm_sessions: int
    warm_session_tokens: int
    is_known: bool

    @property
    def caveat(self) -> str:
        """What the reader must know about the numbers; empty when they are exact."""
        if self.is_known:
            return ""
        return _UNKNOWN[0] if self.full_bytes else _UNKNOWN[1]


def size_text(num_bytes: int) -> str:
    if num_bytes >= GIB:
        return f"{num_bytes / GIB:,.1f} GiB"
    return f"{num_bytes / MIB:,.0f} MiB" if num_bytes >= MIB else f"{num_bytes / KIB:,.0f} KiB"


def bytes_of(text: str) -> int:
    """Read a size as people write it: `12GiB`, `1.5 g`, `800MB`, or bytes. Units are powers of 1024.

    Raises ValueError for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text} is not a size: give bytes, or a number with KiB, MiB, GiB or TiB")
    return int(float(match["number"]) * _UNITS[match["unit"].lower()])


def too_large(figures: Figures, *, wanted_pool_bytes: int) -> str:
    total_bytes = figures.weights_bytes + figures.fixed_bytes + wanted_pool_bytes
    weights, runtime = size_text(figures.weights_bytes), size_text(figures.fixed_bytes)
    if figures.left_bytes >= figures.short_bytes:
        remedy = f"a budget of {size_text(figures.left_bytes)} or less fits"
    else:
        remedy = "a smaller or lower-bit version would fit, or memory that other programs give back"
    lacking = size_text(total_bytes - figures.limit_bytes)
    return (
        f"{figures.name} does not fit: it takes {size_text(total_bytes)} ({weights} weights, {runtime} runtime, "
        f"{size_text(wanted_pool_bytes)} pool), {lacking} more than the {size_text(figures.limit_bytes)} there are; "
        f"{remedy}.{figures.caveat}"
    )


def budget_too_small(figures: Figures) -> str:
    return (
        f"{figures.name} does not fit: a budget of {size_text(figures.pool_bytes)} cannot hold one sequence of "
        f"{figures.short_tokens:,} tokens, which takes {size_text(figures.short_bytes)}.{figures.caveat}"
    )


def acceptance(figures: Figures) -> str:
    pool = f"{figures.name} fits, with {size_text(figures.pool_bytes)} for contexts"
    if figures.full_bytes == 0:
        return f"{pool}.{figures.caveat}"
    return f"{pool}: {_longest(figures)}; {_warm(figures)}.{figures.caveat}"


def _longest(figures: Figures) -> str:
    if figures.longest_tokens < figures.context:
        return (
            f"one sequence of up to {figures.longest_tokens:,} tokens; the full {figures.context:,} would take "
            f"{size_text(figures.full_bytes - figures.pool_bytes)} more"
        )
    sequences = "sequence" if figures.full_sequences == 1 else "sequences"
    return f"{figures.full_sequences} {sequences} of the full {figures.context:,} tokens at once"


def _warm(figures: Figures) -> str:
    sessions = {0: "no session", 1: "1 session"}.get(figures.warm_sessions, f"{figures.warm_sessions:,} sessions")
    verb = "stays" if figures.warm_sessions < 2 else "stay"
    return f"{sessions} of {figures.warm_session_tokens:,} tokens {verb} warm"
