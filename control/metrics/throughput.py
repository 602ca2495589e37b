"""Throughput that is true: windows of pure decode, one after the other with the same streams, made into stretches.

It reads no clock and writes nothing. Which windows count is in `control.metrics.windows`. Tokens of all streams are
divided by one wall clock: never a mean of the requests' own speeds, which counts short ones as much as long ones.
"""

import logging
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from control.metrics.roofline import ceiling_tokens_per_second
from control.metrics.stretch import Stretch
from control.metrics.windows import Reason, Sample, Window, elapsed_s, has_decoded, window_of
from engine.wire import Status

logger = logging.getLogger(__name__)

# So that a stream of hours is seen while it runs, and its speed told apart by how long its context was.
LONGEST_STRETCH_S: Final = 60.0
PEAK_S: Final = 5.0


class Throughput:
    """Fed with each new status. `keep` takes each stretch when it is over, and must not block."""

    def __init__(self, keep: Callable[[Stretch], None]) -> None:
        self._keep = keep
        self._newest: Sample | None = None
        self._has_decoded = False
        self._windows: list[Window] = []
        self._discarded: dict[str, int] = {}

    @property
    def discarded(self) -> dict[str, int]:
        """Windows in which something was decoded and that did not count, by reason."""
        return dict(self._discarded)

    def observe(self, status: Status, *, wall_s: float, monotonic_s: float) -> None:
        """`wall_s` and `monotonic_s`: when it came. The same status twice is one."""
        before, after = self._newest, Sample(status, wall_s, monotonic_s)
        if before is not None and before.status.pid == status.pid and elapsed_s(before, after) == 0:
            return
        self._newest = after
        if before is None:
            return
        self._add(window_of(before, after, has_decoded=self._has_decoded))
        self._has_decoded = has_decoded(before, after, had_decoded=self._has_decoded)

    def close(self) -> None:
        """Control ends: what is under way is a stretch, too."""
        self._flush()

    def _add(self, found: Window | Reason | None) -> None:
        if not isinstance(found, Window):
            self._flush()
            if found is not None:
                self._discarded[found] = self._discarded.get(found, 0) + 1
            return
        if self._windows and self._windows[-1].members != found.members:
            self._flush()
        self._windows.append(found)
        if sum(window.seconds for window in self._windows) >= LONGEST_STRETCH_S:
            self._flush()

    def _flush(self) -> None:
        windows, self._windows = self._windows, []
        if windows:
            stretch = stretch_of(windows)
            logger.debug("stretch width=%d tokens=%d seconds=%.3f", stretch.width, stretch.tokens, stretch.seconds)
            self._keep(stretch)


def stretch_of(windows: list[Window]) -> Stretch:
    """Of successive windows, at least one, with the same members."""
    first, last = windows[0], windows[-1]
    seconds = sum(window.seconds for window in windows)
    context_tokens = sum(window.context_tokens * window.seconds for window in windows) / seconds
    width = len(first.members)
    return Stretch(
        started_at_s=first.started_at_s,
        seconds=seconds,
        model=first.model,
        width=width,
        tokens=sum(window.tokens for window in windows),
        context_tokens=round(context_tokens),
        peak_tokens_per_second=peak_tokens_per_second(windows),
        ceiling_tokens_per_second=None
        if last.roofline is None
        else ceiling_tokens_per_second(last.roofline, width=width, context_tokens=context_tokens),
    )


def peak_tokens_per_second(windows: list[Window]) -> float | None:
    """The fastest run of windows of at least five seconds, and no longer than it must be; None without one."""
    ends_s = list(accumulate((window.seconds for window in windows), initial=0.0))
    totals = list(accumulate((window.tokens for window in windows), initial=0))
    peak: float | None = None
    begin = 0
    for end in range(1, len(ends_s)):
        while ends_s[end] - ends_s[begin + 1] >= PEAK_S:
            begin += 1
        seconds = ends_s[end] - ends_s[begin]
        if seconds >= PEAK_S:
            peak = max(peak or 0.0, (totals[end] - totals[begin]) / seconds)
    return peak
