"""What the scripted engine says of its prefix cache, its promises, its memory and its self-tests: plausible figures.

It caches nothing and keeps no promise: what is cached is in the script, and counted here.
"""

from dataclasses import dataclass

from engine.wire import CacheCleared, CacheStatus, GovernorStatus, MemoryPlan, PromiseStatus, SelfTest
from tests.fakes.script import Start

BLOCK_TOKENS = 32
LATE_SYSTEM = SelfTest(
    name="late_system",
    passed=True,
    error=None,
    tolerance=None,
    detail="native: a later system message is rendered in its place",
)


@dataclass(slots=True)
class ScriptedCache:
    """Grows with what is prefilled, up to its budget; `off_reason` as the script says."""

    off_reason: str
    plan: MemoryPlan
    tokens: int = 0
    snapshots: int = 0
    lookups: int = 0
    hits: int = 0
    lookup_tokens: int = 0
    reused_tokens: int = 0
    clears: int = 0

    def prefilled(self, *, prompt_len: int, cached_len: int) -> None:
        self.lookups += 1
        self.hits += cached_len > 0
        self.lookup_tokens += prompt_len
        self.reused_tokens += cached_len
        if not self.off_reason:
            self.tokens += prompt_len - cached_len
            self.snapshots += 1

    def clear(self) -> CacheCleared:
        cleared = CacheCleared(
            freed_bytes=self._used_bytes, blocks=self.tokens // BLOCK_TOKENS, snapshots=self.snapshots
        )
        self.tokens = self.snapshots = 0
        self.clears += 1
        return cleared

    def status(self) -> CacheStatus:
        if self.off_reason:
            return CacheStatus(is_on=False, reason=self.off_reason)
        return CacheStatus(
            is_on=True,
            budget_bytes=self.plan.pool_bytes,
            used_bytes=self._used_bytes,
            blocks=self.tokens // BLOCK_TOKENS,
            snapshots=self.snapshots,
            lookups=self.lookups,
            hits=self.hits,
            lookup_tokens=self.lookup_tokens,
            reused_tokens=self.reused_tokens,
            hit_rate=self.reused_tokens / self.lookup_tokens if self.lookup_tokens else 0.0,
            clears=self.clears,
        )

    @property
    def _used_bytes(self) -> int:
        held = self.tokens * self.plan.kv_bytes_per_token + self.snapshots * self.plan.state_bytes_per_sequence
        return min(held, self.plan.pool_bytes)


def promises(*, max_gap_ms: float, decode_share: float) -> PromiseStatus:
    return PromiseStatus(
        max_gap_ms=max_gap_ms, decode_share=decode_share, largest_gap_ms=max_gap_ms * 0.9, gaps=412, windows=57
    )


def governor(plan: MemoryPlan) -> GovernorStatus:
    planned_bytes = plan.weights_bytes + plan.fixed_bytes
    return GovernorStatus(
        pool_bytes=plan.pool_bytes,
        planned_pool_bytes=plan.pool_bytes,
        available_bytes=plan.pool_bytes + plan.reserve_bytes,
        observed_bytes=planned_bytes,
        planned_bytes=planned_bytes,
    )


def self_tests(start: Start) -> tuple[SelfTest, ...]:
    """All passed, but for those that the script names."""
    passed = [SelfTest(name=name, passed=True, error=None, tolerance=None) for name in ("finite", "rows", "restore")]
    failed = [
        SelfTest(name=name, passed=False, error=None, tolerance=None, detail=detail)
        for name, detail in start.failed_tests.items()
    ]
    return (*(test for test in (*passed, LATE_SYSTEM) if test.name not in start.failed_tests), *failed)
