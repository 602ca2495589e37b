"""Buckets for values that are summed up for ever: durations by ratio, contexts by powers of two.

It counts nothing and stores nothing.
"""

import math
from collections.abc import Mapping
from typing import Final

from control.wire import Percentiles

# Each bucket's upper bound is this much above the one before: its middle is within 5% of everything in it.
RATIO: Final = 1.1
_LOG_RATIO: Final = math.log(RATIO)
LEAST_CONTEXT: Final = 4096


def bucket_of(duration_ms: float) -> int:
    """The number of the bucket; 0 holds everything up to a millisecond."""
    return 0 if duration_ms <= 1 else math.ceil(math.log(duration_ms) / _LOG_RATIO)


def middle_ms(bucket: int) -> float:
    """What stands for every duration in the bucket: the geometric middle of its bounds."""
    return math.pow(RATIO, bucket - 0.5)


def context_bucket_of(context_tokens: int) -> int:
    """The smallest power of two, 4,096 at least, that is not exceeded."""
    return max(LEAST_CONTEXT, 1 << max(context_tokens - 1, 0).bit_length())


def percentiles(counts: Mapping[int, int]) -> Percentiles | None:
    """Of durations counted by bucket; None without any. The nearest-rank definition."""
    total = sum(counts.values())
    if total == 0:
        return None
    return Percentiles(p50_ms=_at(counts, total, 0.5), p95_ms=_at(counts, total, 0.95), count=total)


def _at(counts: Mapping[int, int], total: int, share: float) -> float:
    rank, seen = math.ceil(share * total), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= rank:
            return middle_ms(bucket)
    raise AssertionError("the rank is within the total")
