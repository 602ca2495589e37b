"""A stretch of pure decoding: successive windows with the same streams, as one row.

It measures nothing: `control.metrics.throughput` decides which windows count, and puts them together.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """Wall clock of control; `tokens` of all `width` streams together; `context_tokens` is the mean of a stream.

    `peak_tokens_per_second`: the fastest five seconds in a row, None when it was shorter.
    `ceiling_tokens_per_second`: roofline at this width and context, None when the engine does not know its bandwidth.
    """

    started_at_s: float
    seconds: float
    model: str
    width: int
    tokens: int
    context_tokens: int
    peak_tokens_per_second: float | None = None
    ceiling_tokens_per_second: float | None = None
