"""From loaded weights to something that can run: the right kernels, the layout, and a prefix cache that was tried.

It loads nothing, and what a test of the model shows is never hidden: each ends up in `/status`.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelRefused
from engine.execution import Execution
from engine.gated_delta.install import install_gated_delta
from engine.layout import Caches, new_caches
from engine.prefix.cache import PrefixCache, cache_off
from engine.prefix.index import PrefixIndex
from engine.prefix.store import CacheUnsupported, PrefixStore
from engine.selftest import choose_layout, restore_test
from engine.wire import LayoutStatus, SelfTest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    execution: Execution
    layout: LayoutStatus
    tests: tuple[SelfTest, ...]
    needs_snapshots: bool
    is_cache_on: bool


def prepare(model: Any, *, kv_bits: int | None, traces: Path | None = None) -> Prepared:
    """Raises ModelUnsound when the model computes logits that are not finite, and ModelRefused when its KV can't be
    kept in `kv_bits`: the memory plan counts on it.
    """
    kernels = install_gated_delta(model)
    chosen = choose_layout(model, kv_bits=kv_bits)
    if chosen.kv_bits != kv_bits:
        raise ModelRefused(
            f"keys and values of this model can't be kept in {kv_bits} bits ({chosen.status.reason}): load it without",
            reason="kv_not_quantisable",
        )
    tests = [*([] if kernels is None else [kernels]), *chosen.tests]
    prefix = _tried_cache(model, chosen.kv_bits, tests)
    execution = Execution(model, layout=chosen.layout, kv_bits=chosen.kv_bits, prefix=prefix, traces=traces)
    return Prepared(
        execution,
        chosen.status,
        tuple(tests),
        needs_snapshots=prefix.needs_snapshots,
        is_cache_on=prefix.status().is_on,
    )


def _tried_cache(model: Any, kv_bits: int | None, tests: list[SelfTest]) -> PrefixCache:
    """A prefix cache, if what it restores equals what it would have computed. Appends the test's result."""
    try:
        cache = cache_of(new_caches(model, room_len=0, kv_bits=kv_bits))
    except CacheUnsupported as unsupported:
        tests.append(SelfTest(name="restore", passed=False, error=None, tolerance=None, detail=str(unsupported)))
        return cache_off(str(unsupported))
    test = restore_test(model, kv_bits=kv_bits)
    tests.append(test)
    return cache if test.passed else cache_off(f"the self-test failed: {test.detail}")


def cache_of(example: Caches) -> PrefixCache:
    """An empty one for a model whose caches are like `example`. Raises CacheUnsupported."""
    store = PrefixStore(example)
    return PrefixCache(PrefixIndex(budget_bytes=0, needs_snapshots=store.needs_snapshots), store)
