"""The governor: how large the pool may be now, given what the machine still has, and how real use compares with plan.

It measures nothing and frees nothing: the worker hands over what was observed and holds the cache to the answer.

1. What the machine could still give, less the reserve, and what the pool holds already, is what the pool may hold.
2. It is lowered when that stays below for a moment, and at once when half of the reserve is gone.
3. It is raised slowly, and only after a quiet time: an evicted prefix costs seconds, a late return costs nothing.
4. A short sequence can always run. Nothing latches: every figure is computed anew from the newest observations.
"""

from collections import deque
from typing import Final

from engine.memory import Coefficients
from engine.wire import GovernorStatus, MemoryPlan

LOW_FOR_S: Final = 1.5
"""A dip of one sample is the device's own: scratch of a slice, or memory on its way back."""

QUIET_S: Final = 15.0
"""How long the machine must have had more to give before the pool grows."""

GROWTH_S: Final = 60.0
"""A pool that was taken away wholly is back after so long."""

_SLACK_SHARE: Final = 0.02
"""Differences below this share of the planned pool are noise."""


class Governor:
    """One for a loaded model, owned by the worker's thread."""

    def __init__(self, plan: MemoryPlan) -> None:
        self._plan = plan
        self._floor_bytes = min(Coefficients.of(plan).smallest_pool_bytes(plan.maximum_context_tokens), plan.pool_bytes)
        # The slack comes out of the reserve, so it stays a small part of that too.
        self._slack_bytes = int(min(plan.pool_bytes * _SLACK_SHARE, plan.reserve_bytes / 4))
        self._pool_bytes = plan.pool_bytes
        self._recent: deque[tuple[float, int]] = deque()
        self._low_since_s: float | None = None
        self._observed_at_s: float | None = None
        self._available_bytes = 0
        self._observed_bytes = 0
        self._planned_bytes = 0
        self._shrinks = 0

    def observe(
        self, *, now_s: float, available_bytes: int, active_bytes: int, pool_used_bytes: int, process_bytes: int
    ) -> int:
        """Take one observation, about once a second, and return the bytes that the pool may hold from now on.

        `available_bytes` is what the device's memory still has for the engine; `active_bytes` what MLX uses;
        `pool_used_bytes` what rows and prefix cache hold; `process_bytes` the process's resident memory, 0
        where the device has memory of its own. `now_s` is monotonic.
        """
        self._available_bytes = available_bytes
        self._observed_bytes = max(active_bytes, process_bytes)
        self._planned_bytes = self._plan.weights_bytes + self._plan.fixed_bytes + pool_used_bytes
        # Scratch that is not in use now will be: it is planned, so nobody else is given it.
        still_to_come = max(self._planned_bytes - self._observed_bytes, 0)
        target = self._settled(pool_used_bytes + available_bytes - self._plan.reserve_bytes - still_to_come)
        self._remember(now_s, target)
        elapsed_s = 0.0 if self._observed_at_s is None else max(now_s - self._observed_at_s, 0.0)
        self._observed_at_s = now_s
        if target < self._pool_bytes - self._slack_bytes:
            self._lower(now_s, target)
        else:
            self._low_since_s = None
            self._raise(elapsed_s)
        return self._pool_bytes

    def status(self) -> GovernorStatus:
        return GovernorStatus(
            pool_bytes=self._pool_bytes,
            planned_pool_bytes=self._plan.pool_bytes,
            available_bytes=self._available_bytes,
            observed_bytes=self._observed_bytes,
            planned_bytes=self._planned_bytes,
            shrinks=self._shrinks,
            is_pressed=self._pool_bytes < self._plan.pool_bytes,
        )

    def _settled(self, target: int) -> int:
        """Between a short sequence and the planned pool, which is reached a slack early: noise leaves it whole."""
        if target >= self._plan.pool_bytes - self._slack_bytes:
            return self._plan.pool_bytes
        return max(target, self._floor_bytes)

    def _remember(self, now_s: float, target: int) -> None:
        self._recent.append((now_s, target))
        while now_s - self._recent[0][0] > QUIET_S:
            self._recent.popleft()

    def _lower(self, now_s: float, target: int) -> None:
        if self._low_since_s is None:
            self._low_since_s = now_s
        is_urgent = self._available_bytes < self._plan.reserve_bytes // 2
        if is_urgent or now_s - self._low_since_s >= LOW_FOR_S:
            self._pool_bytes = target
            self._shrinks += 1
            self._low_since_s = None

    def _raise(self, elapsed_s: float) -> None:
        # What lowered the pool is among the recent targets for a quiet time, so it does not grow before.
        lowest = min(target for _, target in self._recent)
        step = int(self._plan.pool_bytes * elapsed_s / GROWTH_S)
        if lowest > self._pool_bytes:
            self._pool_bytes = min(lowest, self._pool_bytes + step)
