"""What is tried on a loaded model before it serves, and that nothing is switched off silently."""

import mlx.core as mx
import pytest

from engine import preparation
from engine.errors import ModelRefused
from engine.prefix.store import PrefixStore
from engine.selftest import restore_test
from tests.unit.engine.conversations import GREEDY
from tests.unit.engine.models import DENSE, KINDS, build
from tests.unit.engine.workers import ask, running


@pytest.fixture
def in_a_stream():
    with mx.stream(mx.new_stream(mx.default_device())):
        yield
    mx.synchronize()


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_model_passes_every_test_and_has_a_cache(kind, in_a_stream):
    prepared = preparation.prepare(build(KINDS[kind]), kv_bits=None)

    assert [test.name for test in prepared.tests if not test.passed] == []
    assert {"finite", "rows", "canary", "restore"} <= {test.name for test in prepared.tests}
    assert ("gated_delta" in {test.name for test in prepared.tests}) == (kind == "hybrid")
    assert prepared.execution.cache_status().is_on and prepared.is_cache_on


def test_kv_that_cannot_be_quantised_is_refused_with_the_reason(in_a_stream):
    heads_of_16 = build(DENSE)

    with pytest.raises(ModelRefused, match="can't be kept in 8 bits") as caught:
        preparation.prepare(heads_of_16, kv_bits=8)

    assert caught.value.reason == "kv_not_quantisable"


class ForgetfulStore(PrefixStore):
    """Restores one block of zeros for what was saved."""

    def put_extent(self, extent_id, caches, start, end):
        for cache in caches:
            cache.keys = cache.keys * 0
        super().put_extent(extent_id, caches, start, end)


def test_a_model_that_is_not_restored_exactly_is_served_without_a_cache_and_says_why(dense, monkeypatch):
    monkeypatch.setattr(
        preparation,
        "restore_test",
        lambda model, kv_bits: restore_test(model, kv_bits=kv_bits, make_store=ForgetfulStore),
    )
    with running(dense) as worker:
        first, second = (ask(worker, name, prompt=(5,) * 2000, max_tokens=3, sampling=GREEDY) for name in "ab")
        endings = [first.ending(), second.ending()]
        status = worker.snapshot

    assert [ending.usage.cached for ending in endings] == [0, 0]
    assert not status.cache.is_on
    assert status.scheduler.prefix_waits == 0
    assert "self-test" in status.cache.reason
    assert [test.name for test in status.self_tests if not test.passed] == ["restore"]
