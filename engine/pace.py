"""How many tokens of a prompt fit in a slice of so many ms, from what earlier slices took.

It decides no order and reads no clock: `scheduler.py` asks before a slice, and tells afterwards what it took.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

FIRST_SLICE_TOKENS: Final = 64
SMALLEST_SLICE_TOKENS: Final = 16
LARGEST_SLICE_TOKENS: Final = 2048  # bounds the scratch memory of a slice
LARGEST_SLICE_GROWTH: Final = 2  # a speed measured on a short slice says little about a long one
# Neighbouring slices differ by a tenth on a quiet machine; aiming below the target costs no throughput.
AIM: Final = 0.9
NUM_SPEEDS: Final = 3  # one lucky slice must not lengthen the next one
# At this depth attending to what came before is taken to cost as much as everything else. Models reach that point at
# 7k to 40k tokens; a guess that is too low makes the first slices at a new depth short, and no others.
EQUAL_COST_TOKENS: Final = 4096
# What a slice costs whatever its length can't be cut. One of at most SHRUNK times the tokens of the first that was too
# long, and still STAYED times as long, says so: that first length stays, and shorter ones are tried after RETRY_SLICES.
SHRUNK: Final = 0.3
STAYED: Final = 0.75
RETRY_SLICES: Final = 8


@dataclass(frozen=True, slots=True)
class _Speed:
    tokens_per_ms: float
    depth: int  # tokens that came before the slice

    def at(self, depth: int) -> float:
        """The speed to expect behind `depth` tokens: a slice only gets slower the more comes before it."""
        return self.tokens_per_ms * min(1.0, (self.depth + EQUAL_COST_TOKENS) / (depth + EQUAL_COST_TOKENS))


class PrefillPace:
    """Of one prompt: as long as the slowest of the last speeds allows. `depth` is how many tokens came before."""

    def __init__(self) -> None:
        self._speeds: deque[_Speed] = deque(maxlen=NUM_SPEEDS)
        self._last_tokens = FIRST_SLICE_TOKENS
        self._is_guess = False
        self._too_long: tuple[int, float] | None = None  # tokens and ms of the first slice beyond the target
        self._floor_tokens = SMALLEST_SLICE_TOKENS
        self._num_at_floor = 0

    def for_another(self) -> "PrefillPace":
        """What to expect of another prompt, until its own first slice is known."""
        pace = PrefillPace()
        pace._speeds.extend(self._speeds)
        pace._last_tokens = self._last_tokens
        pace._is_guess = True
        return pace

    @property
    def is_cut_in_vain(self) -> bool:
        """Whether shorter slices took as long, so that they are as long as before."""
        return self._floor_tokens > SMALLEST_SLICE_TOKENS

    def slice_tokens(self, target_ms: float, *, depth: int = 0) -> int:
        if not self._speeds:
            return FIRST_SLICE_TOKENS
        fitting = int(min(speed.at(depth) for speed in self._speeds) * target_ms * AIM)
        wanted = min(fitting, self._last_tokens * LARGEST_SLICE_GROWTH)
        return max(self._floor_tokens, min(wanted, LARGEST_SLICE_TOKENS))

    def observe(self, num_tokens: int, elapsed_ms: float, *, target_ms: float, depth: int = 0) -> None:
        """The short end of a prompt is slow by the token; it must not shrink the slices of the next prompt."""
        is_short_end = num_tokens < self.slice_tokens(target_ms, depth=depth) // 2 and elapsed_ms <= target_ms
        if self._speeds and is_short_end:
            return
        if self._is_guess:
            self._speeds.clear()
            self._is_guess = False
        self._speeds.append(_Speed(num_tokens / max(elapsed_ms, 0.001), depth))
        self._last_tokens = max(num_tokens, SMALLEST_SLICE_TOKENS)
        self._set_floor(num_tokens, elapsed_ms, is_too_long=elapsed_ms > target_ms)

    def _set_floor(self, num_tokens: int, elapsed_ms: float, *, is_too_long: bool) -> None:
        self._num_at_floor += 1
        if not is_too_long:
            self._too_long = None
        elif self._too_long is None:
            self._too_long = (num_tokens, elapsed_ms)
        else:
            first_tokens, first_ms = self._too_long
            if num_tokens <= SHRUNK * first_tokens and elapsed_ms >= STAYED * first_ms:
                self._floor_tokens = first_tokens
                self._num_at_floor = 0
        if self._too_long is None or self._num_at_floor > RETRY_SLICES:
            self._floor_tokens = SMALLEST_SLICE_TOKENS
