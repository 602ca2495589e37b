"""The times of a request that are counted by bucket for ever: which they are, and what each is made of.

It counts nothing; `rollups` does.
"""

from collections.abc import Iterator
from typing import Final

from control.wire import RequestRow

TTFT: Final = "ttft"
TTFT_WITHOUT_QUEUE: Final = "ttft_without_queue"
QUEUE: Final = "queue"
INTER_TOKEN: Final = "inter_token"
LARGEST_GAP: Final = "largest_gap"


def times_of(row: RequestRow) -> Iterator[tuple[str, float]]:
    """Each measure with its milliseconds, as far as the request got; nothing of one that was turned away."""
    if row.outcome == "rejected":
        return
    if row.ttft_ms is not None:
        yield TTFT, row.ttft_ms
        # Its two parts, of the same requests: with others in it, a part would look larger than the whole.
        if row.queue_ms is not None:
            yield TTFT_WITHOUT_QUEUE, max(row.ttft_ms - row.queue_ms, 0.0)
            yield QUEUE, min(row.queue_ms, row.ttft_ms)
    # The first emission is the end of the TTFT, whether one token or a whole speculative block came with it.
    later_tokens = row.completion_tokens - max(row.first_emission_tokens, 1)
    if row.decode_ms is not None and later_tokens > 0:
        yield INTER_TOKEN, row.decode_ms / later_tokens
    if row.largest_gap_ms is not None:
        yield LARGEST_GAP, row.largest_gap_ms
