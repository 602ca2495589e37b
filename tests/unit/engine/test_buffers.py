"""What MLX keeps without using it, and when it is given back. It asks MLX itself, on the CPU."""

import gc

import mlx.core as mx
import pytest

from engine.buffers import KeptBuffers
from engine.wire import MemoryPlan

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _keeping_memory():
    """MLX keeps as much as it does on a GPU; on a CPU it would keep 32 MiB."""
    gc.collect()
    mx.clear_cache()
    usual_limit = mx.set_cache_limit(1 << 30)
    yield
    mx.set_cache_limit(usual_limit)
    mx.clear_cache()


def plan(pool_mib: int) -> MemoryPlan:
    """For all that is in use now, and a pool beside it."""
    return MemoryPlan(
        weights_bytes=mx.get_active_memory(),
        fixed_bytes=MIB,
        kv_bytes_per_token=0,
        state_bytes_per_sequence=0,
        pool_bytes=pool_mib * MIB,
        limit_bytes=1 << 40,
        maximum_context_tokens=1,
        fits=True,
        verdict="",
        reserve_bytes=100 * MIB,
    )


def use_and_let_go(num_mib: int) -> None:
    mx.eval(mx.zeros((num_mib, MIB // 4)))


def test_what_was_let_go_of_stays_for_what_comes_next():
    buffers = KeptBuffers(plan(pool_mib=100))

    use_and_let_go(64)
    buffers.fit()

    assert mx.get_cache_memory() >= 64 * MIB


def test_what_is_used_and_kept_never_exceeds_the_plan():
    buffers = KeptBuffers(plan(pool_mib=100))
    use_and_let_go(64)

    row = mx.zeros((90, MIB // 4))
    mx.eval(row)
    buffers.fit()

    assert row.nbytes == 90 * MIB
    assert mx.get_cache_memory() == 0


def test_other_programs_get_it_as_soon_as_they_need_it():
    buffers = KeptBuffers(plan(pool_mib=100))
    use_and_let_go(64)

    buffers.observe(available_bytes=101 * MIB)
    kept_while_there_is_enough = mx.get_cache_memory()
    buffers.observe(available_bytes=99 * MIB)

    assert kept_while_there_is_enough >= 64 * MIB
    assert mx.get_cache_memory() == 0


def test_an_engine_at_rest_gives_it_back_after_a_minute():
    buffers = KeptBuffers(None)
    use_and_let_go(64)

    buffers.rest(idle_s=59.0)
    kept_between_two_turns = mx.get_cache_memory()
    buffers.rest(idle_s=60.0)

    assert kept_between_two_turns >= 64 * MIB
    assert mx.get_cache_memory() == 0
