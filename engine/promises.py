"""What running streams are promised while prompts are prefilled, and a count of how often it was not kept.

It keeps no promise itself: `scheduler.py` does, and tells what was done for how long.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from engine.wire import PromiseStatus

# What is left of the gap is for the decode step that ends it, for joining, and for a slice that takes longer.
SLICE_PART_OF_GAP: Final = 0.8
SLICE_ALONE_MS: Final = 800.0  # so that a cancel is seen within a second
SHARE_TOLERANCE: Final = 0.02
# Windows are made of whole steps, and one more is in flight when a window ends: so much may a window have too much.
CREDIT_STEPS: Final = 2
NUM_STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class Promises:
    """A stream waits `max_gap_ms` for its next token at most, and has `decode_share`, below 1, of the time."""

    max_gap_ms: float = 500.0
    decode_share: float = 0.5

    @property
    def slice_while_decoding_ms(self) -> float:
        return self.max_gap_ms * SLICE_PART_OF_GAP

    def owed_ms(self, elapsed_ms: float) -> float:
        """For how long the streams decode after they waited `elapsed_ms`."""
        return elapsed_ms * self.decode_share / (1.0 - self.decode_share)


DEFAULT_PROMISES: Final = Promises()


class Credit:
    """How much decoding beyond what was owed may count for the next window: two usual steps.

    A usual step is the second longest of the last few: one that was only read takes no time, and one outlier may come
    at any moment.
    """

    def __init__(self) -> None:
        self._steps_ms: deque[float] = deque(maxlen=NUM_STEPS)

    def stepped(self, elapsed_ms: float) -> None:
        self._steps_ms.append(elapsed_ms)

    @property
    def limit_ms(self) -> float:
        return CREDIT_STEPS * sorted(self._steps_ms)[-2] if len(self._steps_ms) > 1 else 0.0


class PromiseKeeper:
    """Measures gaps and windows. Times in ms, of what happened while at least one stream was decoding.

    A gap reaches from the end of a decode step to the end of the next. A window reaches from the start of a slice to
    the start of the next; it counts only if streams decoded all the time. What they had too much in the window before
    counts as theirs, within `Credit`.
    """

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self.waited_ms = 0.0
        """Since the last decode step."""
        self._largest_gap_ms = 0.0
        self._num_gaps = self._num_windows = 0
        self._gap_violations = self._share_violations = 0
        self._window_other_ms: float | None = None
        self._window_decode_ms = self._credit_ms = 0.0
        self._credit = Credit()

    def sliced(self, elapsed_ms: float) -> None:
        self._close_window()
        self._window_other_ms = elapsed_ms
        self.waited_ms += elapsed_ms

    def paused(self, elapsed_ms: float) -> None:
        if self._window_other_ms is not None:
            self._window_other_ms += elapsed_ms
        self.waited_ms += elapsed_ms

    def decoded(self, elapsed_ms: float, *, ends_gap: bool) -> None:
        """A step ended; `ends_gap`: a stream had been decoding since the step before."""
        if ends_gap:
            gap_ms = self.waited_ms + elapsed_ms
            self._num_gaps += 1
            self._largest_gap_ms = max(self._largest_gap_ms, gap_ms)
            self._gap_violations += gap_ms > self._promises.max_gap_ms
        self.waited_ms = 0.0
        self._window_decode_ms += elapsed_ms
        self._credit.stepped(elapsed_ms)

    def nobody_decodes(self) -> None:
        """The last stream ended: a window that it did not use up says nothing."""
        self.waited_ms = self._window_decode_ms = self._credit_ms = 0.0
        self._window_other_ms = None

    def status(self) -> PromiseStatus:
        return PromiseStatus(
            max_gap_ms=self._promises.max_gap_ms,
            decode_share=self._promises.decode_share,
            largest_gap_ms=self._largest_gap_ms,
            gap_violations=self._gap_violations,
            share_violations=self._share_violations,
            gaps=self._num_gaps,
            windows=self._num_windows,
        )

    def _close_window(self) -> None:
        other_ms = self._window_other_ms or 0.0
        had_ms = self._window_decode_ms + self._credit_ms
        if self._window_other_ms is not None:
            promised = self._promises.decode_share - SHARE_TOLERANCE
            self._num_windows += 1
            self._share_violations += had_ms < promised * (had_ms + other_ms)
        excess_ms = had_ms - self._promises.owed_ms(other_ms)
        self._credit_ms = min(max(0.0, excess_ms), self._credit.limit_ms)
        self._window_decode_ms = 0.0
