"""A trace replayed with many budgets: first with its own, where every lookup must restore what it restored then.

It draws and prints nothing. Replays run in processes of their own, one for each core.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from engine.prefix.boundaries import Policy
from engine.replay.replay import Lookup, Replayed, Reuse, replay
from engine.replay.trace import Trace
from engine.trace.events import Began, Budgeted

DEFAULT_NUM_STEPS: Final = 25
GIB: Final = 2**30

Progress = Callable[[int, int], None]
"""Told (replays done, replays in all)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """How the replay with the trace's own budget compares with what was live. `first`: the first that differs."""

    num_lookups: int
    num_equal: int
    first: Lookup | None

    @property
    def is_whole(self) -> bool:
        return self.num_equal == self.num_lookups

    @classmethod
    def of(cls, replayed: Replayed) -> "Identity":
        differing = [each for each in replayed.lookups if each.restored_len != each.live_len]
        num_lookups = len(replayed.lookups)
        return cls(num_lookups, num_lookups - len(differing), differing[0] if differing else None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pool of `pool_bytes` (rows of running requests and the cache together) would have served. Tokens.

    Lookups of suspended requests, which find their own work again, are not counted. `prefill_s`: of what was not
    restored, by the speed that was measured while the trace was written.
    """

    pool_bytes: int
    lookup_tokens: int
    restored_tokens: int
    prefill_s: float
    largest_used_bytes: int
    extents: Reuse
    snapshots: Reuse

    @property
    def hit_rate(self) -> float:
        return self.restored_tokens / self.lookup_tokens if self.lookup_tokens else 0.0

    @property
    def uncached_tokens(self) -> int:
        return self.lookup_tokens - self.restored_tokens


def largest_running_bytes(trace: Trace) -> int:
    """What running requests took of the pool at most: below that, nothing is sure to be left for the cache."""
    budgets = [trace.opened.state.budget_bytes]
    budgets += [event.budget_bytes for event in trace.events if isinstance(event, Budgeted | Began)]
    return max(0, trace.opened.pool_bytes - min(budgets))


def pools_of(trace: Trace, *, step_bytes: int | None = None) -> tuple[int, ...]:
    """From the smallest useful pool to twice the live one; every GiB, or 25 steps where that would be fewer."""
    live, smallest = trace.opened.pool_bytes, largest_running_bytes(trace)
    span = max(2 * live - smallest, 1)
    step = step_bytes or (GIB if span // GIB >= DEFAULT_NUM_STEPS else max(1, span // (DEFAULT_NUM_STEPS - 1)))
    pools = {smallest + step * number for number in range(span // step + 1)} | {live}
    return tuple(sorted(pools))


def outcome_of(trace: Trace, pool_bytes: int, *, policy: Policy = "live") -> Outcome:
    replayed = replay(trace, more_bytes=pool_bytes - trace.opened.pool_bytes, policy=policy)
    return _outcome(trace, pool_bytes, replayed)


def identity_of(trace: Trace) -> Identity:
    return Identity.of(replay(trace))


def sweep(
    file: Path,
    pools: Sequence[int],
    *,
    policy: Policy = "live",
    num_processes: int | None = None,
    show: Progress = lambda done, total: None,
) -> tuple[Outcome, ...]:
    """Outcomes in the order of `pools`. Raises TraceUnreadable, OSError."""
    found: dict[int, Outcome] = {}
    with ProcessPoolExecutor(
        num_processes or os.cpu_count(), mp_context=get_context("spawn"), initializer=_read, initargs=(file,)
    ) as processes:
        # The largest first: they take longest.
        running = {processes.submit(_one, pool, policy): pool for pool in sorted(pools, reverse=True)}
        for done, each in enumerate(as_completed(running), start=1):
            found[running[each]] = each.result()
            show(done, len(pools))
    return tuple(found[pool] for pool in pools)


def recommended(outcomes: Sequence[Outcome], *, loss: float) -> Outcome:
    """The smallest pool whose hit rate is at most `loss` below the best of all. Needs one outcome."""
    best = max(each.hit_rate for each in outcomes)
    return min((each for each in outcomes if each.hit_rate >= best - loss), key=lambda each: each.pool_bytes)


_trace: Trace | None = None


def _read(file: Path) -> None:
    """Once a process."""
    global _trace
    _trace = Trace.read(file)


def _one(pool_bytes: int, policy: Policy) -> Outcome:
    assert _trace is not None
    return outcome_of(_trace, pool_bytes, policy=policy)


def _outcome(trace: Trace, pool_bytes: int, replayed: Replayed) -> Outcome:
    counted = [each for each in replayed.lookups if not each.is_resumed]
    return Outcome(
        pool_bytes=pool_bytes,
        lookup_tokens=sum(each.prompt_len for each in counted),
        restored_tokens=sum(each.restored_len for each in counted),
        prefill_s=sum(trace.speed.seconds(each.restored_len, each.prompt_len) for each in counted),
        largest_used_bytes=replayed.largest_used_bytes,
        extents=replayed.extents,
        snapshots=replayed.snapshots,
    )
